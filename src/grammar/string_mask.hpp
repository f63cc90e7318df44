// SPDX-License-Identifier: MIT
// Masks inside strings and keys of JSON. What a token does up to the closing quote depends on the string alone, so it
// is read off a trie of characters without a step of the machine; and from the quote on all tokens of a string stand at
// one place, so what follows it is walked once, over the few rests that pieces have behind a quote.
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

/// Scratch of a matcher: one thread at a time.
class StringMask {
public:
    explicit StringMask(const TokenTrie& trie);

    void begin() noexcept { behind_.clear(); }  ///< of a mask; the last one may have thrown
    /// Adds the tokens that may follow, into `bits` of n_words(), but for some that close a key: finish() does.
    void add(Machine& machine, const Machine::InString& at, std::span<std::uint64_t> bits);
    /// Adds what is left, behind the last of the strings.
    void finish(Machine& machine, std::span<std::uint64_t> bits);

private:
    struct Place {
        std::uint32_t state, count;  // key: of other names, node of the names or kNone
    };
    struct Closing {
        std::uint32_t closer, group;
    };
    struct Override {
        std::uint32_t first, last;  // closers behind a declared name
        Machine::KeyEnd end;
    };
    /// Closers behind which the text stands at this state. Keys of many objects have the same: they are walked once.
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
    std::array<StringClasses, 8> classes_;  // of the automata that were used last
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
