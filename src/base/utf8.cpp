// SPDX-License-Identifier: MIT
#include "base/utf8.hpp"

namespace tinfer {

namespace {

// Range of the second byte of a well-formed sequence; the later ones are 80..BF.
struct SecondByte {
    std::size_t length;
    unsigned char low, high;
};

constexpr SecondByte second_byte(unsigned char lead) noexcept {
    if (lead >= 0xC2 && lead <= 0xDF) return {2, 0x80, 0xBF};
    if (lead == 0xE0) return {3, 0xA0, 0xBF};
    if (lead == 0xED) return {3, 0x80, 0x9F};
    if (lead >= 0xE1 && lead <= 0xEF) return {3, 0x80, 0xBF};
    if (lead == 0xF0) return {4, 0x90, 0xBF};
    if (lead == 0xF4) return {4, 0x80, 0x8F};
    if (lead >= 0xF1 && lead <= 0xF3) return {4, 0x80, 0xBF};
    return {0, 0, 0};
}

}  // namespace

Utf8Front utf8_front(std::string_view text) noexcept {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    if (byte(0) < 0x80) return {Utf8Front::Kind::character, 1};
    const auto [length, low, high] = second_byte(byte(0));
    if (length == 0) return {Utf8Front::Kind::invalid, 1};
    for (std::size_t i = 1; i < length; ++i) {
        if (i == text.size()) return {Utf8Front::Kind::incomplete, i};
        const bool fits = i == 1 ? byte(1) >= low && byte(1) <= high : (byte(i) & 0xC0) == 0x80;
        if (!fits) return {Utf8Front::Kind::invalid, i};
    }
    return {Utf8Front::Kind::character, length};
}

std::size_t utf8_length(std::string_view text) noexcept {
    const Utf8Front front = utf8_front(text);
    return front.kind == Utf8Front::Kind::character ? front.length : 0;
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
