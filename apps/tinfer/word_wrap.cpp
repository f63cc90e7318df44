// SPDX-License-Identifier: MIT
#include "word_wrap.hpp"

#include <algorithm>
#include <cwchar>

#if !defined(_WIN32)
#    include <sys/ioctl.h>
#    include <unistd.h>
#endif

namespace tinfer::app {

namespace {

constexpr std::size_t kMaxLine = 16;  // of a line's beginning: enough to see ```

std::size_t length_of_character(unsigned char first) noexcept {
    return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

}  // namespace

int terminal_columns() noexcept {
#if defined(_WIN32)
    return 0;
#else
    winsize size{};
    return ::isatty(1) != 0 && ::ioctl(1, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
#endif
}

int columns_of(std::string_view text) noexcept {
    int columns = 0;
    std::mbstate_t state{};
    while (!text.empty()) {
        wchar_t character = 0;
        const auto n = std::mbrtowc(&character, text.data(), text.size(), &state);
        if (n == 0 || n > text.size()) return columns + static_cast<int>(text.size());  // not of this locale
#if defined(_WIN32)
        columns += 1;
#else
        columns += std::max(0, ::wcwidth(character));
#endif
        text.remove_prefix(n);
    }
    return columns;
}

std::string WordWrap::add(std::string_view text) {
    const int columns = columns_();
    if (columns < 8) return std::string(text);
    std::string out;
    while (!text.empty()) {
        const auto n = std::min(length_of_character(static_cast<unsigned char>(text[0])), text.size());
        add_character(text.substr(0, n), columns, out);
        text.remove_prefix(n);
    }
    return out;
}

// The last column stays free: behind it a terminal's cursor is on either of two lines.
void WordWrap::add_character(std::string_view character, int columns, std::string& out) {
    const bool is_space = character == " " || character == "\t";
    if (character == "\n") {
        if (line_.starts_with("```")) in_code_ = !in_code_;
        line_.clear();
    } else if (line_.size() < kMaxLine) {
        line_ += character;
    }
    if (character == "\n" || is_space) {
        word_.clear();
        word_columns_ = 0;
    }
    if (character == "\n") {
        column_ = 0;
        out += character;
        return;
    }
    const int width = character == "\t" ? 8 - column_ % 8 : columns_of(character);
    if (!in_code_ && column_ + width >= columns) {
        if (is_space) {
            out += '\n';
            column_ = 0;
            return;
        }
        if (word_columns_ > 0 && word_columns_ < column_ && word_columns_ + width < columns) {
            out += "\033[" + std::to_string(word_columns_) + "D\033[K\n" + word_;
            column_ = word_columns_;
        } else if (width > 0) {
            out += '\n';
            column_ = word_columns_ = 0;
            word_.clear();
        }
    }
    if (!is_space) {
        word_ += character;
        word_columns_ += width;
    }
    column_ = in_code_ ? (column_ + width) % columns : column_ + width;
    out += character;
}

}  // namespace tinfer::app
