// SPDX-License-Identifier: MIT
// Trained models in models/, fetched by scripts/get_model.py. They are not part of the project, so cases that need one
// have [model] in their name, and are skipped with a message if the file is absent. Here are the checks of such cases:
// that a model generates language, and that quantized products lose almost no quality.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tinfer/tinfer.hpp"

namespace tinfer::test {

/// A file of models/ by the name that scripts/get_model.py knows it by.
struct RealModel {
    std::string_view name, file;

    [[nodiscard]] std::filesystem::path path() const;
    /// True, with a message how to get it, if the file is absent: `if (kModel.skip()) return;`
    [[nodiscard]] bool skip() const;
};

struct Continuation {
    std::string text;
    bool ended = false;  ///< by an end-of-generation token, which is not in `text`
};
/// Up to `n_predict` tokens after `prompt`, always the most probable one.
[[nodiscard]] Continuation greedy(const Model& model, std::vector<Token> prompt, int n_predict);

/// Prose of the project, for measuring perplexity.
[[nodiscard]] std::string prose();
/// Perplexity in windows of `n` tokens, the second half of each scored.
[[nodiscard]] double perplexity(const Model& model, std::string_view text, std::size_t n);

/// The same file with every tensor exactly dequantized to F32: the metadata bytes as they are, a new directory, the
/// rows.
void write_dequantized(const std::filesystem::path& from, const std::filesystem::path& to);

struct PerplexityPair {
    double quantized = 0, exact = 0;
};
/// Perplexity of prose() in windows of 256 of a file, and of the same file dequantized. Writes the latter to a
/// temporary folder.
[[nodiscard]] PerplexityPair perplexity_against_dequantized(const std::filesystem::path& path);

}  // namespace tinfer::test
