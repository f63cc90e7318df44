// SPDX-License-Identifier: MIT
#include "tokenizer/pieces.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "base/hex.hpp"
#include "tinfer/text.hpp"
#include "tokenizer/utf8.hpp"

namespace tinfer::tokenizer {

namespace {

constexpr std::size_t kSpareBytes = 16 * 1024 * 1024;  // room for pieces that are longer than their texts
constexpr std::string_view kUpperHex = "0123456789ABCDEF";

constexpr bool maps_to_itself(char32_t byte) noexcept {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

using ByteMap = std::array<char32_t, 256>;
constexpr std::size_t kMappedEnd = 0x144;  // one past the largest mapped character

constexpr ByteMap make_byte_map() noexcept {
    ByteMap map{};
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) map[byte] = maps_to_itself(byte) ? byte : next++;
    return map;
}
constexpr ByteMap kByteMap = make_byte_map();

constexpr std::array<std::int16_t, kMappedEnd> make_inverse_map() noexcept {
    std::array<std::int16_t, kMappedEnd> map{};
    for (auto& byte : map) byte = -1;
    for (std::size_t byte = 0; byte < 256; ++byte) map[kByteMap[byte]] = static_cast<std::int16_t>(byte);
    return map;
}
constexpr auto kInverseMap = make_inverse_map();

void append_unescaped_spaces(std::string& out, std::string_view text) {
    for (std::size_t at; (at = text.find(kEscapedSpace)) != text.npos; text.remove_prefix(at + kEscapedSpace.size())) {
        out += text.substr(0, at);
        out += ' ';
    }
    out += text;
}

// A character outside the map shows as "[UNK_BYTE_0x" + its bytes in hex + the whole text + "]".
void append_unmapped(std::string& out, std::string_view text, std::size_t limit) {
    for (std::string_view rest = text; !rest.empty();) {
        const CodePoint point = decode_structural(rest);
        const std::string_view bytes = rest.substr(0, point.length);
        rest.remove_prefix(point.length);
        const bool broken = point.length == 1 && point.value == 0xFFFD;
        if (!broken && point.value < kMappedEnd && kInverseMap[point.value] >= 0) {
            out += static_cast<char>(static_cast<unsigned char>(kInverseMap[point.value]));
            continue;
        }
        out += "[UNK_BYTE_0x";
        for (const char c : bytes) append_hex(out, static_cast<unsigned char>(c));
        out += text;
        out += ']';
        if (out.size() > limit) return;  // the caller throws
    }
}

void append_rwkv(std::string& out, std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '\\' || i + 1 == text.size()) {
            out += text[i];
            continue;
        }
        const char c = text[++i];
        const bool is_hex =
            c == 'x' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0;
        if (is_hex) {
            out += static_cast<char>(static_cast<unsigned char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2])));
            i += 2;
        } else {
            out += c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
        }
    }
}

}  // namespace

char32_t mapped_character(unsigned char byte) noexcept { return kByteMap[byte]; }

int parse_byte_text(std::string_view text) noexcept {
    if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
    const int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::array<char, 6> byte_text(unsigned char byte) noexcept {
    return {'<', '0', 'x', kUpperHex[byte >> 4], kUpperHex[byte & 15], '>'};
}

void Pieces::build(const TextIndex& texts, const std::vector<std::uint16_t>& attrs, PieceStyle style) {
    refs_.assign(texts.size(), {});
    std::size_t n_text_bytes = 0;
    for (std::size_t id = 0; id < texts.size(); ++id) {
        const std::string_view text = texts[id];
        n_text_bytes += text.size();
        const std::uint16_t attr = attrs[id];
        if ((attr & (TokenAttr::control | TokenAttr::unknown | TokenAttr::user_defined)) != 0) continue;

        const std::size_t begin = arena_.size();
        const std::size_t limit =
            std::min<std::size_t>(n_text_bytes + kSpareBytes, std::numeric_limits<std::uint32_t>::max() - 1);
        if ((attr & TokenAttr::byte) != 0) {
            const int byte = parse_byte_text(text);
            if (byte < 0) continue;
            arena_ += static_cast<char>(static_cast<unsigned char>(byte));
        } else if ((attr & TokenAttr::normal) != 0) {
            if (style == PieceStyle::verbatim) continue;
            if (style == PieceStyle::escaped_space) append_unescaped_spaces(arena_, text);
            if (style == PieceStyle::mapped_bytes) append_unmapped(arena_, text, limit);
            if (style == PieceStyle::rwkv_escapes) append_rwkv(arena_, text);
        }
        if (arena_.size() > limit)
            fail(ErrorCode::limit_exceeded,
                 cat("token ", id, ": the pieces up to here need ", arena_.size(), " bytes, the limit is ", limit));
        if (std::string_view(arena_).substr(begin) == text) {
            arena_.resize(begin);
        } else {
            refs_[id] = {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(arena_.size() - begin)};
        }
    }
}

}  // namespace tinfer::tokenizer
