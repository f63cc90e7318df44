// SPDX-License-Identifier: MIT
#include "ollama_card.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <system_error>

#include "infill.hpp"
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

/// The type that most bytes of the file are of: "Q4_K".
std::string quantization_of(const tinfer::ModelFile& file) {
    const auto mix = file.type_mix();
    const auto most = std::ranges::max_element(mix, {}, &tinfer::TypeCount::bytes);
    if (most == mix.end()) return "unknown";
    std::string name(tinfer::to_string(most->type));
    std::ranges::transform(name, name.begin(), [](char c) { return c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : c; });
    return name;
}

Json details(const Service& service) {
    const auto& info = service.model.info();
    return {{"parent_model", ""},
            {"format", "gguf"},
            {"family", info.architecture},
            {"families", Json::array({info.architecture})},
            {"parameter_size", size_text(info.n_params)},
            {"quantization_level", quantization_of(service.model.file())},
            {"context_length", service.engine.max_tokens()},
            {"embedding_length", info.n_embd}};
}

Json abilities(const Service& service) {
    Json list = Json::array();
    if (service.gives_vectors()) {
        list.push_back("embedding");
        return list;
    }
    list.push_back("completion");
    if (service.able(true).tools) list.push_back("tools");
    if (can_infill(service.model.vocab())) list.push_back("insert");
    if (!tinfer::AnswerParser(service.chat_template(false)).reasoning_end().empty()) list.push_back("thinking");
    return list;
}

std::chrono::system_clock::time_point changed_at(const Service& service) {
    std::error_code none;
    const auto time = std::filesystem::last_write_time(service.model.file().paths().front(), none);
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

Json model_info(const Service& service, bool is_verbose) {
    const auto& file = service.model.file();
    Json info = Json::object();
    if (is_verbose) {
        constexpr auto kAny = std::numeric_limits<std::size_t>::max();
        const Json whole = Json::parse(file.json(), "metadata", {.max_bytes = kAny, .max_values = kAny});
        for (const auto& [key, entry] : whole["metadata"].items()) info.append(key, entry["value"]);
    } else {
        for (const auto& entry : file.metadata()) info.append(std::string(entry.key), value_of(file, entry));
    }
    if (!info.contains("general.basename")) info["general.basename"] = service.id;
    info["general.parameter_count"] = service.model.info().n_params;
    return info;
}

/// A text in quotes, as a Modelfile has it.
std::string quoted(std::string_view text) { return to_line(Json(text)); }

/// Lines of a name and a value; no line feed behind the last one.
std::string parameters(const Service& service) {
    std::string text = "num_ctx " + std::to_string(service.engine.max_tokens());
    const auto& sampler = service.options.sampler;
    for (const auto& field : tinfer::sampler_fields()) {
        if (!field.is_common) continue;
        std::string name(names_in_requests(field).front());
        if (const auto* whole = std::get_if<int tinfer::SamplerOptions::*>(&field.member))
            text += "\n" + name + " " + std::to_string(sampler.*(*whole));
        else text += "\n" + name + " " + Json(sampler.*std::get<float tinfer::SamplerOptions::*>(field.member)).dump();
    }
    const auto& vocab = service.model.vocab();
    for (const auto token : vocab.eog_tokens()) text += "\nstop " + quoted(vocab.text(token));
    return text;
}

std::string template_text(const Service& service) {
    std::string source(service.chat_template(false).source());
    // Editors take a model for one that fills in if this name stands in its template.
    if (can_infill(service.model.vocab())) source += "{# .Suffix #}";
    return source;
}

}  // namespace

Json tag(const Service& service) {
    const auto& file = service.model.file();
    const std::string name = with_tag(service.id);
    return {{"name", name},
            {"model", name},
            {"modified_at", time_text(changed_at(service))},
            {"size", bytes_of(file)},
            {"digest", digest_of(file)},
            {"details", details(service)},
            {"capabilities", abilities(service)}};
}

Json running(const Service& service, double keep_alive) {
    constexpr double kForEver = 100 * 365.25 * 24 * 3600;
    Json document = tag(service);
    document.erase("modified_at");
    const auto rest = std::chrono::duration_cast<std::chrono::system_clock::duration>(
        std::chrono::duration<double>(keep_alive < 0 ? kForEver : std::min(keep_alive, kForEver)));
    document["expires_at"] = time_text(std::chrono::system_clock::now() + rest);
    document["size_vram"] = 0;
    document["context_length"] = service.engine.max_tokens();
    return document;
}

Json show(const Service& service, bool is_verbose) {
    const std::string source = template_text(service), settings = parameters(service);
    std::string modelfile = "# The settings of a server of tinfer; none can be changed by requests.\nFROM " +
                            service.id + "\nTEMPLATE \"\"\"" + source + "\"\"\"\n";
    for (std::size_t begin = 0; begin < settings.size();) {
        const std::size_t end = std::min(settings.find('\n', begin), settings.size());
        modelfile += "PARAMETER " + settings.substr(begin, end - begin) + "\n";
        begin = end + 1;
    }
    return {{"modelfile", std::move(modelfile)},
            {"parameters", settings},
            {"template", source},
            {"license", service.model.file().metadata_value("general.license").value_or("")},
            {"details", details(service)},
            {"modified_at", time_text(changed_at(service))},
            {"model_info", model_info(service, is_verbose)},
            {"capabilities", abilities(service)}};
}

}  // namespace tinfer::server::ollama
