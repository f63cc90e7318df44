// SPDX-License-Identifier: MIT
// Where the groups and branches of a regular expression begin and end in its text, before it is parsed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace tinfer::grammar {

/// The last place of the escape or the set that begins at `i`; `i` elsewhere.
[[nodiscard]] inline std::size_t unit_end(std::string_view pattern, std::size_t i) {
    if (pattern[i] == '\\') return i + 1;
    if (pattern[i] != '[') return i;
    while (++i < pattern.size() && pattern[i] != ']')
        if (pattern[i] == '\\') ++i;
    return i;
}

/// Behind the parenthesis that closes the one at `begin`; npos where none does.
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
