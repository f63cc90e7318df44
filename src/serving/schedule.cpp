// SPDX-License-Identifier: MIT
#include "serving/schedule.hpp"

#include <algorithm>

namespace tinfer::serving {

namespace {

std::size_t minus(std::size_t a, std::size_t b) noexcept { return a - std::min(a, b); }

std::size_t count_going(std::span<const RoundNeed> needs) noexcept {
    return static_cast<std::size_t>(std::ranges::count_if(needs, &RoundNeed::goes_on));
}

/// Prompt tokens that the batch takes beside the tokens of those that go on.
std::size_t most_of_prompts(std::size_t n_batch, std::size_t n_going) noexcept {
    if (n_batch > n_going) return n_batch - n_going;
    return n_going == 0 ? 1 : 0;
}

/// The number of prompt tokens that the round takes from a request; `n_free_rows`: output rows for them.
std::size_t piece(const RoundNeed& need, std::size_t most, std::size_t n_free_rows) noexcept {
    std::size_t n = std::min(need.n_left(), most);
    for (const std::size_t pause : {need.pause, need.other_pause})
        if (pause > need.n_done) n = std::min(n, pause - need.n_done);
    if (!need.wants_scores()) return n;
    const std::size_t n_unscored = need.n_scored > need.n_done + 1 ? need.n_scored - 1 - need.n_done : 0;
    return std::min(n, n_unscored + n_free_rows);
}

}  // namespace

std::size_t wanted_tokens(std::span<const RoundNeed> needs, std::size_t n_batch) noexcept {
    const std::size_t n_going = count_going(needs), most = most_of_prompts(n_batch, n_going);
    std::size_t wanted = 0;
    for (const RoundNeed& need : needs)
        if (!need.goes_on) wanted += std::min(need.n_left(), most);
    return n_going + std::min(most, wanted);
}

Round schedule(std::span<const RoundNeed> needs, const RoundLimits& limits) {
    const std::size_t n_going = count_going(needs);
    Round round{.n_tokens = std::vector<std::size_t>(needs.size()), .reads_prompts = n_going < needs.size()};
    std::size_t n_rows = n_going, n_later = needs.size() - n_going;  // later: prompts that may need a row at their end
    std::size_t most = std::min(most_of_prompts(limits.n_batch, n_going), minus(limits.n_free, n_going));
    for (std::size_t i = 0; i < needs.size(); ++i) {
        const RoundNeed& need = needs[i];
        if (need.goes_on) {
            round.n_tokens[i] = 1;
            continue;
        }
        --n_later;
        if (need.waits) continue;
        const std::size_t n = piece(need, most, minus(limits.n_rows, n_rows + n_later));
        round.n_tokens[i] = n;
        most -= n;
        for (std::size_t end = need.n_done + 1; end <= need.n_done + n; ++end) n_rows += need.needs_row(end) ? 1 : 0;
    }
    if (!round.reads_prompts)
        round.n_spare = minus(std::min({limits.n_rows, limits.n_drafted, limits.n_free}), n_going);
    return round;
}

}  // namespace tinfer::serving
