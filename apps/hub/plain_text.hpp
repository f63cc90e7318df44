// SPDX-License-Identifier: MIT
// Texts of others on a terminal. A header alone: what prints for the program is built without the hub, too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tinfer::hub {

namespace detail {

inline constexpr std::string_view kHexDigits = "0123456789abcdef";

/// Bytes of the character at the begin of the text (RFC 3629, §4), and its code; 0 bytes where it is none.
inline std::size_t read_character(std::string_view text, std::uint32_t& code) noexcept {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned first = byte(0);
    const std::size_t n = first < 0x80                    ? 1
                          : first >= 0xC2 && first < 0xE0 ? 2
                          : first >= 0xE0 && first < 0xF0 ? 3
                          : first >= 0xF0 && first < 0xF5 ? 4
                                                          : 0;
    if (n == 0 || n > text.size()) return 0;
    code = n == 1 ? first : first & (0x7Fu >> n);
    for (std::size_t i = 1; i < n; ++i) {
        if ((byte(i) & 0xC0) != 0x80) return 0;
        code = code << 6 | (byte(i) & 0x3Fu);
    }
    const bool is_long = (n == 3 && code < 0x800) || (n == 4 && code < 0x10000);
    return is_long || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? 0 : n;
}

inline bool steers(std::uint32_t code) noexcept {
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x061C || code == 0x200E || code == 0x200F ||
           (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

}  // namespace detail

/// The text with everything that could steer a terminal or hide in it spelt out as "\x1b" or "\u{202e}": control
/// characters, marks that turn the direction of writing, line and paragraph separators, and bytes that are no UTF-8.
/// Line feeds and tabs stay where lines are kept.
[[nodiscard]] inline std::string spell_controls(std::string_view text, bool keeps_lines = false) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        std::uint32_t code = 0;
        const std::size_t n = detail::read_character(text.substr(at), code);
        if (n > 0 && (!detail::steers(code) || (keeps_lines && (code == '\n' || code == '\t')))) {
            out += text.substr(at, n);
        } else if (n <= 1) {
            const auto byte = static_cast<unsigned char>(text[at]);
            out += "\\x";
            out += detail::kHexDigits[byte >> 4];
            out += detail::kHexDigits[byte & 15];
        } else {
            out += "\\u{";
            for (int shift = code > 0xFFF ? 12 : code > 0xFF ? 8 : 4; shift >= 0; shift -= 4)
                out += detail::kHexDigits[code >> shift & 15];
            out += '}';
        }
        at += n == 0 ? 1 : n;
    }
    return out;
}

}  // namespace tinfer::hub
