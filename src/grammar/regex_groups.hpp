// SPDX-License-Identifier: MIT
// Groups and alternatives in the text of a regular expression, found before it is parsed, and the sets of its escapes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "grammar/char_set.hpp"

namespace tinfer::grammar {

/// Index of the last character of the escape or set that begins at `i`; else `i`.
[[nodiscard]] inline std::size_t unit_end(std::string_view pattern, std::size_t i) {
    if (pattern[i] == '\\') return i + 1;
    if (pattern[i] != '[') return i;
    while (++i < pattern.size() && pattern[i] != ']')
        if (pattern[i] == '\\') ++i;
    return i;
}

/// Index after the parenthesis that closes the one at `begin`; npos if there is none.
[[nodiscard]] inline std::size_t group_end(std::string_view pattern, std::size_t begin) {
    int depth = 0;
    for (std::size_t i = begin; i < pattern.size(); i = unit_end(pattern, i) + 1) {
        if (pattern[i] == '(') ++depth;
        if (pattern[i] == ')' && --depth == 0) return i + 1;
    }
    return pattern.npos;
}

[[nodiscard]] inline bool has_branches(std::string_view pattern) {
    for (std::size_t i = 0; i < pattern.size(); i = unit_end(pattern, i) + 1) {
        if (pattern[i] == '|') return true;
        if (pattern[i] == '(') i = std::min(group_end(pattern, i), pattern.size()) - 1;
    }
    return false;
}

/// The sets of \d, \w, \s and the dot.
inline CharSet digits() { return {{'0', '9'}}; }
inline CharSet word() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
inline CharSet space() {
    return {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
            {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}
inline CharSet any_but_line_ends() { return CharSet{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}.inverted(); }

}  // namespace tinfer::grammar
