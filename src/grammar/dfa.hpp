// SPDX-License-Identifier: MIT
// Deterministic finite automata over code points. Terminals are described by them: a pattern, a format, a list of
// names, a number between bounds. They can be intersected, united and complemented.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "grammar/char_set.hpp"

namespace tinfer::grammar {

/// State 0 is the start. Code points with equal transitions everywhere form a class.
struct Dfa {
    static constexpr std::uint32_t kDead = 0xFFFFFFFF;

    std::vector<std::uint32_t> starts{0};    ///< first code point of each class, ascending; classes may be equal
    std::vector<std::uint32_t> next;         ///< {classes, states}
    std::vector<std::uint32_t> labels;       ///< {states}: 0 for states that do not accept
    std::array<std::uint16_t, 128> ascii{};  ///< class of each ASCII character

    [[nodiscard]] std::size_t n_classes() const noexcept { return starts.size(); }
    [[nodiscard]] std::size_t n_states() const noexcept { return labels.size(); }
    [[nodiscard]] std::size_t class_of(std::uint32_t c) const noexcept;
    [[nodiscard]] std::uint32_t step(std::uint32_t state, std::uint32_t c) const noexcept {
        return state == kDead ? kDead : next[state * n_classes() + class_of(c)];
    }
    /// Label of the state in which the text (valid UTF-8) ends, 0 if it is not accepted.
    [[nodiscard]] std::uint32_t match(std::string_view text) const noexcept;
    [[nodiscard]] bool empty() const noexcept { return labels.empty(); }
    [[nodiscard]] std::size_t memory() const noexcept {
        return sizeof(Dfa) + (starts.capacity() + next.capacity() + labels.capacity()) * sizeof(std::uint32_t);
    }

    void set_classes(std::vector<std::uint32_t> class_starts);
    /// Removes states that cannot be reached or cannot reach acceptance. An automaton that accepts nothing becomes
    /// empty().
    void trim();
};

/// Maximum number of states of one automaton; more is limit_exceeded.
inline constexpr std::size_t kMaxDfaStates = 20'000;
/// Maximum size of the transition table, states times classes; more is limit_exceeded.
inline constexpr std::size_t kMaxDfaEdges = 16'000'000;

class SchemaWork;

/// The product automaton; `label` computes the label of a state from those of its parts (0 also for a dead part). Here
/// and below `work` counts the steps, where it is given.
[[nodiscard]] Dfa combine(std::span<const Dfa* const> parts,
                          const std::function<std::uint32_t(std::span<const std::uint32_t>)>& label,
                          SchemaWork* work = nullptr);
[[nodiscard]] Dfa intersect(const Dfa& a, const Dfa& b, SchemaWork* work = nullptr);
[[nodiscard]] Dfa unite(const Dfa& a, const Dfa& b, SchemaWork* work = nullptr);
[[nodiscard]] Dfa complement(const Dfa& a, SchemaWork* work = nullptr);
/// Accepts exactly the given texts; the label of text i is i + 1 if `numbered`, else 1.
[[nodiscard]] Dfa dfa_of_texts(std::span<const std::string_view> texts, bool numbered = false);
/// Texts of min to max code points.
[[nodiscard]] Dfa dfa_of_length(std::uint32_t min, std::uint32_t max);

/// For each state the fewest and most code points to acceptance; kEndless if there is no upper bound.
struct DfaDistances {
    static constexpr std::uint32_t kEndless = 0xFFFFFFFF;
    std::vector<std::uint32_t> shortest, longest;
};
[[nodiscard]] DfaDistances distances(const Dfa& dfa);

}  // namespace tinfer::grammar
