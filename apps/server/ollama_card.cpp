// SPDX-License-Identifier: MIT
#include "ollama_card.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>

#include "job.hpp"
#include "ollama.hpp"

namespace tinfer::server::ollama {

namespace {

constexpr std::size_t kMaxShown = 5;  ///< elements of an array, unless somebody asks for all

/// "8.0B", "596.05M"
std::string size_text(std::uint64_t n_params) {
    const auto n = static_cast<double>(n_params);
    std::array<char, 32> text{};
    if (n_params >= 1'000'000'000) (void)std::snprintf(text.data(), text.size(), "%.1fB", n / 1e9);
    else if (n_params >= 1'000'000) (void)std::snprintf(text.data(), text.size(), "%.2fM", n / 1e6);
    else (void)std::snprintf(text.data(), text.size(), "%.2fK", n / 1e3);
    return text.data();
}

Json details(const ModelCard& card) {
    return {{"parent_model", ""},
            {"format", "gguf"},
            {"family", card.architecture},
            {"families", Json::array({card.architecture})},
            {"parameter_size", size_text(card.n_params)},
            {"quantization_level", card.quantization},
            {"context_length", card.n_ctx},
            {"embedding_length", card.n_embd}};
}

Json abilities(const ModelCard& card) {
    Json list = Json::array();
    if (card.vectors) {
        list.push_back("embedding");
        return list;
    }
    list.push_back("completion");
    if (card.tools) list.push_back("tools");
    if (card.insert) list.push_back("insert");
    if (card.thinking) list.push_back("thinking");
    return list;
}

/// A scalar of the metadata by the type that the file gives it.
Json value_of(const tinfer::ModelFile& file, const tinfer::MetadataEntry& entry) {
    if (entry.type.starts_with("array")) {
        auto list = entry.count <= kMaxShown ? Json::try_parse(entry.value) : std::nullopt;
        return list && list->is_array() ? *std::move(list) : Json::array();
    }
    auto text = file.metadata_value(entry.key).value_or("");
    if (entry.type == "string") return text;
    auto value = Json::try_parse(text);
    return value ? *std::move(value) : Json(std::move(text));
}

Json model_info(const tinfer::ModelFile& file, const ModelCard& card, const std::string& id, bool is_verbose) {
    Json info = Json::object();
    if (is_verbose) {
        constexpr auto kAny = std::numeric_limits<std::size_t>::max();
        const Json whole = Json::parse(file.json(), "metadata", {.max_bytes = kAny, .max_values = kAny});
        for (const auto& [key, entry] : whole["metadata"].items()) info.append(key, entry["value"]);
    } else {
        for (const auto& entry : file.metadata()) info.append(std::string(entry.key), value_of(file, entry));
    }
    if (!info.contains("general.basename")) info["general.basename"] = id;
    info["general.parameter_count"] = card.n_params;
    return info;
}

/// A text in quotes, as a Modelfile has it.
std::string quoted(std::string_view text) { return to_line(Json(text)); }

/// Lines of a name and a value; no line feed behind the last one.
std::string parameters(const tinfer::Vocab& vocab, const ModelCard& card, const tinfer::SamplerOptions& sampler) {
    std::string text = "num_ctx " + std::to_string(card.n_ctx);
    for (const auto& field : tinfer::sampler_fields()) {
        if (!field.is_common) continue;
        std::string name(names_in_requests(field).front());
        if (const auto* whole = std::get_if<int tinfer::SamplerOptions::*>(&field.member))
            text += "\n" + name + " " + std::to_string(sampler.*(*whole));
        else text += "\n" + name + " " + Json(sampler.*std::get<float tinfer::SamplerOptions::*>(field.member)).dump();
    }
    for (const auto token : vocab.eog_tokens()) text += "\nstop " + quoted(vocab.text(token));
    return text;
}

std::string template_text(const tinfer::ModelFile& file, const ModelCard& card, const ServeOptions& options) {
    const auto chat_template = chat_template_of(file, options, false);
    std::string source(chat_template.source());
    // Editors take a model for one that fills in if this name stands in its template.
    if (card.insert) source += "{# .Suffix #}";
    return source;
}

}  // namespace

Json tag(const std::string& id, const ModelCard& card) {
    const std::string name = with_tag(id);
    return {{"name", name},
            {"model", name},
            {"modified_at", time_text(card.changed_at)},
            {"size", card.file_bytes},
            {"digest", card.digest},
            {"details", details(card)},
            {"capabilities", abilities(card)}};
}

Json running(const std::string& id, const ModelCard& card, double rest_s) {
    constexpr double kForEver = 100 * 365.25 * 24 * 3600;
    Json document = tag(id, card);
    document.erase("modified_at");
    const auto rest = std::chrono::duration_cast<std::chrono::system_clock::duration>(
        std::chrono::duration<double>(rest_s < 0 ? kForEver : std::min(rest_s, kForEver)));
    document["expires_at"] = time_text(std::chrono::system_clock::now() + rest);
    document["size_vram"] = 0;
    document["context_length"] = card.n_ctx;
    return document;
}

Json show(const std::string& id, const ModelCard& card, const tinfer::ModelFile& file, const tinfer::Vocab& vocab,
          const ServeOptions& options, bool is_verbose) {
    const std::string source = template_text(file, card, options), settings = parameters(vocab, card, options.sampler);
    std::string modelfile = "# The settings of a server of tinfer; none can be changed by requests.\nFROM " + id +
                            "\nTEMPLATE \"\"\"" + source + "\"\"\"\n";
    for (std::size_t begin = 0; begin < settings.size();) {
        const std::size_t end = std::min(settings.find('\n', begin), settings.size());
        modelfile += "PARAMETER " + settings.substr(begin, end - begin) + "\n";
        begin = end + 1;
    }
    return {{"modelfile", std::move(modelfile)},
            {"parameters", settings},
            {"template", source},
            {"license", file.metadata_value("general.license").value_or("")},
            {"details", details(card)},
            {"modified_at", time_text(card.changed_at)},
            {"model_info", model_info(file, card, id, is_verbose)},
            {"capabilities", abilities(card)}};
}

}  // namespace tinfer::server::ollama
