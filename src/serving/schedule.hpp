// SPDX-License-Identifier: MIT
// The next round of a batch, as a function of what its requests need and of what there is room for. It knows neither a
// model nor a cache; the scheduler makes it true (batching.cpp).
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace tinfer::serving {

/// What a request of the round needs, in numbers of tokens.
struct RoundNeed {
    std::size_t n_done = 0;    ///< computed
    std::size_t n_tokens = 0;  ///< of prompt and answer so far; more than n_done
    std::size_t n_prompt = 0;
    /// Prompt tokens from this one on are still to be scored, each by an output row; n_prompt: none is.
    std::size_t n_scored = std::numeric_limits<std::size_t>::max();
    /// A prompt is read up to this number of tokens, where it is larger than n_done: there a copy is to be kept.
    std::size_t pause = 0, other_pause = 0;
    bool goes_on = false;  ///< one token is left: it generates, or ends its prompt
    bool waits = false;    ///< for an older request that reads the same tokens

    [[nodiscard]] std::size_t n_left() const noexcept { return n_tokens - n_done; }
    [[nodiscard]] bool wants_scores() const noexcept { return n_scored < n_prompt; }
    /// Whether the token before position `end` needs an output row: one that is scored, or the last one.
    [[nodiscard]] bool needs_row(std::size_t end) const noexcept {
        return end == n_tokens || (end < n_prompt && end >= n_scored);
    }
};

struct RoundLimits {
    std::size_t n_batch = 0;    ///< tokens
    std::size_t n_drafted = 0;  ///< tokens of a round with drafts; 0: nothing is drafted
    std::size_t n_rows = 0;     ///< output rows, at least one for each request
    std::size_t n_free = 0;     ///< tokens that the cache takes
};

struct Round {
    std::vector<std::size_t> n_tokens;  ///< of each request
    std::size_t n_spare = 0;            ///< tokens that may be drafted, for all requests that go on
    bool reads_prompts = false;
};

/// One token of each request that goes on, so that none is delayed by more than a round; then prompts, oldest first, up
/// to the limits. At least one token, if a request is left that does not wait and the cache takes one. `needs` are
/// sorted by age. Where no prompt is read, what is left is for drafts.
[[nodiscard]] Round schedule(std::span<const RoundNeed> needs, const RoundLimits& limits);

/// Tokens for which the cache should have room before: those of the largest round that the batch allows.
[[nodiscard]] std::size_t wanted_tokens(std::span<const RoundNeed> needs, std::size_t n_batch) noexcept;

}  // namespace tinfer::serving
