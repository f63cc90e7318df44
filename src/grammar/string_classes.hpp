// SPDX-License-Identifier: MIT
// An automaton over characters seen through a vocabulary: the class of each symbol and, for each state, the kinds of
// characters that keep any text alive or even lead back to the state. Subtrees of such kinds need no walk. Computed on
// demand; not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "grammar/dfa.hpp"
#include "grammar/string_trie.hpp"

namespace tinfer::grammar {

class StringClasses {
public:
    /// roams() considers texts of at most this many characters.
    static constexpr std::uint32_t kLongest = 32;

    [[nodiscard]] const Dfa* dfa() const noexcept { return dfa_; }
    /// `shortest` ({states}) is empty if lengths are unbounded. `dfa` and `shortest` must outlive the use.
    void set(const Dfa& dfa, std::span<const std::uint32_t> shortest, const StringTrie& trie);

    [[nodiscard]] std::uint32_t step(std::uint32_t state, std::uint32_t symbol) const noexcept {
        return dfa_->next[state * n_classes_ + of_symbol_[symbol]];
    }
    /// Kinds whose characters all lead back to the state.
    [[nodiscard]] std::uint64_t loops(std::uint32_t state) { return known(state).loops; }
    /// Kinds such that every text of at most kLongest characters of them stays alive.
    [[nodiscard]] std::uint64_t roams(std::uint32_t state) { return known(state).roams; }
    /// The most characters that acceptance can take after such a text.
    [[nodiscard]] std::uint32_t needed(std::uint32_t state) { return known(state).needed; }
    /// Whether all texts below the node (partial characters included) are too short to reach a dead state. False also
    /// for automata that are too large to tell.
    [[nodiscard]] bool stays_alive(std::uint32_t state, const StringTrie::Node& node) {
        if (!knows_to_dead_) find_to_dead();
        const std::uint32_t longest = node.height + ((node.kinds & StringTrie::kUnfinished) != 0 ? 1 : 0);
        return !to_dead_.empty() && longest < to_dead_[state];
    }
    [[nodiscard]] bool takes_all(std::uint32_t state) { return loops(state) == ~StringTrie::kUnfinished; }

    std::uint64_t last_use = 0;

private:
    struct Known {
        std::uint64_t loops, roams;
        std::uint32_t needed;
        bool is_known;
    };
    static constexpr std::size_t kMaxStates = 1024;  // limit of the search for roams()

    [[nodiscard]] Known& known(std::uint32_t state) {
        Known& one = known_[state];
        if (!one.is_known) find(state);
        return one;
    }
    void find(std::uint32_t state);
    void find_to_dead();

    const Dfa* dfa_ = nullptr;
    std::span<const std::uint32_t> shortest_;
    std::size_t n_classes_ = 0;
    std::vector<std::uint32_t> of_symbol_;
    std::vector<std::uint64_t> kinds_;  // {classes}: kinds with a character in the class
    std::vector<Known> known_;
    std::vector<std::uint32_t> reached_, reached_in_;  // reached_in_: {states}: the last search that reached it
    std::uint32_t n_searches_ = 0;
    bool knows_to_dead_ = false;
    std::vector<std::uint32_t> to_dead_;  // {states}: fewest characters to a dead state
};

}  // namespace tinfer::grammar
