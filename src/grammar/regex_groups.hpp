// SPDX-License-Identifier: MIT
// Finds groups and alternatives in the text of a regular expression before it is parsed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

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

}  // namespace tinfer::grammar
