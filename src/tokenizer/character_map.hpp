// SPDX-License-Identifier: MIT
// SentencePiece's precompiled normalization table: a double-array trie (Aoe 1989) from byte strings to replacements.
// Since it comes from a file, all its paths are validated once.
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
    /// Reads the file's bytes: length of the array, the array, NUL-terminated replacements. Throws bad_vocabulary, with
    /// a message that begins with `name`.
    CharacterMap(std::string_view name, std::string_view bytes);

    struct Match {
        std::size_t length = 0;  ///< bytes to replace, 0: none
        std::string_view replacement;
    };
    /// The longest entry that `text` begins with.
    [[nodiscard]] Match longest(std::string_view text) const noexcept;

private:
    // A unit: bits 0-7 and 31 are the label of the edge to it, bit 8 says that it has a value, bits 10 and up are the
    // offset of the children, in units of 256 if bit 9 is set. A value's unit: bits 0-30.
    static std::uint32_t offset(std::uint32_t unit) noexcept { return unit >> 10 << ((unit & 0x200) >> 6); }
    static std::uint32_t label(std::uint32_t unit) noexcept { return unit & 0x800000FF; }
    static bool has_value(std::uint32_t unit) noexcept { return (unit & 0x100) != 0; }
    static std::uint32_t value(std::uint32_t unit) noexcept { return unit & 0x7FFFFFFF; }

    void check(std::string_view name) const;

    std::vector<std::uint32_t> units_;
    std::string replacements_;
};

}  // namespace tinfer::tokenizer
