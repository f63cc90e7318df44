// SPDX-License-Identifier: MIT
// A model in a store of Ollama: a manifest names the blob of the GGUF file. Only read: its registry is never asked.
#include <tinfer/base.hpp>
#include <tinfer/json.hpp>

#include "cache.hpp"

namespace tinfer::hub {

namespace {

constexpr std::string_view kLayer = "application/vnd.ollama.image.";
constexpr std::size_t kMaxManifest = 1u << 20;

/// The 64 digits of "sha256:…", or empty.
std::string_view digits_of(std::string_view digest) noexcept {
    constexpr std::string_view kStart = "sha256:";
    if (!digest.starts_with(kStart) || !is_hex(digest.substr(kStart.size()), 64)) return {};
    return digest.substr(kStart.size());
}

}  // namespace

std::optional<ModelFiles> find_ollama(const OllamaName& name, const Settings& settings) {
    const auto& store = settings.ollama_models;
    const auto manifest = store / "manifests" / "registry.ollama.ai" / name.space / name.name / name.tag;
    const auto text = read_small(manifest, kMaxManifest);
    if (!text) return std::nullopt;
    const auto refuse = [&](ErrorCode code, const std::string& why) {
        throw Error(code, "ollama:" + name.text() + ": " + why);
    };
    const Json document = Json::parse(*text, manifest.string(), {.code = ErrorCode::damaged});
    std::string hash;
    for (const Json& layer : document["layers"]) {
        const std::string_view type = layer.text("mediaType");
        if (!type.starts_with(kLayer)) continue;
        const auto kind = type.substr(kLayer.size());
        if (kind == "adapter" || kind == "projector")
            refuse(ErrorCode::not_available,
                   "has a layer of the kind " + std::string(kind) + ", which is not supported");
        if (kind != "model") continue;
        if (!hash.empty()) refuse(ErrorCode::not_available, "has more than one layer of the kind model");
        hash = digits_of(layer.text("digest"));
        if (hash.empty()) refuse(ErrorCode::damaged, manifest.string() + ": its model's digest is no sha256:HEX");
    }
    if (hash.empty()) refuse(ErrorCode::damaged, manifest.string() + ": names no layer of the kind model");
    const auto blob = store / "blobs" / ("sha256-" + hash);
    std::error_code none;
    if (!std::filesystem::is_regular_file(blob, none)) refuse(ErrorCode::io_error, blob.string() + " is missing");
    return ModelFiles{{blob}, name.text(), {}};
}

}  // namespace tinfer::hub
