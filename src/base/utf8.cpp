// SPDX-License-Identifier: MIT
#include "base/utf8.hpp"

namespace tinfer {

std::size_t utf8_length(std::string_view text) noexcept {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const auto is_tail = [&](std::size_t i, unsigned low, unsigned high) {
        return i < text.size() && byte(i) >= low && byte(i) <= high;
    };
    const unsigned lead = byte(0);
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) return is_tail(1, 0x80, 0xBF) ? 2 : 0;
    if (lead >= 0xE0 && lead <= 0xEF) {
        const unsigned low = lead == 0xE0 ? 0xA0 : 0x80, high = lead == 0xED ? 0x9F : 0xBF;
        return is_tail(1, low, high) && is_tail(2, 0x80, 0xBF) ? 3 : 0;
    }
    if (lead >= 0xF0 && lead <= 0xF4) {
        const unsigned low = lead == 0xF0 ? 0x90 : 0x80, high = lead == 0xF4 ? 0x8F : 0xBF;
        return is_tail(1, low, high) && is_tail(2, 0x80, 0xBF) && is_tail(3, 0x80, 0xBF) ? 4 : 0;
    }
    return 0;
}

void append_code_point(std::string& out, char32_t value) {
    const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (value >> shift & 0x3F)); };
    if (value < 0x80) {
        out += static_cast<char>(value);
    } else if (value < 0x800) {
        out += static_cast<char>(0xC0 | value >> 6);
        tail(0);
    } else if (value < 0x10000) {
        out += static_cast<char>(0xE0 | value >> 12);
        tail(6);
        tail(0);
    } else {
        out += static_cast<char>(0xF0 | value >> 18);
        tail(12);
        tail(6);
        tail(0);
    }
}

}  // namespace tinfer
