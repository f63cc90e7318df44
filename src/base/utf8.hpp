// SPDX-License-Identifier: MIT
// UTF-8 as texts of others must be (Unicode 15.0, table 3-7): no overlong forms, no surrogates, nothing above U+10FFFF.
// What tokenizers take for a character is wider; that is tokenizer/utf8.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tinfer {

/// Bytes of the well-formed character at the front of `text`, which is not empty; 0 where there is none.
[[nodiscard]] std::size_t utf8_length(std::string_view text) noexcept;

/// Appends the 1 to 4 bytes of a code point that is no surrogate and at most U+10FFFF.
void append_code_point(std::string& out, char32_t value);

}  // namespace tinfer
