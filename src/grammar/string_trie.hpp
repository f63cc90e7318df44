// SPDX-License-Identifier: MIT
// The pieces of a vocabulary as they read inside a JSON string: a trie over characters, whatever their bytes or escapes
// are. A piece ends between two characters, inside of one, or behind the quote that closes the string, where a rest may
// follow. So a mask inside a string asks its automaton once for each character, and where every character is free it is
// a copy of a prepared one. Made once for a vocabulary, immutable.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/json_text.hpp"

namespace tinfer::grammar {

class StringTrie {
public:
    /// Depth-first; the first node is the root, a last one stands behind all others.
    struct Node {
        std::uint32_t symbol;  ///< of its character, see symbols()
        std::uint32_t end;     ///< index behind the nodes below this one
        std::uint32_t token;   ///< tokens() [token, partial) end here, [partial, token of the next) in a character
        std::uint32_t partial;
        std::uint32_t closer;  ///< closers() [closer, closer of the next node) close the string here
        std::uint32_t height;  ///< characters below, at most
        std::uint64_t kinds;   ///< of the characters below, see kind_of(); kUnfinished where a piece ends in one
        std::uint32_t edge;    ///< edges() [edge, edge of the next node), ascending
    };
    /// Characters that automata mostly treat alike form a kind, a bit: letters of hexadecimal digits, other letters,
    /// digits, each other character of ASCII, and ranges of the others.
    static constexpr std::uint64_t kUnfinished = 1ull << 63;
    [[nodiscard]] static std::uint64_t kind_of(std::uint32_t code_point) noexcept;
    /// The first code points of ranges within which all have one kind, ascending, the first of them 0.
    [[nodiscard]] static std::span<const std::uint32_t> kind_starts() noexcept;

    struct Edge {
        std::uint32_t symbol, node;
    };
    struct Closer {
        std::uint32_t token;
        std::uint32_t rest;        ///< what follows the quote: a node of rests(), plus 1; 0 where nothing does
        std::uint32_t characters;  ///< in front of the quote
        std::uint32_t offset;      ///< of the rest in the piece
    };
    struct RestNode {
        std::uint8_t byte;
        std::uint32_t end;
    };
    static constexpr std::uint32_t kNoSymbol = 0xFFFFFFFF;
    static constexpr std::uint32_t kAnyNumber = 0xFFFFFFFF;
    /// Up to so many characters there is a prepared mask for each length.
    static constexpr std::uint32_t kMostCounted = 64;

    StringTrie() = default;
    /// `usable` are the tokens that have bytes to read.
    StringTrie(std::span<const std::string> pieces, std::span<const std::uint32_t> usable, std::size_t n_words);

    [[nodiscard]] std::span<const Node> nodes() const noexcept { return nodes_; }
    [[nodiscard]] std::span<const std::uint32_t> tokens() const noexcept { return tokens_; }
    [[nodiscard]] std::span<const Closer> closers() const noexcept { return closers_; }
    [[nodiscard]] std::span<const RestNode> rests() const noexcept { return rests_; }
    /// The code points of the symbols: first those of ASCII, then the others that the vocabulary has, ascending.
    [[nodiscard]] std::span<const std::uint32_t> symbols() const noexcept { return symbols_; }
    [[nodiscard]] std::uint32_t symbol_of(std::uint32_t code_point) const noexcept;
    /// Node of the child by its symbol, 0 where there is none.
    [[nodiscard]] std::uint32_t child(std::uint32_t node, std::uint32_t symbol) const noexcept;
    /// The characters that may come of the one that the token at this place of tokens() ends in.
    [[nodiscard]] const CharStep& begun(std::uint32_t place) const noexcept { return begun_[begun_at_[place]]; }

    /// Adds the tokens of at most so many characters, one that was begun counted, that do not close the string.
    void add_inside(std::uint32_t characters, std::span<std::uint64_t> bits) const noexcept;
    [[nodiscard]] std::size_t memory() const noexcept;

private:
    struct Reading;
    void build(std::span<const Reading> readings, std::size_t n_closers);
    void build_rests(std::span<const std::string> pieces);

    std::vector<Node> nodes_;
    std::vector<Edge> edges_;
    std::vector<std::uint32_t> tokens_, begun_at_, symbols_;
    std::vector<CharStep> begun_;
    std::vector<Closer> closers_;
    std::vector<RestNode> rests_;
    std::vector<std::vector<std::uint64_t>> inside_;             ///< by number of characters − 1, the last one: all
    std::vector<std::pair<std::uint32_t, std::uint32_t>> long_;  ///< tokens with more than kMostCounted, and how many
};

}  // namespace tinfer::grammar
