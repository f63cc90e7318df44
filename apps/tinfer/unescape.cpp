// SPDX-License-Identifier: MIT
// Replaces escape sequences such as \n in texts of the command line.
#include <algorithm>
#include <charconv>

#include "common.hpp"

namespace tinfer::app {

namespace {

void append_utf8(std::string& out, std::uint32_t code) {
    if (code < 0x80) {
        out += static_cast<char>(code);
    } else if (code < 0x800) {
        out += static_cast<char>(0xC0 | (code >> 6));
        out += static_cast<char>(0x80 | (code & 63));
    } else {
        out += static_cast<char>(0xE0 | (code >> 12));
        out += static_cast<char>(0x80 | ((code >> 6) & 63));
        out += static_cast<char>(0x80 | (code & 63));
    }
}

}  // namespace

std::string unescape(std::string_view text, std::string_view option) {
    std::string out;
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] != '\\') {
            out += text[at];
            continue;
        }
        const char kind = ++at < text.size() ? text[at] : '\0';
        if (constexpr std::string_view kNames = "ntr\\'\"0"; kind != '\0' && kNames.find(kind) != kNames.npos) {
            out += "\n\t\r\\'\"\0"[kNames.find(kind)];
            continue;
        }
        const std::size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : 0;
        const auto hex = text.substr(std::min(at + 1, text.size()), digits);
        std::uint32_t code = 0;
        const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
        if (digits == 0 || hex.size() != digits || error != std::errc() || end != hex.data() + hex.size())
            throw UsageError(std::string(option) + " '" + std::string(text) +
                             "': after \\ comes n, t, r, \\, xHH or uHHHH (\\\\ is a backslash)");
        if (digits == 2) out += static_cast<char>(code);
        else append_utf8(out, code);
        at += digits;
    }
    return out;
}

}  // namespace tinfer::app
