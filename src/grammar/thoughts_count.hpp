// SPDX-License-Identifier: MIT
// When the thoughts of an answer have to be closed, and by which mark: one rule for a chat, which writes the mark
// itself, and for an engine, whose constraint allows nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "grammar/constraint.hpp"
#include "tinfer/generation.hpp"

namespace tinfer::grammar {

/// Tokens of an answer so far.
struct ThoughtsCount {
    std::int64_t n_thoughts = 0, n_tokens = 0;

    /// A token was added; `was_thinking`: the text before it ended inside thoughts, and it is no part of a mark that
    /// was forced.
    void add(bool was_thinking) noexcept {
        ++n_tokens;
        n_thoughts += was_thinking ? 1 : 0;
    }
    [[nodiscard]] bool reaches(const ThoughtsLimit& limit) const noexcept {
        return n_thoughts >= limit.max_tokens || n_tokens >= limit.until;
    }
};

/// Which of the limit's marks closes thoughts here: the first that the constraint allows. nullopt: none may follow.
[[nodiscard]] inline std::optional<std::size_t> closing_mark(const ThoughtsLimit& limit,
                                                             const TokenConstraint* constraint) {
    for (std::size_t i = 0; i < limit.closings.size(); ++i)
        if (may_follow(constraint, limit.closings[i])) return i;
    return std::nullopt;
}

}  // namespace tinfer::grammar
