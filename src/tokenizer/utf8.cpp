// SPDX-License-Identifier: MIT
#include "tokenizer/utf8.hpp"

#include <algorithm>
#include <cstring>

#include "base/utf8.hpp"

namespace tinfer::tokenizer {

namespace {

constexpr bool is_continuation(unsigned char byte) noexcept { return (byte & 0xC0) == 0x80; }

}  // namespace

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
