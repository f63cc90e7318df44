// SPDX-License-Identifier: MIT
// Hand-written equals of the expressions that most models use: several times faster, without a stack that a long run of
// one character could exhaust. They belong to the expressions' texts, so a family need not know of them. Tests hold
// them against PCRE2.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace tinfer::tokenizer {

/// Appends the ends of the matches in `piece` and of the gaps between them, each plus `base`. The piece is valid UTF-8.
using ScanFn = void (*)(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends);

/// For an expression as the table writes it; null where there is no equal.
[[nodiscard]] ScanFn find_scanner(std::string_view pattern) noexcept;

}  // namespace tinfer::tokenizer
