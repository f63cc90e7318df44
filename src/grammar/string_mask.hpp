// SPDX-License-Identifier: MIT
// Masks inside JSON strings and keys. Up to the closing quote a token depends on the string alone, so it is checked
// along a trie of characters without machine steps. After the quote all tokens are in the same state, so the few
// different rests that pieces have after a quote are walked once.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "grammar/machine.hpp"
#include "grammar/string_classes.hpp"
#include "grammar/token_trie.hpp"

namespace tinfer::grammar {

/// Belongs to a matcher; not thread-safe.
class StringMask {
public:
    explicit StringMask(const TokenTrie& trie);

    void begin() noexcept { behind_.clear(); }  ///< of a mask; clears leftovers of one that threw
    /// Adds the allowed tokens to `bits` of n_words(), except some that close a key, which finish() adds.
    void add(Machine& machine, const Machine::InString& at, std::span<std::uint64_t> bits);
    /// Adds the remaining tokens, after the last add().
    void finish(Machine& machine, std::span<std::uint64_t> bits);

private:
    struct Place {
        std::uint32_t state, count;  // for a key: DFA state of other names; node of declared names or kNone
    };
    struct Closing {
        std::uint32_t closer, group;
    };
    struct Override {
        std::uint32_t first, last;  // closers at the end of a declared name
        Machine::KeyEnd end;
    };
    /// Closers and the state after them. Keys of several objects may share the closers, which are then walked once.
    struct Behind {
        std::uint32_t first, last;
        Machine::State state;
    };
    class OfString;
    class OfKey;

    void add_string(Machine& machine, const Machine::InString& at, std::span<std::uint64_t> bits);
    void add_key(Machine& machine, const Machine::InString& at, std::span<std::uint64_t> bits);
    void add_free_key(Machine& machine, const Machine::InString& at, std::span<std::uint64_t> bits);
    void add_declared_key(Machine& machine, const Machine::InString& at, std::span<std::uint64_t> bits);
    template <class Fn>
    void for_each_name(const ObjectTerminal& object, std::uint32_t names, const Fn& fn);
    void add_groups(Machine& machine, const Machine::InString& at, std::span<std::uint64_t> bits);
    template <class Inside>
    void walk(Inside& inside, Place start, std::span<std::uint64_t> bits);
    void follow(Machine& machine, Machine::State behind);
    void add_closers(Machine& machine, Machine::State behind, std::span<const Closing> closers,
                     std::span<std::uint64_t> bits);
    [[nodiscard]] StringClasses& classes(const Dfa& dfa, std::span<const std::uint32_t> shortest);

    const TokenTrie& vocabulary_;
    const StringTrie& trie_;
    std::array<StringClasses, 8> classes_;  // of the most recently used automata
    std::uint64_t n_uses_ = 0;
    std::vector<Place> path_;
    std::vector<std::uint32_t> ends_;
    std::vector<Machine::State> rest_path_;
    std::vector<std::uint32_t> rest_ends_;
    std::vector<char> follows_;  // {rests + 1}
    std::vector<Closing> closings_;
    std::vector<Machine::KeyEnd> groups_;
    std::vector<Override> overrides_;
    std::vector<Behind> behind_;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs_;
};

}  // namespace tinfer::grammar
