// SPDX-License-Identifier: MIT
// Loads a written model and says how that ended.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/family_model.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

namespace tinfer::test {

struct Example {
    const char* name;
    const char* arch;
};
inline constexpr Example kModels[] = {{"llama", "llama"},     {"qwen2", "qwen2"},       {"qwen3", "qwen3"},
                                      {"llama-moe", "llama"}, {"qwen2moe", "qwen2moe"}, {"qwen3moe", "qwen3moe"}};

struct LoadOutcome {
    std::optional<ErrorCode> code;
    std::string text;
};

/// Loads the file and, when that works, decodes three tokens.
inline LoadOutcome load(const GgufWriter& w, const ModelOptions& options = {}) {
    const TempFolder folder;
    const auto path = folder / "model.gguf";
    w.save(path);
    try {
        const auto model = Model::load(path, options);
        Context context(model, {.n_ctx = 64, .n_threads = 1});
        if (context.decode(std::vector{Token{1}, Token{2}, Token{0}}) != DecodeStatus::ok)
            return {ErrorCode::no_room, "decode"};
        return {};
    } catch (const Error& error) {
        return {error.code(), error.what()};
    }
}

inline ModelInfo info_of(const GgufWriter& w) {
    const TempFolder folder;
    w.save(folder / "model.gguf");
    const Model model = Model::load(folder / "model.gguf");
    return model.info();
}

inline bool mentions(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

inline std::string shape_text(const std::vector<std::int64_t>& ne) {
    std::string out = "{";
    for (std::size_t i = 0; i < ne.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(ne[i]);
    return out + "}";
}

}  // namespace tinfer::test
