// SPDX-License-Identifier: MIT
// From the checkpoint's tensors to those of the file, by the rows of a family. Each tensor of the checkpoint is used or
// known to be left out, each of the file is found, and every shape is what config.json says.
#include <algorithm>
#include <cmath>
#include <set>

#include "convert/family.hpp"

namespace tinfer::convert {

namespace {

std::string with_number(std::string_view name, std::uint64_t j) {
    const std::size_t at = name.find("{J}");
    return cat(name.substr(0, at), j, name.substr(at + 3));
}

std::vector<std::uint64_t> expected_shape(std::string_view words, const Sizes& sizes) {
    std::vector<std::uint64_t> shape;
    for (std::size_t begin = 0; begin < words.size();) {
        const std::size_t end = std::min(words.find(' ', begin), words.size());
        shape.push_back(evaluate(words.substr(begin, end - begin), sizes));
        begin = end + 1;
    }
    return shape;
}

/// What the letters of a shape stand for in config.json.
std::string sizes_text(std::string_view words) {
    constexpr std::pair<char, std::string_view> kNames[] = {{'E', "hidden_size"},
                                                            {'F', "intermediate_size"},
                                                            {'V', "rows of the embedding"},
                                                            {'H', "num_attention_heads"},
                                                            {'G', "num_key_value_heads"},
                                                            {'D', "head_dim"},
                                                            {'Q', "num_attention_heads · head_dim"},
                                                            {'K', "num_key_value_heads · head_dim"},
                                                            {'X', "num_experts"},
                                                            {'M', "moe_intermediate_size"},
                                                            {'S', "width of the shared expert"},
                                                            {'P', "max_position_embeddings"},
                                                            {'T', "type_vocab_size"},
                                                            {'I', "inner width"},
                                                            {'N', "state_size"},
                                                            {'C', "conv_kernel"},
                                                            {'R', "time_step_rank"},
                                                            {'B', "relative_attention_num_buckets"},
                                                            {'Z', "num_labels"}};
    std::string text;
    for (const auto& [letter, name] : kNames)
        if (words.find(letter) != words.npos) text += cat(text.empty() ? "" : ", ", name);
    return text;
}

std::uint64_t product(std::span<const std::uint64_t> shape) {
    std::uint64_t n = 1;
    for (const std::uint64_t extent : shape) n *= extent;
    return n;
}

class Mapper {
public:
    Mapper(Reading& reading, const WeightFiles& files, const TensorsByName& tensors)
        : r_(reading), files_(files), tensors_(tensors) {}

    [[nodiscard]] std::vector<TargetTensor> map() {
        decide_head();
        map_rows(r_.family.first, "", "", 0);
        for (TargetTensor& tensor : r_.computed) targets_.push_back(std::move(tensor));
        for (const Block& block : r_.family.blocks)
            for (std::uint64_t il = 0; !block.from.empty() && il < r_.sizes.at(block.count); ++il) {
                const bool is_t5 = block.to != "blk.";
                for (const Rows rows : block.rows)
                    map_rows(rows, cat(block.from, il, is_t5 ? ".layer." : "."), cat(block.to, il, "."), il);
            }
        map_rows(r_.family.last, "", "", 0);
        if (tied_ && r_.family.head_required) repeat_embedding();
        for (const auto& [name, tensor] : tensors_)
            if (!used_.contains(tensor))
                fail(ErrorCode::unused_tensor, files_.label(*tensor), ": has no place in a model of the class '",
                     shown(r_.class_name), "' with ", r_.size('L'), " layers and these keys in config.json");
        return std::move(targets_);
    }

private:
    [[nodiscard]] const StoredTensor* find(std::string_view name) const {
        const auto found = tensors_.find(name);
        return found == tensors_.end() ? nullptr : found->second;
    }

    [[nodiscard]] bool holds(std::string_view condition) const {
        if (condition.empty()) return true;
        return condition[0] == '!' ? !r_.conditions.contains(condition.substr(1)) : r_.conditions.contains(condition);
    }

    /// 6.5: whether the file has a head of its own.
    void decide_head() {
        const auto row = std::ranges::find(r_.family.last, "output", &Row::to);
        const std::string name = cat(row == r_.family.last.end() ? "lm_head" : row->from, ".weight");
        const StoredTensor* head = find(name);
        const bool is_headless = r_.class_name.ends_with("Model") || r_.class_name == "T5EncoderModel";
        // T5 is tied unless config.json says otherwise, and then scales, whatever the files hold.
        const bool is_t5 = r_.class_name == "T5ForConditionalGeneration";
        const bool given = r_.config.find({"tie_word_embeddings"}) != nullptr;
        tied_ =
            r_.family.head_never || (given || is_t5 ? r_.config.flag_or("tie_word_embeddings", true) : head == nullptr);
        if (!tied_ && head == nullptr && is_headless) tied_ = true;
        if (!tied_) {
            r_.conditions.emplace("head");
            return;
        }
        if (head == nullptr) return;
        used_.insert(head);
        const StoredTensor* embedding = find(cat(r_.family.first.front().from, ".weight"));
        if (embedding != nullptr && !same(*head, *embedding))
            r_.notes.push_back(cat("'", name, "' is left out, as the head is the embedding; it differs from it"));
    }

    [[nodiscard]] bool same(const StoredTensor& a, const StoredTensor& b) const {
        if (a.type != b.type || a.shape != b.shape) return false;
        const std::uint64_t bytes = a.elements * bytes_of(a.type);
        std::vector<char> one(std::size_t{1} << 20), other(one.size());
        for (std::uint64_t at = 0; at < bytes; at += one.size()) {
            const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(one.size(), bytes - at));
            files_.read(a, at, std::span(one).first(n));
            files_.read(b, at, std::span(other).first(n));
            if (!std::equal(one.begin(), one.begin() + static_cast<std::ptrdiff_t>(n), other.begin())) return false;
        }
        return true;
    }

    void map_rows(Rows rows, const std::string& from, const std::string& to, std::uint64_t il) {
        for (const Row& row : rows) {
            if (!holds(row.when) || (row.first_layer_only && il > 0)) continue;
            map_row(row, cat(from, row.from), cat(to, row.to));
        }
        for (const Row& row : rows) {
            if (!holds(row.when) || (row.first_layer_only && il > 0) || row.optional) continue;
            const std::string target = cat(to, row.to, row.suffix == Suffix::none ? "" : ".weight");
            if (!written_.contains(target))
                refuse_missing(row, cat(from, row.from, row.suffix == Suffix::weight ? ".weight" : ""));
        }
    }

    [[noreturn]] void refuse_missing(const Row& row, const std::string& name) const {
        fail(ErrorCode::missing_tensor, files_.paths()[0].parent_path().string(), ": tensor '",
             shown(row.stacked != 0 ? with_number(name, 0) : name), "' is missing");
    }

    void map_row(const Row& row, const std::string& from, const std::string& to) {
        const std::string source = cat(from, row.suffix == Suffix::weight ? ".weight" : "");
        const std::string target = cat(to, row.suffix == Suffix::none ? "" : ".weight");
        if (row.stacked != 0) return map_stack(row, source, target);
        const StoredTensor* weight = find(source);
        if (weight == nullptr) return;
        if (written_.contains(target)) {
            if (row.to == "token_embd" && same(*weight, *embedding_)) used_.insert(weight);
            else if (row.to == "token_embd")
                fail(ErrorCode::unused_tensor, files_.label(*weight), ": differs from '", shown(embedding_->name),
                     "', and models of this class have one embedding");
            return;
        }
        if (row.to == "token_embd") embedding_ = weight;
        check(*weight, expected_shape(row.shape, r_.sizes), row.shape);
        add(row, target, {weight}, false);
        if (row.suffix != Suffix::weight || row.bias == Bias::none) return;
        const StoredTensor* bias = find(from + ".bias");
        if (bias == nullptr && row.bias == Bias::required) refuse_missing(row, from + ".bias");
        if (bias == nullptr) return;
        const auto shape = expected_shape(row.shape, r_.sizes);
        check(*bias, {row.change == Change::transpose ? shape.back() : shape.front()}, row.shape);
        add(row, to + ".bias", {bias}, true);
    }

    void map_stack(const Row& row, const std::string& source, const std::string& target) {
        if (find(with_number(source, 0)) == nullptr || written_.contains(target)) return;
        std::vector<const StoredTensor*> sources;
        const auto shape = expected_shape(row.shape, r_.sizes);
        for (std::uint64_t j = 0; j < r_.sizes.at(row.stacked); ++j) {
            const std::string name = with_number(source, j);
            const StoredTensor* tensor = find(name);
            if (tensor == nullptr)
                fail(ErrorCode::missing_tensor, files_.paths()[0].parent_path().string(), ": tensor '", shown(name),
                     "' is missing: config.json says ", r_.sizes.at(row.stacked));
            check(*tensor, shape, row.shape);
            sources.push_back(tensor);
        }
        add(row, target, sources, false);
    }

    void check(const StoredTensor& tensor, const std::vector<std::uint64_t>& shape, std::string_view words) const {
        if (tensor.shape != shape)
            fail(tensor.shape.size() != shape.size() ? ErrorCode::bad_tensor_rank : ErrorCode::bad_tensor_shape,
                 files_.label(tensor), ": has the shape ", shape_text(tensor.shape), ", ", shape_text(shape),
                 " follows from config.json (", sizes_text(words), ")");
        if (tensor.elements == 0) fail(ErrorCode::bad_tensor_shape, files_.label(tensor), ": is empty");
        if (!is_real(tensor.type))
            fail(ErrorCode::unsupported_tensor_type, files_.label(tensor), ": dtype ", to_string(tensor.type),
                 ", floating-point numbers are expected");
    }

    /// The target of `sources`, all of one shape.
    void add(const Row& row, const std::string& name, const std::vector<const StoredTensor*>& sources, bool is_bias) {
        TargetTensor target{.name = name};
        std::vector<std::uint64_t> shape = sources[0]->shape;
        target.unit = shape.size() > 1 ? shape.back() : 1;
        const std::uint64_t units = sources[0]->elements / target.unit;
        for (const StoredTensor* source : sources) {
            target.parts.push_back({.source = source, .count = {1, 1, units}, .stride = {0, 0, 1}});
            used_.insert(source);
        }
        change(row.change, target, shape, is_bias);
        if (row.stacked != 0) {
            shape.insert(shape.begin(), sources.size());
            target.how = cat(sources.size(), " stacked");
        }
        for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent)
            target.ne.push_back(static_cast<std::int64_t>(*extent));
        written_.insert(name);
        targets_.push_back(std::move(target));
    }

    /// Changes the only part of a target, and the shape that is written.
    void change(Change change, TargetTensor& target, std::vector<std::uint64_t>& shape, bool is_bias) const {
        Gather& part = target.parts[0];
        const auto size = [&](char letter) { return r_.sizes.at(letter); };
        switch (change) {
            case Change::none: break;
            case Change::heads_q:
            case Change::heads_k: {
                const std::uint64_t d = size('D');
                part.count = {size(change == Change::heads_q ? 'H' : 'G'), d / 2, 2};
                part.stride = {d, 1, d / 2};
                target.how = "rows of heads permuted";
                break;
            }
            case Change::plus_one: target.arithmetic = Arithmetic::plus_one, target.how = "+ 1"; break;
            case Change::transpose:
                if (is_bias) break;
                std::swap(shape[0], shape[1]);
                target.transposed = true;
                target.unit = shape[1];
                part.count = {1, 1, shape[0]};
                target.how = "transposed";
                break;
            case Change::qkv_by_head:
                part.count = {3, size('H'), size('D')};
                part.stride = {size('D'), 3 * size('D'), 1};
                target.how = "q, k, v of each head sorted";
                break;
            case Change::qkv_by_group: sort_groups(target); break;
            case Change::first_half:
            case Change::second_half: {
                std::uint64_t& rows = shape[shape.size() - 2];
                rows /= 2;
                part.count = {1, product(std::span(shape).first(shape.size() - 2)), rows};
                part.stride = {0, 2 * rows, 1};
                part.offset = change == Change::first_half ? 0 : rows;
                target.how = change == Change::first_half ? "first half" : "second half";
                break;
            }
            case Change::squeeze:
                if (is_bias) break;
                shape.erase(shape.end() - 2);
                break;
            case Change::negative_exp: target.arithmetic = Arithmetic::negative_exp, target.how = "-exp"; break;
            case Change::skip_padding:
                shape[0] -= r_.skipped_positions;
                part.count[2] = shape[0];
                part.offset = r_.skipped_positions;
                if (part.offset > 0) target.how = cat("without ", part.offset, " rows");
                break;
            case Change::tied_scale:
                if (!tied_) break;
                target.arithmetic = Arithmetic::times;
                target.factor = static_cast<float>(1 / std::sqrt(static_cast<double>(size('E'))));
                target.how = cat("· ", target.factor);
                break;
        }
    }

    /// G groups of H/G heads of q, one of k, one of v.
    void sort_groups(TargetTensor& target) const {
        const std::uint64_t d = r_.sizes.at('D'), n = r_.sizes.at('G'), heads = r_.sizes.at('H') / n;
        const Gather whole = target.parts[0];
        target.parts.clear();
        const auto take = [&](std::uint64_t first, std::uint64_t count) {
            target.parts.push_back({.source = whole.source,
                                    .offset = first * d,
                                    .count = {1, n, count * d},
                                    .stride = {0, (heads + 2) * d, 1}});
        };
        take(0, heads), take(heads, 1), take(heads + 1, 1);
        target.how = "q, k, v of each group sorted";
    }

    void repeat_embedding() {
        const auto embedding = std::ranges::find(targets_, "token_embd.weight", &TargetTensor::name);
        TargetTensor head = *embedding;
        head.name = "output.weight";
        targets_.push_back(std::move(head));
        r_.notes.push_back("the head is tied, which this architecture does not know: the embedding is written twice");
    }

    Reading& r_;
    const WeightFiles& files_;
    const TensorsByName& tensors_;
    bool tied_ = false;
    const StoredTensor* embedding_ = nullptr;
    std::vector<TargetTensor> targets_;
    std::set<std::string> written_;
    std::set<const StoredTensor*> used_;
};

/// '*' at either end of a word stands for anything.
bool matches_any(std::string_view words, std::string_view name) {
    for (std::size_t begin = 0; begin < words.size();) {
        const std::size_t end = std::min(words.find(' ', begin), words.size());
        const std::string_view word = words.substr(begin, end - begin);
        if (word.starts_with('*') && name.ends_with(word.substr(1))) return true;
        if (word.ends_with('*') && name.starts_with(word.substr(0, word.size() - 1))) return true;
        begin = end + 1;
    }
    return false;
}

std::string canonical_name(const Family& family, std::string name, bool adds_model_prefix) {
    const auto strip = [&](std::string_view prefix, std::string_view instead = {}) {
        if (name.starts_with(prefix)) name.replace(0, prefix.size(), instead);
    };
    strip("model.language_model.", "model.");
    strip("language_model.");
    const bool is_bert = family.architecture == "bert" || family.architecture == "nomic-bert";
    if (is_bert) strip("bert."), strip("roberta.");
    if (family.architecture == "gpt2") strip("transformer.");
    if (is_bert && name.find("LayerNorm.") != name.npos) {
        if (name.ends_with(".gamma")) name.replace(name.size() - 6, 6, ".weight");
        if (name.ends_with(".beta")) name.replace(name.size() - 5, 5, ".bias");
    }
    if (adds_model_prefix && !name.starts_with("model.") && !name.starts_with("lm_head.")) name.insert(0, "model.");
    return name;
}

}  // namespace

TensorsByName canonical_tensors(const Family& family, const WeightFiles& files, bool adds_model_prefix,
                                bool has_classifier, std::vector<std::string>& notes) {
    TensorsByName result;
    std::size_t images = 0;
    for (const StoredTensor& tensor : files.tensors()) {
        const std::string_view bare = std::string_view(tensor.name).substr(tensor.name.starts_with("model.") ? 6 : 0);
        if (bare.starts_with("vision_tower.") || bare.starts_with("multi_modal_projector.")) {
            ++images;
            continue;
        }
        const std::string name = canonical_name(family, tensor.name, adds_model_prefix);
        if (matches_any("*.rotary_emb.inv_freq *position_ids", name)) continue;
        const bool is_kept = has_classifier && name.starts_with("pooler.");
        if (!is_kept && matches_any(family.skipped, name)) continue;
        if (const auto [other, is_new] = result.emplace(name, &tensor); !is_new)
            fail(ErrorCode::unused_tensor, files.label(tensor), ": and '", shown(other->second->name),
                 "' are two names of one tensor");
    }
    if (images > 0) notes.push_back(cat(images, " tensors of the part that sees images are left out"));
    return result;
}

std::vector<TargetTensor> map_tensors(Reading& reading, const WeightFiles& files, const TensorsByName& tensors) {
    return Mapper(reading, files, tensors).map();
}

}  // namespace tinfer::convert
