// SPDX-License-Identifier: MIT
#include "runtime/runner.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tinfer::runtime {

namespace {

constexpr std::size_t kFewTokens = 16;  // of a run whose team may be made smaller
// Bytes of an operand times tokens, up to which a step takes a few hundredths of a second at most. Callers that give a
// deadline do not mind that.
constexpr std::uint64_t kShortStep = std::uint64_t{1} << 30;
constexpr std::uint64_t kFewestTokens = 4;  // below, the bytes decide

constexpr double kShared = 0.3;     // share of the time without a processor, from which on other programs have it
constexpr double kWindow = 0.02;    // seconds over which that is judged
constexpr int kSharedWindows = 32;  // until it is judged again: threads that sleep are often without a processor

}  // namespace

Runner::Runner(int max_threads, std::shared_ptr<TraceSession> session)
    : session_(std::move(session)), executor_(max_threads), team_limit(executor_.n_processors()) {}

void Runner::start(const RunDetails& run, Kind kind, const CancelFn* cancel) {
    RunDetails details = run;
    details.n_threads = std::min(run.n_threads, team_limit);
    // Only runs of few tokens have so many barriers that a smaller team may be faster. An observer that wants each
    // thread's times sees the team that was asked for.
    const std::size_t n_tokens = run.tokens.size();
    is_timed_ = details.n_threads > 1;
    sets_team_size_ = is_timed_ && n_tokens > 0 && n_tokens <= kFewTokens && !session_->may_want_threads();
    if (sets_team_size_) details.n_threads = team_size_.choose(details.n_threads, n_tokens);
    run_ = {};
    StepObserver* observer = nullptr;
    if (is_watched()) {
        session_->begin_run(details);
        is_seen_ = true;
        observer = session_.get();
    }
    if (observer != nullptr && kind == Kind::whole) {
        deferring_.watch(observer);
        observer = &deferring_;
    }
    const std::uint64_t longest = run.bound->largest_operand * std::max<std::uint64_t>(n_tokens, kFewestTokens);
    const bool shares = shares_processors_ && details.n_threads > 1;
    executor_.start(*run.bound,
                    {.n_threads = details.n_threads,
                     .cut_steps = n_tokens > kFewTokens || longest > kShortStep,
                     .shares_processors = shares,
                     .team = shares && team == run_team ? run_new_team : team},
                    cancel, observer);
}

RunStatus Runner::resume(Executor::Clock::time_point deadline) {
    const RunStatus status = is_timed_ ? timed_slice(deadline) : executor_.resume(deadline);
    if (status == RunStatus::paused) return status;
    if (sets_team_size_ && status == RunStatus::ok) team_size_.note(run_.wall, run_.on_processor);
    const std::exception_ptr deferred = deferring_.take_error();
    end(deferred ? RunStatus::failed : status);
    if (deferred) std::rethrow_exception(deferred);
    return status;
}

RunStatus Runner::timed_slice(Executor::Clock::time_point deadline) {
    const double on_processor = thread_seconds();
    const auto begin = Executor::Clock::now();
    const RunStatus status = executor_.resume(deadline);
    const Time slice{std::chrono::duration<double>(Executor::Clock::now() - begin).count(),
                     thread_seconds() - on_processor};
    run_.wall += slice.wall;
    run_.on_processor += slice.on_processor;
    look_for_others(slice);
    return status;
}

// A thread that spins at barriers is on its processor all the time, if nobody else is. Where others are, threads sleep
// sooner, and are made for each run: those of OpenMP would spin for milliseconds after it.
void Runner::look_for_others(const Time& slice) noexcept {
    window_.wall += slice.wall;
    window_.on_processor += slice.on_processor;
    if (window_.wall < kWindow) return;
    const bool missed = window_.wall - window_.on_processor > kShared * window_.wall;
    window_ = {};
    ++n_windows_;
    if (shares_processors_ && n_windows_ < kSharedWindows) return;
    if (shares_processors_ || !missed) shares_processors_ = false, n_windows_ = 0;
    else if (n_windows_ > 1) shares_processors_ = true, n_windows_ = 0;  // a single window may be bad luck
}

void Runner::end(RunStatus status) {
    if (std::exchange(is_seen_, false)) session_->end_run(status);
}

}  // namespace tinfer::runtime
