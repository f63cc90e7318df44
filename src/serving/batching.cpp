// SPDX-License-Identifier: MIT
// Composes the batch of a round, as schedule() says, within the room that is made for it.
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
    const auto n_rows = static_cast<std::size_t>(context_.options().n_outputs);
    const auto n_batch = static_cast<std::size_t>(options_.max_batch_tokens);
    // After an abandoned round the next ones are smaller.
    RoundLimits limits{
        .n_batch = n_batch >> n_abandoned_, .n_drafted = round_suspects_ == 0 ? n_batch : 0, .n_rows = n_rows};
    std::vector<Request*> requests;
    std::vector<RoundNeed> needs;
    for (const auto& request : running_) {
        if (!in_round(*request)) continue;
        requests.push_back(request.get());
        needs.push_back(need_of(*request));
    }
    (void)sequences_.make_room(wanted_tokens(needs, limits.n_batch));
    for (std::size_t i = 0; i < needs.size(); ++i) {
        if (needs[i].goes_on) continue;
        needs[i].waits = waits_for_older(*requests[i]);
        needs[i].n_done = requests[i]->n_done;  // what an older one has read may be shared now
        needs[i].other_pause = requests[i]->next_keep;
    }
    for (std::size_t i = 0; i < needs.size(); ++i) needs[i].pause = requests[i]->checkpoint;
    limits.n_free = sequences_.n_free();
    const Round round = schedule(needs, limits);
    reads_prompts_ = round.reads_prompts;
    std::vector<Going> going;
    for (std::size_t i = 0; i < needs.size(); ++i)
        if (needs[i].goes_on) going.push_back({.request = requests[i]});
    add_with_drafts(going, round.n_spare);
    for (std::size_t i = 0; i < needs.size(); ++i)
        if (!needs[i].goes_on && round.n_tokens[i] > 0) add(*requests[i], round.n_tokens[i]);
    return !parts_.empty();
}

RoundNeed Scheduler::need_of(const Request& request) const noexcept {
    return {.n_done = request.n_done,
            .n_tokens = request.tokens.size(),
            .n_prompt = request.n_prompt,
            .n_scored = request.wants_scores() ? request.n_scored : request.n_prompt,
            .goes_on = request.n_left() == 1};
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

void Scheduler::add(Request& request, std::size_t n_tokens) {
    parts_.push_back({&request, n_tokens, n_rows_});
    const RoundNeed need = need_of(request);
    for (std::size_t i = request.n_done; i < request.n_done + n_tokens; ++i) {
        const bool output = !request.pools() && need.needs_row(i + 1);
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
