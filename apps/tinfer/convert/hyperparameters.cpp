// SPDX-License-Identifier: MIT
// Keys that most families share (sizes, norms, experts), and the values that a size may have.
#include <algorithm>
#include <cmath>

#include "convert/checkpoint_json.hpp"
#include "convert/family.hpp"

namespace tinfer::convert {

void Reading::set(std::string_view key, Value value) {
    set_global(cat(family.architecture, ".", key), std::move(value));
}

void Reading::set_global(std::string_view key, Value value) {
    const auto same = std::ranges::find(metadata, key, &Metadata::value_type::first);
    if (same != metadata.end()) same->second = std::move(value);
    else metadata.emplace_back(key, std::move(value));
}

namespace {

void read_activation(Reading& r) {
    if (r.family.activations.empty()) return;
    const Config::Names kNames = {"hidden_act", "hidden_activation", "activation_function", "activation"};
    // gemma's old files have both, and the second counts.
    const auto check = [&](Config::Names names) {
        const std::string text = r.config.text_or(names, "");
        if (text.empty()) return;
        const std::string words = cat(" ", r.family.activations, " ");
        if (words.find(cat(" ", text, " ")) != words.npos) return;
        std::string_view name = *names.begin();
        for (const std::string_view given : names)
            if (r.config.find({given}) != nullptr) {
                name = given;
                break;
            }
        r.config.refuse(ErrorCode::unsupported_arch, name, "is '", shown(text),
                        "'; models of this class are computed with: ", r.family.activations);
    };
    if (r.config.find({"hidden_activation"}) != nullptr) check({"hidden_activation"});
    else check(kNames);
    (void)r.config.find(kNames);
}

void read_heads(Reading& r) {
    const std::uint32_t n_embd = r.size('E');
    const std::uint32_t n_head = r.family.n_head != 0 ? r.config.count_or({"num_attention_heads"}, r.family.n_head)
                                                      : r.config.count({"num_attention_heads", "n_head", "num_heads"});
    r.sizes['H'] = n_head;
    r.set("attention.head_count", n_head);
    std::uint32_t n_head_kv = n_head;
    if (r.family.has_kv_heads) {
        n_head_kv = r.config.count_or({"num_key_value_heads"}, r.family.n_head_kv != 0 ? r.family.n_head_kv : n_head);
        if (n_head % n_head_kv != 0)
            r.config.refuse(ErrorCode::bad_key, "num_key_value_heads", "is ", n_head_kv, ", which does not divide ",
                            n_head, " heads");
        r.set("attention.head_count_kv", n_head_kv);
    }
    r.sizes['G'] = n_head_kv;
    const auto given = r.config.find_count({"head_dim", "d_kv"});
    if (!given && r.family.head_size == 0 && n_embd % n_head != 0)
        r.config.refuse(ErrorCode::bad_key, "num_attention_heads", "is ", n_head,
                        ", which does not divide 'hidden_size' ", n_embd, ", and 'head_dim' is missing");
    const std::uint32_t head_size = given.value_or(r.family.head_size != 0 ? r.family.head_size : n_embd / n_head);
    r.sizes['D'] = head_size;
    r.sizes['Q'] = std::uint64_t{n_head} * head_size;
    r.sizes['K'] = std::uint64_t{n_head_kv} * head_size;
    if (given || r.family.always_head_size || r.sizes['Q'] != n_embd) {
        r.set("attention.key_length", head_size);
        r.set("attention.value_length", head_size);
    }
}

void read_norm(Reading& r) {
    const bool is_rms = r.family.norm == NormKeys::rms;
    const auto epsilon =
        static_cast<float>(is_rms ? r.config.number_or({"rms_norm_eps"}, r.family.norm_eps)
                                  : r.config.number_or({"layer_norm_eps", "layer_norm_epsilon"}, r.family.norm_eps));
    if (!(epsilon > 0))
        r.config.refuse(ErrorCode::bad_key, is_rms ? "rms_norm_eps" : "layer_norm_epsilon", "is ", epsilon,
                        ", must be above 0");
    if (r.family.norm == NormKeys::layer || r.family.norm == NormKeys::both)
        r.set("attention.layer_norm_epsilon", epsilon);
    if (r.family.norm != NormKeys::layer) r.set("attention.layer_norm_rms_epsilon", epsilon);
}

void read_experts(Reading& r) {
    if (!r.family.has_experts) return;
    r.conditions.emplace("experts");
    const std::uint32_t n = r.config.count({"num_local_experts", "num_experts"});
    const std::uint32_t used = r.config.count({"num_experts_per_tok"});
    if (used > n)
        r.config.refuse(ErrorCode::bad_key, "num_experts_per_tok", "is ", used, ", there are ", n, " experts");
    r.sizes['X'] = n;
    r.set("expert_count", n);
    r.set("expert_used_count", used);
}

}  // namespace

void read_hyperparameters(Reading& r) {
    const bool is_recurrent = r.family.architecture == "mamba";
    r.sizes['L'] = r.config.count({"num_hidden_layers", "n_layer", "num_layers"});
    if (r.size('L') > 1024)
        r.config.refuse(ErrorCode::bad_key, "num_hidden_layers", "is ", r.size('L'), ", at most 1024 are read");
    r.sizes['E'] = r.config.count({"hidden_size", "n_embd", "d_model"});
    r.set("block_count", r.size('L'));
    r.set("embedding_length", r.size('E'));
    const Config::Names context_names = {"max_position_embeddings", "n_positions", "n_ctx"};
    const std::uint32_t context =
        r.family.context != 0 ? r.config.count_or(context_names, r.family.context) : r.config.count(context_names);
    r.sizes['P'] = context;
    r.set("context_length", is_recurrent ? r.family.context : context);
    read_activation(r);
    if (!is_recurrent) {
        const auto width = r.config.find_count({"intermediate_size", "n_inner", "ffn_hidden_size", "d_ff"});
        const bool has_default = r.family.architecture == "gpt2" || r.family.architecture == "falcon";
        if (!width && !has_default) (void)r.config.count({"intermediate_size", "n_inner", "ffn_hidden_size", "d_ff"});
        r.sizes['F'] = width ? *width : 4 * std::uint64_t{r.size('E')};
        r.set("feed_forward_length", r.size('F'));
        read_heads(r);
    }
    read_norm(r);
    read_experts(r);
    r.family.keys(r);
    r.config.refuse_unknown();
}

std::uint64_t evaluate(std::string_view word, const Sizes& sizes) {
    std::uint64_t sum = 0, factor = 0;
    bool has_letter = false;
    for (const char c : word) {
        if (c >= '0' && c <= '9') factor = factor * 10 + static_cast<std::uint64_t>(c - '0');
        else if (c == '+') {
            if (!has_letter) sum += factor;
            factor = 0, has_letter = false;
        } else {
            sum += (factor == 0 ? 1 : factor) * sizes.at(c);
            factor = 0, has_letter = true;
        }
    }
    return has_letter ? sum : sum + factor;
}

std::optional<std::vector<bool>> read_layer_types(Reading& r) {
    const Json* types = r.config.find({"layer_types"});
    if (types == nullptr) return std::nullopt;
    if (!types->is_array() || types->size() != r.size('L'))
        r.late_error = cat(r.config.label("layer_types"), "is ", value_text(*types),
                           ", an array with one text for each of ", r.size('L'), " layers is expected");
    std::vector<bool> slides;
    for (const Json& type : *types) {
        if (type != "full_attention" && type != "sliding_attention")
            r.config.refuse(ErrorCode::unsupported_arch, "layer_types", "holds ", value_text(type),
                            ", layers of 'full_attention' and 'sliding_attention' are known");
        slides.push_back(type == "sliding_attention");
    }
    slides.resize(r.size('L'));
    return slides;
}

}  // namespace tinfer::convert
