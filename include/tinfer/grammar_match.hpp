// SPDX-License-Identifier: MIT
// Where a text leaves a grammar, and what was expected there: for who writes a grammar and wonders why a text is none.
//
//     const auto list = tinfer::Grammar::parse(R"(root ::= "[" [0-9]+ "]")");
//     const auto match = tinfer::match(list, "[1x]");
//     std::cout << match.accepted << ' ' << match.n_bytes << ' ' << match.next[']'] << '\n';   // 0 2 1
#pragma once

#include <bitset>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tinfer/export.hpp"
#include "tinfer/grammar.hpp"

namespace tinfer {

/// How far a text follows a grammar.
struct GrammarMatch {
    bool accepted = false;    ///< Grammar::matches()
    std::size_t n_bytes = 0;  ///< so many bytes of the text are the beginning of one that the grammar allows
    bool has_place = true;    ///< false: the grammar as text is too long, and what follows here is not known
    bool may_end = false;     ///< a text may end behind them
    std::bitset<256> next{};  ///< the bytes that may follow them
    /// Where few bytes may follow: each with what has to follow it, about 64 bytes at most.
    std::vector<std::string> words{};
    static constexpr std::size_t kMaxWords = 16;  ///< more bytes than these have no words
};

/// Of a schema the place is that in a text as constraints admit it: with its members in the order of the schema.
/// `vocab`: that which the grammar was parsed with, if it was. Throws what Grammar::parse() and matches() throw. Any
/// thread.
[[nodiscard]] TINFER_API GrammarMatch match(const Grammar& grammar, std::string_view text,
                                            const Vocab* vocab = nullptr);

}  // namespace tinfer
