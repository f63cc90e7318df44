// SPDX-License-Identifier: MIT
// Hexadecimal digits, written in lower case and read in both.
#pragma once

#include <string>

namespace tinfer {

/// Two digits.
inline void append_hex(std::string& out, unsigned char byte) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
}

/// The value of a digit, -1 of any other character.
[[nodiscard]] constexpr int hex_digit(char c) noexcept {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

}  // namespace tinfer
