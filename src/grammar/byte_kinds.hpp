// SPDX-License-Identifier: MIT
// Bytes in kinds. A branch of the vocabulary whose kinds all lead back to the state it is met in is allowed as a whole:
// so inside of a string that a grammar writes as `[^"]*` nearly nothing of the vocabulary is stepped over.
#pragma once

#include <array>
#include <cstdint>

#include "grammar/machine.hpp"

namespace tinfer::grammar {

/// A bit for each kind.
using ByteKinds = std::uint64_t;

/// ASCII: letters in four parts (hexadecimal ones apart), digits, each other sign that can be seen, space, tab,
/// newline, carriage return, the other controls.
inline constexpr int kCharacterKind = 62;  ///< characters beyond ASCII; the last one may be cut
inline constexpr int kBrokenKind = 63;     ///< what is no UTF-8, and what follows the begin of a character
[[nodiscard]] constexpr ByteKinds kind_bit(int kind) noexcept { return ByteKinds{1} << kind; }

/// The place of a text in UTF-8, stepped by byte.
struct Utf8Place {
    std::uint8_t n_missing = 0, lo = 0x80, hi = 0xBF;  ///< bytes of the character, and the next one's range
    bool is_broken = false;
    /// The kind of what begins with the byte; −1 where it goes on with a character.
    int step(std::uint8_t byte) noexcept;
};

/// Which kinds lead from a state back to the same, asked as they are needed. Of one machine, one thread at a time.
class Loops {
public:
    /// Whether everything made of these kinds does, or ends on the way in the middle of a character; false where that
    /// is not worth asking.
    [[nodiscard]] bool all(Machine& machine, Machine::State state, ByteKinds kinds);

private:
    struct Known {
        Machine::State state = Machine::kDead;
        ByteKinds yes = 0, no = 0;
    };
    std::array<Known, 256> known_;  // by the last bits of the state
};

}  // namespace tinfer::grammar
