// SPDX-License-Identifier: MIT
#include "model_cards.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "infill.hpp"
#include "job.hpp"
#include "trace_folder.hpp"

namespace tinfer::server {

namespace {

/// The type that most bytes of the file are of: "Q4_K".
std::string quantization_of(const tinfer::ModelFile& file) {
    const auto mix = file.type_mix();
    const auto most = std::ranges::max_element(mix, {}, &tinfer::TypeCount::bytes);
    if (most == mix.end()) return "unknown";
    std::string name(tinfer::to_string(most->type));
    std::ranges::transform(name, name.begin(), [](char c) { return c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : c; });
    return name;
}

std::chrono::system_clock::time_point changed_at(const tinfer::ModelFile& file) {
    std::error_code none;
    const auto time = std::filesystem::last_write_time(file.paths().front(), none);
    if (none) return {};
    return std::chrono::time_point_cast<std::chrono::system_clock::duration>(std::chrono::file_clock::to_sys(time));
}

std::uint64_t bytes_of(const tinfer::ModelFile& file) {
    std::uint64_t bytes = 0;
    for (const auto& path : file.paths()) {
        std::error_code none;
        const auto size = std::filesystem::file_size(path, none);
        if (!none) bytes += size;
    }
    return bytes;
}

/// 64 digits that change when the file does: of the sample that stands for it.
std::string digest_of(const tinfer::ModelFile& file) {
    tinfer::Sha256 hash;
    hash.update(tinfer::to_hex(file.fingerprint()));
    return tinfer::to_hex(hash.finish());
}

/// A whole number of the metadata; 0 where it is none.
int number_of(const tinfer::ModelFile& file, const std::string& key) {
    const auto text = file.metadata_value(key);
    int value = 0;
    if (text) std::from_chars(text->data(), text->data() + text->size(), value);
    return value;
}

ModelCard card_of(const tinfer::ModelFile& file, const tinfer::Vocab& vocab, const ServeOptions& options) {
    ModelCard card;
    const std::string arch = card.architecture = file.metadata_value("general.architecture").value_or("");
    for (const auto& tensor : file.tensors()) {
        card.n_params += static_cast<std::uint64_t>(tensor.ne[0]) * static_cast<std::uint64_t>(tensor.ne[1]) *
                         static_cast<std::uint64_t>(tensor.ne[2]) * static_cast<std::uint64_t>(tensor.ne[3]);
        card.weight_bytes += tensor.bytes;
    }
    card.n_vocab = static_cast<int>(vocab.size());
    card.n_embd = number_of(file, arch + ".embedding_length");
    card.n_ctx_train = number_of(file, arch + ".context_length");
    card.n_expert = number_of(file, arch + ".expert_count");
    card.n_expert_used = number_of(file, arch + ".expert_used_count");
    card.n_moe_layers = moe_layers(file);
    card.quantization = quantization_of(file);
    card.file_bytes = bytes_of(file);
    card.changed_at = changed_at(file);
    card.digest = digest_of(file);
    card.vectors = number_of(file, arch + ".pooling_type") > 0;
    card.tools = tinfer::capabilities(chat_template_of(file, options, true)).tools;
    card.insert = can_infill(vocab);
    card.thinking = !tinfer::AnswerParser(chat_template_of(file, options, false)).reasoning_end().empty();
    return card;
}

Json meta_of(const ModelCard& card, const HostedModel& model) {
    Json meta{{"n_ctx", card.n_ctx > 0 ? card.n_ctx : static_cast<std::size_t>(std::max(card.n_ctx_train, 0))},
              {"n_ctx_train", card.n_ctx_train},
              {"n_params", card.n_params},
              {"size", card.weight_bytes},
              {"n_vocab", card.n_vocab},
              {"n_embd", card.n_embd},
              {"architecture", card.architecture},
              {"adapters", model.source.adapters}};
    if (card.n_expert > 0) {
        meta["n_expert"] = card.n_expert;
        meta["n_expert_used"] = card.n_expert_used;
        meta["moe_layers"] = card.n_moe_layers;
    }
    return meta;
}

Json defaults_of(const ServeOptions& options) {
    Json defaults = Json::object();
    for (const auto& field : tinfer::sampler_fields())
        std::visit(
            [&](auto member) { defaults[std::string(names_in_requests(field).front())] = options.sampler.*member; },
            field.member);
    return defaults;
}

/// Of what is loaded: what its header does not tell.
void add_loaded(Json& meta, const Service& service) {
    Json adapters = Json::array(), offers = Json::array();
    for (const auto& adapter : service.engine.options().adapters) adapters.push_back(adapter.name);
    if (service.options.receipts) offers.push_back("receipt");
    if (service.traces != nullptr) offers.push_back("trace");
    if (service.options.activity != nullptr && !service.engine.options().observers.empty())
        offers.push_back("activity");
    meta["n_ctx"] = service.engine.max_tokens();
    meta["adapters"] = adapters;
    meta["offers"] = offers;
    meta["system_fingerprint"] = service.fingerprint();
}

Json entry(Models& models, HostedModel& model) {
    const auto status = models.status(model);
    Json state{{"value", to_string(status.state)}}, meta = Json::object();
    std::int64_t created = models.created();
    if (!status.error.empty()) state["error"] = status.error;
    try {
        const auto card = card_of(models, model);
        meta = meta_of(*card, model);
        // That of the file, so that servers of the same file say the same.
        if (card->changed_at > std::chrono::system_clock::time_point{})
            created = std::chrono::duration_cast<std::chrono::seconds>(card->changed_at.time_since_epoch()).count();
    } catch (const tinfer::Error&) {  // a file that cannot be read: a load says why
    }
    meta["defaults"] = defaults_of(options_of(models, model));
    if (const auto use = models.look(model)) add_loaded(meta, use->service());
    Json document{{"id", model.id},    {"object", "model"},          {"created", created}, {"owned_by", "tinfer"},
                  {"parent", nullptr}, {"aliases", model.aliases()}, {"status", state}};
    if (const Json* n_ctx = meta.find("n_ctx")) document["max_model_len"] = *n_ctx;
    document["meta"] = std::move(meta);
    return document;
}

Json adapter_entry(Json base, const std::string& adapter) {
    base["parent"] = base["id"];
    base["id"] = adapter;
    base["aliases"] = Json::array();
    return base;
}

}  // namespace

int moe_layers(const tinfer::ModelFile& file) {
    const auto arch = file.metadata_value("general.architecture").value_or("");
    const int n_layer = number_of(file, arch + ".block_count") - number_of(file, arch + ".nextn_predict_layers");
    return static_cast<int>(std::ranges::count_if(file.tensors(), [&](const tinfer::TensorInfo& tensor) {
        return tensor.role == "ffn_gate_inp" && tensor.layer < n_layer && tensor.name.ends_with(".weight");
    }));
}

const ServeOptions& options_of(const Models& models, const HostedModel& model) {
    return model.source.options ? *model.source.options : models.broker().options;
}

std::shared_ptr<const ModelCard> card_of(Models& models, HostedModel& model) {
    auto stamps = stamps_of(model.source.files);
    const std::lock_guard lock(model.card_mutex);
    const auto use = models.look(model);
    const bool is_current = model.card != nullptr && model.card_stamps == stamps;
    if (is_current && model.card->is_of_loaded == use.has_value()) return model.card;
    auto card = std::make_shared<ModelCard>();
    if (use) {
        const Service& service = use->service();
        *card = card_of(service.model.file(), service.model.vocab(), service.options);
        card->n_ctx = service.engine.max_tokens();
        card->vectors = service.gives_vectors();
        card->is_of_loaded = true;
    } else {
        *card = card_of(model.source.open(), model.source.vocab(), options_of(models, model));
        card->n_ctx = model.source.n_ctx ? model.source.n_ctx() : 0;
    }
    model.card = card;
    model.card_stamps = std::move(stamps);
    return card;
}

Json model_list(Models& models) {
    Json list = Json::array();
    for (HostedModel* const model : models.all()) {
        Json own = entry(models, *model);
        for (const auto& adapter : model->source.adapters) list.push_back(adapter_entry(own, adapter));
        list.insert(list.size() - model->source.adapters.size(), std::move(own));
    }
    return list;
}

Json model_entry(Models& models, const std::string& name) {
    HostedModel& model = models.find(name);
    Json own = entry(models, model);
    const auto& adapters = model.source.adapters;
    return std::ranges::find(adapters, name) == adapters.end() ? own : adapter_entry(std::move(own), name);
}

}  // namespace tinfer::server
