// SPDX-License-Identifier: MIT
#include "convert/planner.hpp"

#include <algorithm>

#include "convert/checkpoint_json.hpp"
#include "convert/family.hpp"
#include "convert/vocabulary.hpp"

namespace tinfer::convert {

namespace fs = std::filesystem;

namespace {

std::string class_of(const Json& json, const std::string& file) {
    const Json* classes = json.find("architectures");
    if (classes == nullptr || !classes->is_array() || classes->empty() || !(*classes)[0].is_string())
        fail(ErrorCode::missing_key, file, ": 'architectures' is missing or holds no text");
    return (*classes)[0].string();
}

void refuse_quantized(Config& config) {
    const Json* quantized = config.find({"quantization_config"});
    if (quantized == nullptr) return;
    const std::string_view method = quantized->text("quant_method");
    config.refuse(ErrorCode::unsupported_arch, "quantization_config", "the checkpoint is quantized (",
                  method.empty() ? "no quant_method" : shown(method), ") and is not converted");
}

/// Rows of the embedding: what a vocabulary has, padding included.
std::uint64_t embedding_rows(Reading& r, const TensorsByName& tensors, const WeightFiles& files) {
    for (const Row& row : r.family.first) {
        if (row.to != "token_embd") continue;
        const auto found = tensors.find(cat(row.from, ".weight"));
        if (found == tensors.end()) continue;
        const StoredTensor& tensor = *found->second;
        if (tensor.shape.size() != 2 || tensor.shape[0] == 0 || tensor.shape[0] > (std::uint64_t{1} << 24))
            fail(ErrorCode::bad_tensor_shape, files.label(tensor), ": has the shape ", shape_text(tensor.shape),
                 ", the embedding of a vocabulary is expected");
        const auto said = r.config.find_count({"vocab_size"});
        if (said && *said > tensor.shape[0])
            r.config.refuse(ErrorCode::bad_key, "vocab_size", "is ", *said, ", the embedding has ", tensor.shape[0],
                            " rows");
        if (said && *said < tensor.shape[0])
            r.notes.push_back(cat("vocab_size is ", *said, ", the embedding has ", tensor.shape[0],
                                  " rows: the vocabulary is filled up"));
        return tensor.shape[0];
    }
    fail(ErrorCode::missing_tensor, files.paths()[0].parent_path().string(), ": tensor '", r.family.first.front().from,
         ".weight' is missing");
}

/// Pooling of sentence encoders (sentence-transformers): the config.json of the first module of that kind.
std::optional<std::uint32_t> read_pooling(const fs::path& folder) {
    std::error_code error;
    const fs::path path = folder / "modules.json";
    if (!fs::exists(path, error)) return std::nullopt;
    const Json modules = parse_checkpoint_json(read_bytes(path, kMaxConfigBytes), path.string(),
                                               ErrorCode::bad_metadata, kMaxConfigBytes);
    for (const Json& module : modules) {
        if (!module.text("type").ends_with("Pooling")) continue;
        const fs::path inner(std::string(module.text("path")));
        if (inner.is_absolute() || std::ranges::find(inner, "..") != inner.end())
            fail(ErrorCode::bad_metadata, path.string(), ": 'path' leads out of the folder: ", shown(inner.string()));
        const auto pooling = find_json(folder / inner, "config.json");
        const std::string file = (folder / inner / "config.json").string();
        if (!pooling) fail(ErrorCode::io_error, file, ": is in modules.json and is not there");
        constexpr std::pair<std::string_view, std::uint32_t> kModes[] = {
            {"pooling_mode_mean_tokens", 1}, {"pooling_mode_cls_token", 2}, {"pooling_mode_lasttoken", 3}};
        std::optional<std::uint32_t> mode;
        for (const auto& [key, value] : pooling->items()) {
            if (!key.starts_with("pooling_mode_") || !(value == Json(true))) continue;
            const auto known = std::ranges::find(kModes, key, &std::pair<std::string_view, std::uint32_t>::first);
            if (known == std::end(kModes) || mode)
                fail(ErrorCode::unsupported_arch, file, ": '", shown(key), "': this kind of pooling is not converted");
            mode = known->second;
        }
        const std::string_view text = pooling->text("pooling_mode");
        if (text == "mean") mode = 1;
        else if (text == "cls") mode = 2;
        else if (text == "lasttoken") mode = 3;
        else if (!text.empty())
            fail(ErrorCode::unsupported_arch, file, ": 'pooling_mode': '", shown(text), "' is not converted");
        if (!mode) fail(ErrorCode::missing_key, file, ": 'pooling_mode' is missing");
        return mode;
    }
    return std::nullopt;
}

void write_pooling(Reading& r, const fs::path& folder) {
    auto pooling = read_pooling(folder);
    if (r.class_name == "BertForSequenceClassification") pooling = 4;
    const bool is_encoder = r.family.architecture == "bert" || r.family.architecture == "nomic-bert";
    if (!pooling && is_encoder) {
        pooling = 1;
        r.notes.emplace_back("no modules.json: vectors are pooled by their mean");
    }
    if (pooling) r.set("pooling_type", *pooling);
}

/// What generation_config.json recommends for sampling.
void write_sampling(Metadata& metadata, const std::optional<Json>& generation, const std::string& file) {
    if (!generation) return;
    if (const Json* samples = generation->find("do_sample"); samples != nullptr && *samples == Json(false)) return;
    constexpr std::pair<std::string_view, std::string_view> kReals[] = {
        {"temperature", "temp"}, {"top_p", "top_p"}, {"min_p", "min_p"}, {"repetition_penalty", "penalty_repeat"}};
    const auto value = [&](std::string_view key) {
        const Json* found = generation->find(key);
        if (found == nullptr || found->is_null()) return static_cast<const Json*>(nullptr);
        if (!found->is_number())
            fail(ErrorCode::wrong_type, file, ": '", key, "': is ", value_text(*found), ", a number is expected");
        return found;
    };
    for (std::size_t i = 0; i < std::size(kReals); ++i) {
        if (const Json* real = value(kReals[i].first))
            metadata.emplace_back(cat("general.sampling.", kReals[i].second), real->get<float>());
        if (i > 0) continue;
        const Json* top_k = value("top_k");
        const auto number = top_k != nullptr ? whole_number(*top_k) : std::nullopt;
        if (number && *number <= 0x7FFFFFFF)
            metadata.emplace_back("general.sampling.top_k", static_cast<std::int32_t>(*number));
    }
}

}  // namespace

Plan make_plan(const fs::path& folder, const WeightFiles& files, const PlanOptions& options) {
    const std::string file = (folder / "config.json").string();
    auto json = find_json(folder, "config.json");
    if (!json) fail(ErrorCode::io_error, file, ": is missing");
    const std::string class_name = class_of(*json, file);
    Config config(std::move(*json), file);
    const Family& family = find_family(class_name, config);
    refuse_quantized(config);

    Reading r{.config = config, .family = family, .class_name = class_name};
    const bool is_headless =
        (family.architecture == "qwen2" || family.architecture == "qwen3") && class_name.ends_with("Model");
    const TensorsByName tensors =
        canonical_tensors(family, files, is_headless, class_name == "BertForSequenceClassification", r.notes);
    r.has_tensor = [&](std::string_view name) { return tensors.find(name) != tensors.end(); };
    read_hyperparameters(r);
    const std::uint64_t n_rows = embedding_rows(r, tensors, files);
    r.sizes['V'] = n_rows;
    if (family.writes_vocab_size) r.set("vocab_size", static_cast<std::uint32_t>(n_rows));
    write_pooling(r, folder);

    Plan plan{.architecture = std::string(family.architecture)};
    plan.tensors = map_tensors(r, files, tensors);
    if (!r.late_error.empty()) fail(ErrorCode::bad_key, r.late_error);
    const TokenizerFiles texts = read_tokenizer_files(folder, class_name == "XLMRobertaModel");
    const Vocabulary vocabulary = read_vocabulary(texts, n_rows, options.pretokenizer);

    std::string name = options.name;
    if (name.empty()) name = fs::weakly_canonical(folder).filename().string();
    plan.metadata = {{"general.architecture", plan.architecture},
                     {"general.type", std::string("model")},
                     {"general.name", name},
                     {"general.file_type", std::uint32_t{0}},
                     {"general.quantization_version", std::uint32_t{2}}};
    write_sampling(plan.metadata, texts.generation_config, (folder / "generation_config.json").string());
    plan.metadata.insert(plan.metadata.end(), std::make_move_iterator(r.metadata.begin()),
                         std::make_move_iterator(r.metadata.end()));
    write_vocabulary(vocabulary, texts, config.json(), plan.metadata, r.notes);
    plan.notes = std::move(r.notes);
    return plan;
}

}  // namespace tinfer::convert
