// SPDX-License-Identifier: MIT
#include "runtime/runner.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tinfer::runtime {

namespace {

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
    // An observer that wants each thread's times sees the team that was asked for.
    const auto chosen = sharing_.choose(run.tokens.size(), run.n_threads, !session_->may_want_threads());
    run.n_threads = chosen.n_threads;
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
    is_timed_ = (chosen.is_tried || run.n_threads > 1) && !(observer != nullptr && observer->immediate());
    executor_.start(bound,
                    {.n_threads = run.n_threads,
                     .shares_processors = chosen.shares,
                     .shortest_count = chosen.shortest_count,
                     .team = chosen.shares && team == run_team ? run_new_team : team},
                    cancel, observer);
}

RunStatus Runner::resume(Executor::Clock::time_point deadline) {
    const RunStatus status = is_timed_ ? timed_slice(deadline) : executor_.resume(deadline);
    if (status == RunStatus::paused) return status;
    if (is_timed_ && status == RunStatus::ok) sharing_.note_end();
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
    sharing_.note_slice({.wall = wall, .on_processor = after.seconds - before.seconds},
                        after.n_pages_read != before.n_pages_read || executor_.has_waited());
    return status;
}

void Runner::end(RunStatus status) {
    if (!std::exchange(is_seen_, false)) return;
    std::vector<ReadEvent> reads;
    for (const Pager::Hold::Read& read : executor_.held().reads()) executor_.pager()->tell(read, reads);
    session_->end_run(event_status(status), std::move(reads));
}

}  // namespace tinfer::runtime
