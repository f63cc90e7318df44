// SPDX-License-Identifier: MIT
// Classes ("kinds") of bytes. If every kind of byte in a subtree of the vocabulary trie leads back to the current
// state, the whole subtree is allowed without a walk: inside a string that a grammar writes as `[^"]*` almost no node
// is visited.
#pragma once

#include <array>
#include <cstdint>

#include "grammar/machine.hpp"

namespace tinfer::grammar {

/// One bit per kind.
using ByteKinds = std::uint64_t;

/// Kinds of ASCII: a-f, g-z, A-F, G-Z, the digits, each other printable character, space, newline, tab, carriage
/// return, and all other control characters.
inline constexpr int kCharacterKind = 62;  ///< non-ASCII characters; the last one of a token may be incomplete
inline constexpr int kBrokenKind = 63;     ///< invalid UTF-8, and whatever follows a partial character
[[nodiscard]] constexpr ByteKinds kind_bit(int kind) noexcept { return ByteKinds{1} << kind; }

/// A UTF-8 validator that is fed one byte at a time.
struct Utf8Place {
    std::uint8_t n_missing = 0, lo = 0x80, hi = 0xBF;  ///< continuation bytes missing, and the range of the next one
    bool is_broken = false;
    /// The kind of the character that begins with this byte; −1 for a continuation byte.
    int step(std::uint8_t byte) noexcept;
};

/// Which kinds lead from a state back to itself, computed on demand and cached. Belongs to one machine; not
/// thread-safe.
class Loops {
public:
    /// Whether every text of these kinds leads back to the state, or ends inside a character on the way there; false
    /// also where finding out would cost too much.
    [[nodiscard]] bool all(Machine& machine, Machine::State state, ByteKinds kinds);

private:
    struct Known {
        Machine::State state = Machine::kDead;
        ByteKinds yes = 0, no = 0;
    };
    std::array<Known, 256> known_;  // index: state modulo the size
};

}  // namespace tinfer::grammar
