// SPDX-License-Identifier: MIT
// A text in windows of equal length, as perplexity and what is measured beside it cut it.
#pragma once

#include <tinfer/tinfer.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tinfer::app {

/// Which tokens of a window have outputs.
enum class WindowOutputs {
    last,         ///< one row, that nobody reads
    second_half,  ///< those that are scored: each has at least half a window of context
    all,
};

struct TextWindows {
    std::vector<tinfer::Token> tokens;  ///< of the whole text
    std::optional<tinfer::Token> bos;   ///< takes the place of the first token of each window
    std::size_t length = 0, count = 0;

    [[nodiscard]] std::span<const tinfer::Token> window(std::size_t i) const {
        return std::span(tokens).subspan(i * length, length);
    }
    /// Decodes a window on an empty context; false if interrupted. Throws no_room naming --ctx.
    [[nodiscard]] bool decode(tinfer::Context& context, std::size_t i, WindowOutputs outputs) const;
    /// Rows of outputs of a window.
    [[nodiscard]] std::size_t n_outputs(WindowOutputs outputs) const;
};

/// Cuts a text; `most` windows, 0: all. Throws bad_parameter where there are fewer tokens than `least` windows, or
/// where the vocabulary ends texts with EOS.
[[nodiscard]] TextWindows cut_text(const tinfer::Vocab& vocab, const std::string& text, std::size_t length,
                                   std::size_t least, std::size_t most);

}  // namespace tinfer::app
