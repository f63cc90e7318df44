// SPDX-License-Identifier: MIT
#include "base/error.hpp"

#include <charconv>
#include <cstring>

namespace tinfer {

Error::Error(ErrorCode code, std::string_view message) noexcept : code_(code) {
    const std::size_t room = text_.size() - 1;
    if (message.size() <= room) {
        std::memcpy(text_.data(), message.data(), message.size());
        return;
    }
    constexpr std::string_view ellipsis = "…";
    const std::size_t kept = room - ellipsis.size();
    std::memcpy(text_.data(), message.data(), kept);
    std::memcpy(text_.data() + kept, ellipsis.data(), ellipsis.size());
}

void fail(ErrorCode code, std::string_view message) { throw Error(code, message); }

void invariant_broken(const char* condition, const char* file, int line) {
    fail(ErrorCode::compute_failed, cat("internal check failed: ", condition, " (", file, ":", line, ")"));
}

namespace {

// Length of the well-formed UTF-8 character at the front of `text`, 0 when there is none (Unicode 15, table 3-7).
std::size_t utf8_length(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const auto tail = [&](std::size_t i, unsigned low, unsigned high) { return i < text.size() && byte(i) >= low && byte(i) <= high; };
    const unsigned lead = byte(0);
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) return tail(1, 0x80, 0xBF) ? 2 : 0;
    if (lead >= 0xE0 && lead <= 0xEF) {
        const unsigned low = lead == 0xE0 ? 0xA0 : 0x80, high = lead == 0xED ? 0x9F : 0xBF;
        return tail(1, low, high) && tail(2, 0x80, 0xBF) ? 3 : 0;
    }
    if (lead >= 0xF0 && lead <= 0xF4) {
        const unsigned low = lead == 0xF0 ? 0x90 : 0x80, high = lead == 0xF4 ? 0x8F : 0xBF;
        return tail(1, low, high) && tail(2, 0x80, 0xBF) && tail(3, 0x80, 0xBF) ? 4 : 0;
    }
    return 0;
}

}  // namespace

std::string escaped(std::string_view text, std::size_t limit) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string out;
    while (!text.empty()) {
        if (out.size() >= limit) return out + "…";
        const std::size_t length = utf8_length(text);
        const auto byte = static_cast<unsigned char>(text[0]);
        if (length == 0 || byte < 0x20 || byte == 0x7F) {
            out += "\\x";
            out += digits[byte >> 4];
            out += digits[byte & 15];
            text.remove_prefix(1);
        } else {
            if (byte == '\'' || byte == '\\') out += '\\';
            out += text.substr(0, length);
            text.remove_prefix(length);
        }
    }
    return out;
}

namespace text {

void append(std::string& out, double value) {
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    out.append(digits.data(), end);
}

}  // namespace text

}  // namespace tinfer
