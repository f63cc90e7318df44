// SPDX-License-Identifier: MIT
// Breaks streamed text between words at the edge of a terminal. A word is shown as it comes; where it does not fit its
// line, it is taken back and begins the next one. Code between ``` keeps its lines.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tinfer::app {

class WordWrap {
public:
    /// `columns` is asked for each piece, because windows change; 0: nothing is broken.
    explicit WordWrap(std::function<int()> columns) : columns_(std::move(columns)) {}

    /// What to print for the next piece, which is valid UTF-8.
    [[nodiscard]] std::string add(std::string_view text);

private:
    void add_character(std::string_view character, int columns, std::string& out);

    std::function<int()> columns_;
    std::string word_, line_;  ///< since the last space; the line of the text so far
    int column_ = 0, word_columns_ = 0;
    bool in_code_ = false;
};

/// Columns of the terminal on stdout; 0 where it is none.
[[nodiscard]] int terminal_columns() noexcept;
/// Columns that valid UTF-8 takes on a terminal, wide characters counted twice. Needs a locale of UTF-8.
[[nodiscard]] int columns_of(std::string_view text) noexcept;

}  // namespace tinfer::app
