// SPDX-License-Identifier: MIT
#include "tokenizer/utf8.hpp"

#include <algorithm>
#include <cstring>

#include "base/utf8.hpp"

namespace tinfer::tokenizer {

namespace {

constexpr bool is_continuation(unsigned char byte) noexcept { return (byte & 0xC0) == 0x80; }

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
        const bool fits = i == 1 ? byte(1) >= low && byte(1) <= high : is_continuation(byte(i));
        if (!fits) return {Utf8Front::Kind::invalid, i};
    }
    return {Utf8Front::Kind::character, length};
}

bool is_valid_utf8(std::string_view text) noexcept {
    while (!text.empty()) {
        if (text.size() >= 8) {  // plain ASCII, eight bytes at a time
            std::uint64_t word;
            std::memcpy(&word, text.data(), 8);
            if ((word & 0x8080808080808080u) == 0) {
                text.remove_prefix(8);
                continue;
            }
        }
        const Utf8Front front = utf8_front(text);
        if (front.kind != Utf8Front::Kind::character) return false;
        text.remove_prefix(front.length);
    }
    return true;
}

CodePoint decode_structural(std::string_view text) noexcept {
    constexpr CodePoint broken{0xFFFD, 1};
    const auto lead = static_cast<unsigned char>(text[0]);
    if (lead < 0x80) return {lead, 1};
    if (lead < 0xC0 || lead > 0xF7) return broken;
    const std::size_t length = length_by_lead(lead);
    if (length > text.size()) return broken;
    char32_t value = lead & (0x7Fu >> length);
    for (std::size_t i = 1; i < length; ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if (!is_continuation(byte)) return broken;
        value = value << 6 | (byte & 0x3Fu);
    }
    return value > 0x10FFFF ? broken : CodePoint{value, length};
}

void normalize_structural(std::string_view text, std::string& out) {
    out.clear();
    while (!text.empty()) {
        const CodePoint point = decode_structural(text);
        append_code_point(out, point.value);
        text.remove_prefix(point.length);
    }
}

void mask_surrogates(std::string& text) noexcept {
    for (std::size_t i = 0; i + 2 < text.size(); ++i)
        if (static_cast<unsigned char>(text[i]) == 0xED && static_cast<unsigned char>(text[i + 1]) >= 0xA0)
            std::copy(kReplacement.begin(), kReplacement.end(), text.begin() + static_cast<std::ptrdiff_t>(i));
}

void append_escaped_spaces(std::string& out, std::string_view text) {
    for (std::size_t at; (at = text.find(' ')) != text.npos; text.remove_prefix(at + 1)) {
        out += text.substr(0, at);
        out += kEscapedSpace;
    }
    out += text;
}

}  // namespace tinfer::tokenizer
