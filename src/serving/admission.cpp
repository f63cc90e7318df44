// SPDX-License-Identifier: MIT
// Which requests run: oldest first, as long as their prompts and a first part of their answers fit beside what was
// promised to the others. Where that turns out too little, the youngest goes back.
#include <algorithm>

#include "base/error.hpp"
#include "serving/scheduler.hpp"

namespace tinfer::serving {

namespace {

/// Tokens of an answer for which there must be room when a request begins.
constexpr std::int64_t kReservedAnswer = 256;

bool is_older(const std::unique_ptr<Request>& a, const std::unique_ptr<Request>& b) noexcept { return a->id < b->id; }

}  // namespace

std::size_t Scheduler::reserve(const Request& request) const noexcept {
    const std::size_t n_drawn = request.tokens.size() - request.n_prompt;
    const std::int64_t n_predict =
        request.kind == EngineRequest::Kind::generate ? request.asked.generation.n_predict : 0;
    std::int64_t n = kReservedAnswer;
    if (n_predict >= 0) n = std::clamp<std::int64_t>(n_predict - static_cast<std::int64_t>(n_drawn), 0, n);
    return std::min(static_cast<std::size_t>(n), n_longest_ - std::min(n_longest_, request.tokens.size()));
}

void Scheduler::admit() {
    while (!waiting_.empty() && running_.size() < n_running_) {
        Request& request = *waiting_.front();
        std::size_t n_promised = 0;
        for (const auto& other : running_) n_promised += other->n_left() + reserve(*other);
        const bool share = options_.share_prefixes && request.asked.share_prefix;
        const auto taken = sequences_.take(request.tokens, request.n_shareable(), share,
                                           request.tokens.size() + reserve(request), n_promised);
        if (!taken) {
            if (!running_.empty()) return;
            fail_request(request, Error(ErrorCode::no_room, "engine: the cache has no room for the request alone"));
            sweep();
            continue;
        }
        Owned owned = std::move(waiting_.front());
        waiting_.erase(waiting_.begin());
        start(std::move(owned), taken->seq, taken->n_shared);
    }
}

// Texts whose vectors one call can give. Those of a call that was given up go first, alone.
void Scheduler::admit_texts() {
    if (!running_.empty()) return;
    std::size_t n_tokens = 0;
    const std::size_t most = std::min(n_longest_, static_cast<std::size_t>(options_.max_batch_tokens));
    while (!waiting_.empty() && running_.size() < n_running_) {
        const std::size_t n = waiting_.front()->tokens.size();
        if (n_tokens > 0 && n_tokens + n > most) return;
        n_tokens += n;
        Owned owned = std::move(waiting_.front());
        waiting_.erase(waiting_.begin());
        const SeqId seq{static_cast<std::int32_t>(running_.size())};
        start(std::move(owned), seq, 0);
    }
}

void Scheduler::start(Owned request, SeqId seq, std::size_t n_shared) {
    request->seq = seq;
    request->n_done = n_shared;
    if (!request->started) {
        request->started = Clock::now();
        request->n_cached = request->n_most_done = n_shared;
        inbox_.left_queue();
        inbox_.update([&](EngineStats& stats) { stats.cached_tokens += n_shared; });
    }
    running_.insert(std::ranges::upper_bound(running_, request, is_older), std::move(request));
}

void Scheduler::leave_sequence(Request& request, bool keep) noexcept {
    if (!request.seq) return;
    if (pools_) (void)context_.seq_rm(*request.seq);  // a whole sequence can always go
    else sequences_.release(*request.seq, keep && options_.share_prefixes && request.asked.share_prefix);
    request.seq.reset();
    request.n_done = 0;
}

// It waits among those that never ran, by age, and goes on later with all that it has drawn.
void Scheduler::push_back_youngest() {
    Owned request = std::move(running_.back());
    running_.pop_back();
    leave_sequence(*request, true);
    ++request->n_pushed_back;
    inbox_.update([](EngineStats& stats) { ++stats.pushed_back; });
    waiting_.insert(std::ranges::upper_bound(waiting_, request, is_older), std::move(request));
}

}  // namespace tinfer::serving
