// SPDX-License-Identifier: MIT
// SentencePiece's precompiled normalization table: a double array (Aoe 1989) of byte strings and what replaces them. It
// comes out of a file, so every way through it is walked once before it is trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tinfer::tokenizer {

class CharacterMap {
public:
    CharacterMap() = default;  ///< replaces nothing
    /// From the file's bytes: length of the array, the array, replacements that end in NUL. Throws bad_vocabulary, the
    /// message beginning with `name`.
    CharacterMap(std::string_view name, std::string_view bytes);

    struct Match {
        std::size_t length = 0;  ///< bytes to replace, 0: none
        std::string_view replacement;
    };
    /// The longest entry that `text` begins with.
    [[nodiscard]] Match longest(std::string_view text) const noexcept;

private:
    // Of a unit: bits 0-7 and 31 the byte that leads here, bit 8 whether a value hangs below, from bit 10 the distance
    // to the children, in units of 256 where bit 9 is set. Of a value's unit: bits 0-30.
    static std::uint32_t offset(std::uint32_t unit) noexcept { return unit >> 10 << ((unit & 0x200) >> 6); }
    static std::uint32_t label(std::uint32_t unit) noexcept { return unit & 0x800000FF; }
    static bool has_value(std::uint32_t unit) noexcept { return (unit & 0x100) != 0; }
    static std::uint32_t value(std::uint32_t unit) noexcept { return unit & 0x7FFFFFFF; }

    void check(std::string_view name) const;

    std::vector<std::uint32_t> units_;
    std::string replacements_;
};

}  // namespace tinfer::tokenizer
