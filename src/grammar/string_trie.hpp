// SPDX-License-Identifier: MIT
// The pieces of a vocabulary as read inside a JSON string: a trie over decoded characters, not bytes. A piece ends
// between two characters, inside one, or after the closing quote, where a rest may follow. So a mask inside a string
// steps the automaton once per character, and in an unconstrained string it is a copy of a precomputed mask. Built once
// per vocabulary, immutable.
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
    /// In depth-first order, from the root; a sentinel follows the last node.
    struct Node {
        std::uint32_t symbol;  ///< index of its character in symbols()
        std::uint32_t end;     ///< index after the subtree
        std::uint32_t token;   ///< tokens() [token, partial) end here, [partial, next node's token) inside a character
        std::uint32_t partial;
        std::uint32_t closer;  ///< closers() [closer, next node's closer) close the string here
        std::uint32_t height;  ///< longest text below
        std::uint64_t kinds;   ///< of the characters below, see kind_of(); kUnfinished if a piece ends inside one
        std::uint32_t edge;    ///< edges_ [edge, next node's edge), ascending
    };
    /// Characters that automata mostly treat alike form a kind, which is a bit: hexadecimal letters, other letters
    /// (both by case), digits, controls, each other ASCII character, and some ranges of non-ASCII ones.
    static constexpr std::uint64_t kUnfinished = 1ull << 63;
    [[nodiscard]] static std::uint64_t kind_of(std::uint32_t code_point) noexcept;
    /// First code points of the ranges of equal kind, ascending from 0.
    [[nodiscard]] static std::span<const std::uint32_t> kind_starts() noexcept;

    struct Edge {
        std::uint32_t symbol, node;
    };
    struct Closer {
        std::uint32_t token;
        std::uint32_t rest;        ///< text after the quote: index in rests() plus 1; 0 for none
        std::uint32_t characters;  ///< before the quote
        std::uint32_t offset;      ///< of the rest in the piece
    };
    struct RestNode {
        std::uint8_t byte;
        std::uint32_t end;
    };
    static constexpr std::uint32_t kNoSymbol = 0xFFFFFFFF;
    static constexpr std::uint32_t kAnyNumber = 0xFFFFFFFF;
    /// There is a precomputed mask for each length up to this.
    static constexpr std::uint32_t kMaxCounted = 64;

    StringTrie() = default;
    /// `usable`: the tokens to include.
    StringTrie(std::span<const std::string> pieces, std::span<const std::uint32_t> usable, std::size_t n_words);

    [[nodiscard]] std::span<const Node> nodes() const noexcept { return nodes_; }
    [[nodiscard]] std::span<const std::uint32_t> tokens() const noexcept { return tokens_; }
    [[nodiscard]] std::span<const Closer> closers() const noexcept { return closers_; }
    [[nodiscard]] std::span<const RestNode> rests() const noexcept { return rests_; }
    /// The code points of the symbols, ascending: all of ASCII, then the others that occur in the vocabulary.
    [[nodiscard]] std::span<const std::uint32_t> symbols() const noexcept { return symbols_; }
    [[nodiscard]] std::uint32_t symbol_of(std::uint32_t code_point) const noexcept;
    /// The child node with this symbol, 0 if there is none.
    [[nodiscard]] std::uint32_t child(std::uint32_t node, std::uint32_t symbol) const noexcept;
    /// What the partial character at the end of tokens()[place] can still become.
    [[nodiscard]] const CharStep& begun(std::uint32_t place) const noexcept { return begun_[begun_at_[place]]; }

    /// Adds the tokens that do not close the string and have at most this many characters, a partial one included.
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
    std::vector<std::vector<std::uint64_t>> inside_;             ///< by number of characters − 1; last: any
    std::vector<std::pair<std::uint32_t, std::uint32_t>> long_;  ///< (token, characters) beyond kMaxCounted
};

}  // namespace tinfer::grammar
