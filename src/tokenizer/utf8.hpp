// SPDX-License-Identifier: MIT
// UTF-8 decoding at three levels of strictness: strict (for output), structural (as byte-level vocabularies were
// trained: overlong forms and surrogates count as characters), and by lead byte alone (SPM).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/utf8.hpp"

namespace tinfer::tokenizer {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";   // U+FFFD
inline constexpr std::string_view kEscapedSpace = "\xE2\x96\x81";  // U+2581, a space in SPM vocabularies

using tinfer::utf8_front;
using tinfer::Utf8Front;

[[nodiscard]] bool is_valid_utf8(std::string_view text) noexcept;

/// A character decoded by structure alone: a lead byte and the right number of continuation bytes. Anything else, also
/// a code point above U+10FFFF, gives U+FFFD for one byte.
struct CodePoint {
    char32_t value;
    std::size_t length;  ///< bytes consumed, ≥ 1
};
[[nodiscard]] CodePoint decode_structural(std::string_view text) noexcept;  // text is not empty

/// Decodes structurally and encodes in shortest form; invalid bytes become U+FFFD.
void normalize_structural(std::string_view text, std::string& out);

/// Replaces each surrogate (ED A0 80 … ED BF BF) by U+FFFD, which has as many bytes, so that offsets stay. The input is
/// the output of normalize_structural; the result is strictly valid.
void mask_surrogates(std::string& text) noexcept;

/// Appends `text` with each space as U+2581.
void append_escaped_spaces(std::string& out, std::string_view text);

/// Property White_Space of Unicode 15.
[[nodiscard]] constexpr bool is_white_space(char32_t c) noexcept {
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

/// Length of a character by its lead byte alone: 1, 2, 3 or 4.
[[nodiscard]] constexpr std::size_t length_by_lead(unsigned char lead) noexcept {
    return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

}  // namespace tinfer::tokenizer
