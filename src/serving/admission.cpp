// SPDX-License-Identifier: MIT
// Admission of requests: oldest first, as long as their prompts and a reserve for their answers fit beside what the
// running ones may need. If the cache still runs out, the youngest request is preempted. One that is paused waits for
// its reader, and those that wait for a place do not wait with it.
#include <algorithm>

#include "base/error.hpp"
#include "runtime/adapters.hpp"
#include "serving/scheduler.hpp"

namespace tinfer::serving {

namespace {

/// Answer tokens for which there must be room when a request starts.
constexpr std::int64_t kReservedAnswer = 256;

/// How long a paused request keeps its sequence while others wait.
constexpr std::chrono::seconds kPausedPlace{1};

// Moves a request to another list, which is sorted by age: lower ids are older.
void move_by_age(std::list<std::unique_ptr<Request>>& from, std::list<std::unique_ptr<Request>>::iterator which,
                 std::list<std::unique_ptr<Request>>& to) noexcept {
    auto place = to.end();
    while (place != to.begin() && (*std::prev(place))->id > (*which)->id) --place;
    to.splice(place, from, which);
}

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
    const auto next = [&] {
        return std::ranges::find_if(waiting_, [](const Owned& request) { return !request->paused_since; });
    };
    for (auto which = next(); which != waiting_.end(); which = next()) {
        if (running_.size() >= n_may_run_ && !push_back_paused()) return;
        Request& request = **which;
        try {
            watch(request);
            const auto taken = take_sequence(request);
            if (taken) {
                // Recurrent states and windows cannot be truncated to the token where two prompts diverge. A checkpoint
                // at that token lets later requests start there.
                request.checkpoint = taken->n_alike >= taken->n_shared + PrefixTree::kPage ? taken->n_alike : 0;
                use_adapters(request, taken->seq);
                start(which, taken->seq, restore(request, taken->seq, taken->n_shared));
                continue;
            }
            if (push_back_paused()) continue;
            if (!running_.empty()) return;
            fail_request(request, Error(ErrorCode::no_room, "engine: the cache has no room for the request alone"));
        } catch (...) {
            fail_request(request, as_error(std::current_exception()));
        }
        sweep();
    }
}

// Admits as many embedding requests as fit one decode. Those of a decode that threw come first, without others.
void Scheduler::admit_texts() {
    if (!running_.empty()) return;
    std::size_t n_tokens = 0;
    const std::size_t most = std::min(n_longest_, static_cast<std::size_t>(options_.max_batch_tokens));
    while (!waiting_.empty() && running_.size() < n_running_) {
        Request& request = *waiting_.front();
        const std::size_t n = request.tokens.size();
        if (n_tokens > 0 && n_tokens + n > most) return;
        try {
            watch(request);
        } catch (...) {
            fail_request(request, as_error(std::current_exception()));
            sweep();
            continue;
        }
        n_tokens += n;
        const SeqId seq{static_cast<std::int32_t>(running_.size())};
        use_adapters(request, seq);
        start(waiting_.begin(), seq, 0);
    }
}

// Attaches the observers of a request; they see the calls that it takes part in.
void Scheduler::watch(Request& request) {
    if (request.trace != nullptr && !request.attachment.attached()) request.attachment = context_.attach(request.trace);
}

std::optional<Sequences::Taken> Scheduler::take_sequence(Request& request) {
    std::size_t n_promised = 0;
    for (const auto& other : running_) n_promised += other->n_left() + reserve(*other);
    return sequences_.take(request.tokens, request.adapters, request.n_shareable(),
                           options_.share_prefixes && request.asked.share_prefix,
                           request.tokens.size() + reserve(request), n_promised);
}

void Scheduler::use_adapters(const Request& request, SeqId seq) noexcept {
    for (std::size_t i = 0; i < options_.adapters.size(); ++i) {
        const auto use = std::ranges::find(request.adapters, i, &AdapterScale::adapter);
        runtime::set_scale(context_, options_.adapters[i].adapter, seq,
                           use == request.adapters.end() ? 0.0f : use->scale);
    }
}

bool Scheduler::uses_store(const Request& request) const noexcept {
    return store_ && options_.share_prefixes && request.asked.share_prefix;
}

// Restores a longer prefix from the store, if it has one. Returns the number of tokens in the sequence.
std::size_t Scheduler::restore(Request& request, SeqId seq, std::size_t n_shared) noexcept {
    if (!uses_store(request) || request.n_shareable() == 0) return n_shared;
    try {
        const std::span<const Token> tokens(request.tokens);
        if (store_->match(context_, tokens, seq) < n_shared + PrefixTree::kPage) return n_shared;
        std::size_t n_needed = request.tokens.size() + reserve(request);
        for (const auto& other : running_) n_needed += other->n_left() + reserve(*other);
        if (!sequences_.make_room(n_needed)) return n_shared;
        sequences_.replace(seq, tokens, [&] { return store_->restore(context_, seq, tokens); });
    } catch (...) {  // if the store fails, the tokens are computed
        inbox_.update([](EngineStats& stats) { ++stats.store_errors; });
    }
    return sequences_.length(seq);
}

// Writes the request's sequence to the store.
void Scheduler::keep_in_store(const Request& request) noexcept {
    if (!uses_store(request) || sequences_.length(*request.seq) != request.n_done) return;
    try {
        store_->keep(context_, *request.seq, std::span(request.tokens).first(request.n_done));
    } catch (...) {
        inbox_.update([](EngineStats& stats) { ++stats.store_errors; });
    }
}

// Asks the store after how many tokens of the prompt the sequence should be stored next.
void Scheduler::plan_next_keep(Request& request) noexcept {
    request.next_keep = 0;
    if (uses_store(request) && request.n_done < request.n_prompt)
        request.next_keep = request.n_done + store_->piece(context_, request.n_done, request.n_prompt);
}

// Starts a waiting request.
void Scheduler::start(List::iterator which, SeqId seq, std::size_t n_shared) noexcept {
    Request& request = **which;
    request.seq = seq;
    request.n_done = n_shared;
    if (!request.started) {
        request.started = Clock::now();
        request.n_cached = request.n_most_done = n_shared;
        inbox_.left_queue();
        inbox_.update([&](EngineStats& stats) { stats.cached_tokens += n_shared; });
    }
    plan_next_keep(request);
    move_by_age(waiting_, which, running_);
}

void Scheduler::leave_sequence(Request& request, bool keep) noexcept {
    release(request);
    if (!request.seq) return;
    if (keep) keep_in_store(request);
    if (pools_) (void)context_.seq_rm(*request.seq);  // removing a whole sequence always succeeds
    else sequences_.release(*request.seq, keep && options_.share_prefixes && request.asked.share_prefix);
    request.seq.reset();
    request.n_done = 0;
}

// Preempts the youngest of the requests that have been paused for long; false if there is none.
bool Scheduler::push_back_paused() noexcept {
    const auto paused_until = Clock::now() - kPausedPlace;
    for (auto which = running_.end(); which != running_.begin();) {
        const Request& request = **--which;
        if (!request.paused_since || request.suspects != 0 || *request.paused_since > paused_until) continue;
        push_back(which);
        return true;
    }
    return false;
}

void Scheduler::push_back_youngest() noexcept { push_back(std::prev(running_.end())); }

// Preempts a request: it waits again, and continues later with the tokens sampled so far.
void Scheduler::push_back(List::iterator which) noexcept {
    Request& request = **which;
    leave_sequence(request, true);
    ++request.n_pushed_back;
    request.suspects = 0;
    inbox_.update([](EngineStats& stats) { ++stats.pushed_back; });
    move_by_age(running_, which, waiting_);
}

}  // namespace tinfer::serving
