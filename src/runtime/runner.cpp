// SPDX-License-Identifier: MIT
#include "runtime/runner.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tinfer::runtime {

namespace {

constexpr std::size_t kFewTokens = 16;  // of a run whose team may be made smaller

}  // namespace

Runner::Runner(int max_threads, std::shared_ptr<TraceSession> session)
    : session_(std::move(session)), executor_(max_threads), team_limit(executor_.n_processors()) {}

void Runner::start(const RunDetails& run, Kind kind, const CancelFn* cancel) {
    RunDetails details = run;
    details.n_threads = std::min(run.n_threads, team_limit);
    // Only runs of few tokens are timed, because others have few barriers. Observers see the team that was asked for.
    const std::size_t n_tokens = run.tokens.size();
    is_timed_ = details.n_threads > 1 && n_tokens > 0 && n_tokens <= kFewTokens && !is_watched();
    if (is_timed_) details.n_threads = team_size_.choose(details.n_threads, n_tokens);
    time_ = {};
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
    executor_.start(*run.bound, details.n_threads, cancel, observer, team);
}

RunStatus Runner::resume(Executor::Clock::time_point deadline) {
    const RunStatus status = is_timed_ ? timed_slice(deadline) : executor_.resume(deadline);
    if (status == RunStatus::paused) return status;
    if (is_timed_ && status == RunStatus::ok) team_size_.note(time_.wall, time_.on_processor);
    const std::exception_ptr deferred = deferring_.take_error();
    end(deferred ? RunStatus::failed : status);
    if (deferred) std::rethrow_exception(deferred);
    return status;
}

RunStatus Runner::timed_slice(Executor::Clock::time_point deadline) {
    const double on_processor = thread_seconds();
    const auto begin = Executor::Clock::now();
    const RunStatus status = executor_.resume(deadline);
    time_.wall += std::chrono::duration<double>(Executor::Clock::now() - begin).count();
    time_.on_processor += thread_seconds() - on_processor;
    return status;
}

void Runner::end(RunStatus status) {
    if (std::exchange(is_seen_, false)) session_->end_run(status);
}

}  // namespace tinfer::runtime
