// SPDX-License-Identifier: MIT
#include "runtime/runner.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

namespace tinfer::runtime {

namespace {

constexpr std::size_t kFewTokens = 16;  // of a run whose team may be made smaller
// So long the leader counts its sleeps in longer runs before it goes on alone: one bad moment should not leave the rest
// of a long prompt to one thread.
constexpr auto kLongRunCount = std::chrono::milliseconds(50);

constexpr double kShared = 0.3;         // share of the time without a processor, from which on other programs have it
constexpr double kWindow = 0.02;        // seconds over which that is judged
constexpr double kSharedSeconds = 0.6;  // until it is judged again: threads that sleep are often without a processor

EventStatus event_status(RunStatus status) noexcept {
    return status == RunStatus::ok          ? EventStatus::ok
           : status == RunStatus::cancelled ? EventStatus::cancelled
                                            : EventStatus::failed;
}

}  // namespace

Runner::Runner(int max_threads, std::uint32_t max_units, std::shared_ptr<TraceSession> session)
    : session_(std::move(session)), executor_(max_threads, max_units), team_limit(executor_.n_processors()) {}

void Runner::start(const BoundPlan& bound, RunDetails run, Kind kind, const CancelFn* cancel) {
    run.bound = {&bound.plan, bound.kernels, bound.calls, bound.id};
    run.n_threads = std::min(run.n_threads, team_limit);
    // Only runs of few tokens have so many barriers that a smaller team may be faster. An observer that wants each
    // thread's times sees the team that was asked for.
    const std::size_t n_tokens = run.tokens.size();
    const bool is_short = n_tokens > 0 && n_tokens <= kFewTokens;
    team_size_ = nullptr;
    if (is_short && run.n_threads > 1 && !session_->may_want_threads()) {
        team_size_ = &team_sizes_[static_cast<std::size_t>(std::bit_width(n_tokens - 1))];
        run.n_threads = team_size_->choose(run.n_threads);
    }
    run_ = {};
    has_read_ = false;
    StepObserver* observer = nullptr;
    if (is_watched()) {
        session_->begin_run(run);
        is_seen_ = true;
        observer = session_.get();
    }
    if (observer != nullptr && kind == Kind::whole) {
        deferring_.watch(observer);
        observer = &deferring_;
    }
    // The time that immediate callbacks take would look like that of other programs.
    is_timed_ = (team_size_ != nullptr || run.n_threads > 1) && !(observer != nullptr && observer->immediate());
    const bool shares = shares_processors_ && run.n_threads > 1;
    executor_.start(bound,
                    {.n_threads = run.n_threads,
                     .shares_processors = shares,
                     .shortest_count = is_short ? Executor::Clock::duration{} : kLongRunCount,
                     .team = shares && team == run_team ? run_new_team : team},
                    cancel, observer);
}

RunStatus Runner::resume(Executor::Clock::time_point deadline) {
    const RunStatus status = is_timed_ ? timed_slice(deadline) : executor_.resume(deadline);
    if (status == RunStatus::paused) return status;
    if (team_size_ != nullptr && is_timed_ && !has_read_ && status == RunStatus::ok)
        team_size_->note(run_.wall, run_.on_processor);
    const std::exception_ptr deferred = deferring_.take_error();
    end(deferred ? RunStatus::failed : status);
    if (deferred) std::rethrow_exception(deferred);
    return status;
}

RunStatus Runner::timed_slice(Executor::Clock::time_point deadline) {
    const ThreadUse before = thread_use();
    const auto begin = Executor::Clock::now();
    const RunStatus status = executor_.resume(deadline);
    const double wall = std::chrono::duration<double>(Executor::Clock::now() - begin).count();
    const ThreadUse after = thread_use();
    const Time slice{.wall = wall, .on_processor = after.seconds - before.seconds};
    run_ += slice;
    if (after.n_pages_read != before.n_pages_read || executor_.has_waited()) has_read_ = true;
    else look_for_others(slice);
    return status;
}

// A thread that spins at barriers is on its processor all the time, if nobody else is. Where others are, threads sleep
// sooner, and are made for each run: those of OpenMP would spin for milliseconds after it.
void Runner::look_for_others(const Time& slice) noexcept {
    if (shares_processors_) {
        shared_for_ += slice.wall;
        if (shared_for_ < kSharedSeconds) return;
        shares_processors_ = was_missed_ = false;
        window_ = {};
        return;
    }
    window_ += slice;
    if (window_.wall < kWindow) return;
    const bool is_missed = window_.wall - window_.on_processor > kShared * window_.wall;
    window_ = {};
    shares_processors_ = std::exchange(was_missed_, is_missed) && is_missed;  // a single window may be bad luck
    shared_for_ = 0;
}

void Runner::end(RunStatus status) {
    if (!std::exchange(is_seen_, false)) return;
    std::vector<ReadEvent> reads;
    for (const Pager::Hold::Read& read : executor_.held().reads()) executor_.pager()->tell(read, reads);
    session_->end_run(event_status(status), std::move(reads));
}

}  // namespace tinfer::runtime
