// SPDX-License-Identifier: MIT
#include "serving/scheduler.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/access.hpp"
#include "base/error.hpp"
#include "runtime/context.hpp"

namespace tinfer::serving {

namespace {

/// So many consecutive rounds may be abandoned for requests that end. Each takes half as many prompt tokens as the one
/// before, and the next is always completed: cancellations cannot starve other requests.
constexpr std::size_t kMaxAbandoned = 6;

constexpr std::size_t kMaxMaskThreads = 4;

/// How long a round without requests waits for masks, before it looks for other work again.
constexpr std::chrono::milliseconds kMaskWait{5};
/// The same where all requests are paused: time limits are looked at so often.
constexpr std::chrono::milliseconds kPauseWait{10};

/// Opens the trace of a request for the duration of its round.
class OpenTrace {
public:
    explicit OpenTrace(const Request* request) : trace_(request == nullptr ? nullptr : request->trace) {
        if (trace_ != nullptr) trace_->open(true);
    }
    OpenTrace(const OpenTrace&) = delete;
    OpenTrace& operator=(const OpenTrace&) = delete;
    ~OpenTrace() {
        if (trace_ != nullptr) trace_->open(false);
    }

private:
    std::shared_ptr<RequestTrace> trace_;
};

}  // namespace

Error as_error(const std::exception_ptr& thrown) noexcept {
    try {
        std::rethrow_exception(thrown);
    } catch (const Error& error) {
        return error;
    } catch (const std::bad_alloc&) {
        return Error(ErrorCode::out_of_memory, "engine: an allocation failed");
    } catch (const std::exception& error) {
        return Error(ErrorCode::compute_failed, error.what());
    } catch (...) {
        return Error(ErrorCode::compute_failed, "engine: something was thrown that is no std::exception");
    }
}

Scheduler::Scheduler(Context& context, const EngineOptions& options, std::size_t n_running, Inbox& inbox)
    : context_(context), options_(options), n_running_(n_running), n_may_run_(n_running),
      pools_(context.options().pooling != Pooling::none), inbox_(inbox),
      routes_(options.routed_experts ? std::make_shared<ExpertRoutes>(context) : nullptr),
      sequences_(context, static_cast<std::size_t>(options.n_kept), routes_.get()), n_longest_(sequences_.n_longest()),
      turn_(options.turns), mask_makers_(std::min(n_running, kMaxMaskThreads)) {
    // A text is embedded in a single decode.
    if (pools_) n_longest_ = std::min(n_longest_, static_cast<std::size_t>(context.options().n_batch));
    if (options.store && !pools_) store_.emplace(context.model(), *options.store);
    if (options.draft && !pools_)
        for (int i = 0; i < options.draft->n_at_once; ++i)
            drafters_.push_back(model_drafter(context.model(), options.draft->model, options.draft->options));
    for (const auto& observer : options.observers) attachments_.push_back(context.attach(observer));
    if (routes_ != nullptr) attachments_.push_back(context.attach(routes_));
    if (options.count_bytes) {
        counts_ = std::make_shared<AccessCounts>();
        attachments_.push_back(context.attach(counts_));
    }
    inbox_.update([&](EngineStats& stats) { stats.cache_slots = sequences_.n_cache_slots(); });
}

void Scheduler::run() noexcept {
    while (read_inbox()) one_round();
    stopping_ = true;
    for (const auto& list : {&running_, &waiting_})
        for (const auto& request : *list) interrupt(*request, false);
    sweep();
    turn_.leave();
    attachments_.clear();
}

std::uint64_t Scheduler::route_bytes() const noexcept {
    if (routes_ == nullptr) return 0;
    const std::size_t n_slots = sequences_.n_cache_slots();
    return routes_->bytes(n_slots > 0 ? n_slots : n_longest_ * static_cast<std::size_t>(context_.options().n_seq_max));
}

// Takes requests and cancellations from the inbox and ends requests past their deadline. False if the engine has to
// stop.
bool Scheduler::read_inbox() {
    const bool is_idle = running_.empty() && waiting_.empty();
    if (is_idle) turn_.leave();
    auto news = inbox_.take(is_idle);
    note(news);
    if (news.stop) return false;
    const auto now = Clock::now();
    for (const auto& list : {&running_, &waiting_})
        for (const auto& request : *list) {
            if (request->is_cancelled) interrupt(*request, false);
            else if (request->deadline <= now) interrupt(*request, true);
        }
    sweep();
    return true;
}

// Takes requests in, and notes which are paused and resumed.
void Scheduler::note(Inbox::News& news) noexcept {
    waiting_.splice(waiting_.end(), news.requests);
    if (!news.has_marks) return;
    for (const auto& list : {&running_, &waiting_})
        for (const auto& request : *list) {
            if (!request->is_paused) request->paused_since.reset();
            else if (!request->paused_since) request->paused_since = Clock::now();
        }
}

void Scheduler::one_round() {
    parts_.clear();
    draw_held();
    pools_ ? admit_texts() : admit();
    choose_round();
    if (std::ranges::any_of(running_, [&](const Owned& request) { return in_round(*request); })) turn_.begin();
    try {
        compute_round();
    } catch (...) {
        round_threw(as_error(std::current_exception()));
    }
    sweep();
    publish();
    parts_.empty() ? turn_.leave() : turn_.end();
    if (parts_.empty()) wait_for_work();
}

// Called after an empty round. Where all requests sit out, waits a little for masks or for news.
void Scheduler::wait_for_work() noexcept {
    if (!std::ranges::all_of(running_, [](const Owned& request) { return request->sits_out(); })) return;
    if (std::ranges::any_of(running_, [](const Owned& request) { return request->is_held; }))
        mask_makers_.wait(kMaskWait);
    else if (!running_.empty() || !waiting_.empty()) inbox_.wait(kPauseWait);
}

void Scheduler::compute_round() {
    const auto begin = Clock::now();
    bool has_parts = false;
    try {
        has_parts = build();
    } catch (...) {
        parts_.clear();  // those that were added are as much under suspicion as those that were to follow
        throw;
    }
    if (!has_parts) return round_went_well();
    const OpenTrace trace(round_alone_);
    const Outcome outcome = decode();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    inbox_.update([&](EngineStats& stats) {
        stats.busy_s += seconds;
        if (counts_ != nullptr) stats.bytes = counts_->counts();
        ++(outcome == Outcome::ok ? stats.rounds : stats.abandoned_rounds);
        if (outcome != Outcome::ok) return;
        stats.batch_tokens += batch_.size();
        ++stats.batch_sizes[std::min<std::size_t>(std::bit_width(batch_.size()) - 1, stats.batch_sizes.size() - 1)];
    });
    if (outcome == Outcome::ok) {
        n_abandoned_ = 0;
        round_went_well();
        note_drafts(seconds);
        take_in();
    } else if (outcome == Outcome::abandoned) {
        ++n_abandoned_;
    } else {
        make_room_for_states();
    }
}

// Called when recurrent states or window pages, which are not counted in tokens, ran out: drops kept sequences or else
// preempts the youngest request.
void Scheduler::make_room_for_states() {
    if (sequences_.n_kept() > 0) {
        (void)sequences_.make_room(std::numeric_limits<std::size_t>::max());
    } else if (running_.size() > 1) {
        push_back_youngest();
        n_may_run_ = running_.size();  // until a request ends
    } else {
        fail_request(*running_.back(), Error(ErrorCode::no_room, "engine: the cache has no room for the request"));
    }
}

Scheduler::Outcome Scheduler::decode() {
    if (drafts_.empty()) context_.begin(batch_);
    else detail::impl_of(context_).open(batch_, runtime::Purpose::verify);
    for (;;) {
        switch (step()) {
            case StepStatus::ok: return Outcome::ok;
            case StepStatus::no_room: return Outcome::no_room;
            case StepStatus::cancelled: return Outcome::abandoned;
            case StepStatus::pending: break;
        }
        if (n_abandoned_ < kMaxAbandoned && must_abandon()) {
            context_.abandon();
            return Outcome::abandoned;
        }
    }
}

StepStatus Scheduler::step() {
    if (drafts_.empty()) return context_.step(options_.slice);
    const auto status = detail::impl_of(context_).advance(Clock::now() + options_.slice);
    return status == StepStatus::ok ? commit_verified() : status;
}

// Between two slices: does a request of this round, or the engine, have to end?
bool Scheduler::must_abandon() {
    bool ends = false;
    if (inbox_.is_urgent()) {
        auto news = inbox_.take(false);
        note(news);
        ends = news.stop || std::ranges::any_of(running_, [](const Owned& r) { return r->is_cancelled.load(); });
    }
    const auto now = Clock::now();
    for (const auto& request : running_) ends = ends || request->deadline <= now;
    return ends;
}

void Scheduler::take_in() {
    for (RoundPart& part : parts_) {
        try {
            part.was_drawn ? settle(part, true) : advance(part);
        } catch (...) {
            fail_request(*part.request, as_error(std::current_exception()));
        }
    }
}

// Removes the requests that have ended.
void Scheduler::sweep() noexcept {
    for (auto* list : {&running_, &waiting_})
        std::erase_if(*list, [](const Owned& request) { return request->is_over; });
}

}  // namespace tinfer::serving
