// SPDX-License-Identifier: MIT
// Deterministic automata over code points, the values with which terminals are described: what a pattern, a format, a
// list of names or the bounds of a number accept. They can be intersected, united and complemented.
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

    std::vector<std::uint32_t> starts{0};    ///< first code point of each class, ascending; a class may be in pieces
    std::vector<std::uint32_t> next;         ///< {classes, states}
    std::vector<std::uint32_t> labels;       ///< {states}: 0 where a text may not end
    std::array<std::uint16_t, 128> ascii{};  ///< class of the first code points

    [[nodiscard]] std::size_t n_classes() const noexcept { return starts.size(); }
    [[nodiscard]] std::size_t n_states() const noexcept { return labels.size(); }
    [[nodiscard]] std::size_t class_of(std::uint32_t c) const noexcept;
    [[nodiscard]] std::uint32_t step(std::uint32_t state, std::uint32_t c) const noexcept {
        return state == kDead ? kDead : next[state * n_classes() + class_of(c)];
    }
    /// Label of the state in which a text of valid UTF-8 ends, 0 where it is not accepted.
    [[nodiscard]] std::uint32_t match(std::string_view text) const noexcept;
    [[nodiscard]] bool empty() const noexcept { return labels.empty(); }

    void set_classes(std::vector<std::uint32_t> class_starts);
    /// Makes every state dead from which no text is accepted, and drops what cannot be reached. An automaton that
    /// accepts nothing becomes empty().
    void trim();
};

/// Most states of one automaton; more is limit_exceeded.
inline constexpr std::size_t kMaxDfaStates = 20'000;
/// Most states times classes, which an automaton stores for each pair of them; more is limit_exceeded.
inline constexpr std::size_t kMaxDfaEdges = 16'000'000;

/// Runs automata side by side; `label` makes the label of a state from theirs (0 also where one is dead).
[[nodiscard]] Dfa combine(std::span<const Dfa* const> parts,
                          const std::function<std::uint32_t(std::span<const std::uint32_t>)>& label);
[[nodiscard]] Dfa intersect(const Dfa& a, const Dfa& b);
[[nodiscard]] Dfa unite(const Dfa& a, const Dfa& b);
[[nodiscard]] Dfa complement(const Dfa& a);
/// Accepts exactly the given texts; the label of text i is i + 1 where `numbered`, else 1.
[[nodiscard]] Dfa dfa_of_texts(std::span<const std::string_view> texts, bool numbered = false);
/// Texts of min to max code points.
[[nodiscard]] Dfa dfa_of_length(std::uint32_t min, std::uint32_t max);

/// Per state the fewest and most code points to an accepted end; kEndless where there is no most.
struct DfaDistances {
    static constexpr std::uint32_t kEndless = 0xFFFFFFFF;
    std::vector<std::uint32_t> shortest, longest;
};
[[nodiscard]] DfaDistances distances(const Dfa& dfa);

}  // namespace tinfer::grammar
