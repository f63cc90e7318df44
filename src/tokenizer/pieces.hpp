// SPDX-License-Identifier: MIT
// The bytes of each token, computed once at load: spaces unescaped, mapped characters turned back into bytes. Tokens
// whose bytes are their text take no extra memory.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/text_index.hpp"

namespace tinfer::tokenizer {

enum class PieceStyle : std::uint8_t {
    verbatim,       ///< the text as it is
    escaped_space,  ///< U+2581 is a space
    mapped_bytes,   ///< each character is a byte
    rwkv_escapes,   ///< \n, \t, \r, \xHH and backslash before any other character
};

/// Byte-level BPE writes bytes as printable characters: 21-7E, A1-AC, AE-FF as themselves, the other 68 in ascending
/// order as U+0100 … U+0143.
[[nodiscard]] char32_t mapped_character(unsigned char byte) noexcept;

class Pieces {
public:
    /// Throws limit_exceeded if the pieces need far more memory than the texts, which only happens with hostile files.
    void build(const TextIndex& texts, const std::vector<std::uint16_t>& attrs, PieceStyle style);

    /// The piece, also of CONTROL and UNKNOWN tokens.
    [[nodiscard]] std::string_view at(const TextIndex& texts, std::int32_t id) const noexcept {
        const Ref& ref = refs_[static_cast<std::size_t>(id)];
        if (ref.begin == kText) return texts[static_cast<std::size_t>(id)];
        return {arena_.data() + ref.begin, ref.length};
    }

private:
    static constexpr std::uint32_t kText = ~std::uint32_t{0};
    struct Ref {
        std::uint32_t begin = kText, length = 0;
    };

    std::string arena_;
    std::vector<Ref> refs_;
};

/// Value of `<0xNN>`, -1 if the text does not have that form.
[[nodiscard]] int parse_byte_text(std::string_view text) noexcept;
/// `<0x0A>` for 10.
[[nodiscard]] std::array<char, 6> byte_text(unsigned char byte) noexcept;

}  // namespace tinfer::tokenizer
