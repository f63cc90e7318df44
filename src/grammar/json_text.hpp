// SPDX-License-Identifier: MIT
// Decodes the inside of a JSON string byte by byte: UTF-8, escapes, surrogate pairs. Within a character it tells which
// characters can still result, so that no string is begun that cannot be finished.
#pragma once

#include <cstdint>

namespace tinfer::grammar {

/// A position within a character; 0 is between characters.
using CharPlace = std::uint32_t;

struct CharStep {
    enum class Kind : std::uint8_t { fail, partial, character, close } kind = Kind::fail;
    CharPlace place = 0;         ///< for `partial`
    std::uint32_t lo[2], hi[2];  ///< characters that may result; for `character` it is lo[0]
    int n_ranges = 0;
};

[[nodiscard]] CharStep step_char(CharPlace place, std::uint8_t byte) noexcept;

}  // namespace tinfer::grammar
