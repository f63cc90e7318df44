// SPDX-License-Identifier: MIT
// What is known of published tokenizers without a model: pre-tokenizers by name with their expressions, and texts of
// tokens that end an answer. For programs that make model files.
//
//     for (const auto& pre : tinfer::pretokenizers())
//         if (pre.family == "llama3") std::cout << pre.name << '\n';   // "llama3", "llama-v3", "llama-bpe", …
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tinfer/export.hpp"

namespace tinfer {

/// One name that `tokenizer.ggml.pre` can have. The views are constants of the library.
struct PretokenizerInfo {
    std::string_view name;    ///< "llama-bpe"
    std::string_view family;  ///< "llama3": names of one family cut alike
    /// Applied in order, each to every piece that the ones before it produced. PCRE2 syntax, with four abbreviations:
    /// %C% contractions in any case, %U% a class of letters that may begin a word in capitals, %W% one of the others,
    /// %G% the expression of GPT-2.
    std::span<const std::string_view> patterns;
    bool ignores_merges;  ///< a piece that is a token as a whole is that token
    bool cleans_spaces;   ///< decoding removes spaces before punctuation
};

/// All names, in the order of the table.
[[nodiscard]] TINFER_API std::vector<PretokenizerInfo> pretokenizers();

/// Whether a token of this text ends an answer in every model that has it: "<|im_end|>".
[[nodiscard]] TINFER_API bool ends_answers(std::string_view token_text) noexcept;

}  // namespace tinfer
