// SPDX-License-Identifier: MIT
// Composes the batch of a round: one token of each generating request, so that none is delayed by more than a round,
// and prompt tokens up to the limit.
#include <algorithm>

#include "serving/scheduler.hpp"

namespace tinfer::serving {

bool Scheduler::build() {
    batch_.clear();
    drafts_.clear();
    n_rows_ = 0;
    if (running_.empty()) return false;
    if (pools_) {
        for (const auto& request : running_)
            if (in_round(*request)) add(*request, request->tokens.size());
        return !parts_.empty();
    }
    if (!make_room_to_go_on()) return false;
    add_next_tokens();

    // After an abandoned round the next ones are smaller.
    const std::size_t limit = static_cast<std::size_t>(options_.max_batch_tokens) >> n_abandoned_;
    std::size_t most = limit > batch_.size() ? limit - batch_.size() : batch_.size() == 0 ? 1 : 0;
    std::size_t wanted = 0;
    for (const auto& request : running_)
        if (in_round(*request) && request->n_left() > 1) wanted += std::min(request->n_left(), most);
    most = std::min(most, wanted);
    (void)sequences_.make_room(batch_.size() + most);
    most = std::min(most, sequences_.n_free() - std::min(sequences_.n_free(), batch_.size()));
    for (const auto& request : running_) {
        if (!in_round(*request) || request->n_left() <= 1 || most == 0 || waits_for_older(*request)) continue;
        const std::size_t n = piece(*request, most);
        if (n == 0) continue;
        add(*request, n);
        most -= n;
    }
    return !parts_.empty();
}

// Adds the next token of each generating request. In a round without prompts the remaining room is for drafted tokens.
void Scheduler::add_next_tokens() {
    std::size_t n_going = 0, n_reading = 0;
    for (const auto& request : running_) {
        if (!in_round(*request)) continue;
        ++(request->n_left() == 1 ? n_going : n_reading);
    }
    reads_prompts_ = n_reading > 0;
    std::size_t n_spare = 0;
    if (!reads_prompts_ && round_suspects_ == 0) {
        const auto n_rows = static_cast<std::size_t>(context_.options().n_outputs);
        n_spare = std::min({n_rows, static_cast<std::size_t>(options_.max_batch_tokens), sequences_.n_free()});
        n_spare -= std::min(n_spare, n_going);
    }
    std::vector<Going> going;
    for (const auto& request : running_)
        if (in_round(*request) && request->n_left() == 1) going.push_back({.request = request.get()});
    add_with_drafts(going, n_spare);
}

// Makes room for one token of each generating request, and for at least one token. Preempts the youngest requests until
// there is room; false if none remains.
bool Scheduler::make_room_to_go_on() {
    while (!running_.empty()) {
        const auto n = static_cast<std::size_t>(std::ranges::count_if(
            running_, [&](const auto& request) { return in_round(*request) && request->n_left() == 1; }));
        if (sequences_.make_room(std::max<std::size_t>(n, 1))) return true;
        push_back_youngest();
    }
    return false;
}

// The number of prompt tokens that the round takes from a request. Limits are the output rows for scores and the next
// position at which a copy is to be kept.
std::size_t Scheduler::piece(const Request& request, std::size_t most) const noexcept {
    std::size_t n = std::min(request.n_left(), most);
    if (request.next_keep > request.n_done) n = std::min(n, request.next_keep - request.n_done);
    if (request.checkpoint > request.n_done) n = std::min(n, request.checkpoint - request.n_done);
    if (!request.wants_scores()) return n;
    const auto n_rows = static_cast<std::size_t>(context_.options().n_outputs);
    // The other requests may need a row each.
    const std::size_t others = running_.size() - 1;
    std::size_t n_free = n_rows - std::min(n_rows, n_rows_ + others);
    const std::size_t n_unscored = request.n_scored > request.n_done + 1 ? request.n_scored - 1 - request.n_done : 0;
    return std::min(n, n_unscored + n_free);
}

void Scheduler::add(Request& request, std::size_t n_tokens) {
    parts_.push_back({&request, n_tokens, n_rows_});
    for (std::size_t i = request.n_done; i < request.n_done + n_tokens; ++i) {
        const bool scores = request.wants_scores() && i + 1 < request.n_prompt && i + 1 >= request.n_scored;
        const bool output = !request.pools() && (scores || i + 1 == request.tokens.size());
        if (output) ++n_rows_;
        batch_.add(request.tokens[i], *request.seq, output);
    }
}

// True if an older request is reading the same tokens now. They are computed once and shared in later rounds.
bool Scheduler::waits_for_older(Request& request) {
    if (!options_.share_prefixes || !request.asked.share_prefix || !request.may_wait || request.n_shareable() == 0)
        return false;
    const auto own = std::span(request.tokens).first(request.n_shareable());
    for (const auto& older : running_) {
        if (older.get() == &request) return false;
        if (!in_round(*older) || !older->asked.share_prefix || older->adapters != request.adapters ||
            older->n_done + older->n_left() <= request.n_done)
            continue;
        const std::size_t n = std::min(own.size(), older->tokens.size());
        const auto same = static_cast<std::size_t>(
            std::mismatch(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(n), older->tokens.begin()).first -
            own.begin());
        if (same < request.n_done + PrefixTree::kPage) continue;
        if (older->n_done < same) {
            // If only whole sequences can be shared, the older one makes a copy when it reaches that token.
            if (!sequences_.shares_parts() && older->checkpoint <= older->n_done) older->checkpoint = same;
            return true;
        }
        std::size_t n_done = 0;
        try {
            n_done = sequences_.share_more(*request.seq, request.tokens, own.size());
        } catch (...) {
            request.n_done = sequences_.length(*request.seq);
            throw;
        }
        request.may_wait = n_done > request.n_done;
        if (request.n_most_done == request.n_cached) {
            inbox_.update([&](EngineStats& stats) { stats.cached_tokens += n_done - request.n_done; });
            request.n_cached += n_done - request.n_done;
            request.n_most_done = request.n_cached;
        }
        request.n_done = n_done;
        plan_next_keep(request);
    }
    return false;
}

}  // namespace tinfer::serving
