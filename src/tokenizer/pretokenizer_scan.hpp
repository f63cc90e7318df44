// SPDX-License-Identifier: MIT
// Hand-written equivalents of the expressions that most models use: several times faster, and without a stack that a
// long run of one character could exhaust. They are looked up by the expression's text, so families need not know of
// them. Tests compare them with PCRE2.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace tinfer::tokenizer {

/// Appends the ends of the matches in `piece` and of the gaps between them, each plus `base`. The piece is valid UTF-8.
using ScanFn = void (*)(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);

/// The scanner for an expression as the table writes it; null if there is none.
[[nodiscard]] ScanFn find_scanner(std::string_view pattern) noexcept;

}  // namespace tinfer::tokenizer
