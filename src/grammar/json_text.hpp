// SPDX-License-Identifier: MIT
// The inside of a JSON string, byte by byte: UTF-8, escapes, pairs of surrogates. Between the bytes of a character it
// tells which characters can still come of them, so that no string is begun that cannot be finished.
#pragma once

#include <cstdint>

namespace tinfer::grammar {

/// Where in a character a text stands; 0 is between characters.
using CharPlace = std::uint32_t;

struct CharStep {
    enum class Kind : std::uint8_t { fail, partial, character, close } kind = Kind::fail;
    CharPlace place = 0;         ///< of partial
    std::uint32_t lo[2], hi[2];  ///< characters that may come of it; of `character` lo[0]
    int n_ranges = 0;
};

[[nodiscard]] CharStep step_char(CharPlace place, std::uint8_t byte) noexcept;

}  // namespace tinfer::grammar
