// SPDX-License-Identifier: MIT
// Strict UTF-8 (Unicode 15.0, table 3-7): no overlong forms, no surrogates, nothing above U+10FFFF. The looser decoding
// of tokenizers is in tokenizer/utf8.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tinfer {

/// What the first character of a text is.
struct Utf8Front {
    enum class Kind : std::uint8_t { character, invalid, incomplete } kind;
    std::size_t length;  ///< of the character, or of the maximal invalid or incomplete subpart; ≥ 1
};
[[nodiscard]] Utf8Front utf8_front(std::string_view text) noexcept;  // text is not empty

/// Length of the well-formed character at the begin of `text`, which is not empty; 0 if there is none.
[[nodiscard]] std::size_t utf8_length(std::string_view text) noexcept;

/// Appends a code point in its shortest form, 1 to 4 bytes; surrogates become the three bytes ED A0 80 … ED BF BF.
void append_code_point(std::string& out, char32_t value);

}  // namespace tinfer
