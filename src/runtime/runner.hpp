// SPDX-License-Identifier: MIT
// Runs plans for a context: how many threads, who watches, and how a run ends.
#pragma once

#include <exception>
#include <memory>

#include "base/processors.hpp"
#include "base/team.hpp"
#include "runtime/executor.hpp"
#include "runtime/shared_processors.hpp"
#include "trace/live/session.hpp"

namespace tinfer::runtime {

using trace::RunDetails;
using trace::TraceSession;

class Runner {
public:
    Runner(int max_threads, std::uint32_t max_units, std::shared_ptr<TraceSession> session);
    Runner(const Runner&) = delete;
    Runner& operator=(const Runner&) = delete;

    /// Whether observers are attached, so that RunDetails are needed.
    [[nodiscard]] bool is_watched() const noexcept { return session_->active(); }
    /// stoppable: an exception of an observer stops the run. whole: the run gets to its end first, because its changes
    /// cannot be rolled back.
    enum class Kind : std::uint8_t { stoppable, whole };
    /// Sets out to run a plan, which is what `run` is about; resume() does it. `cancel` null: nobody cancels it.
    void start(const BoundPlan& bound, RunDetails run, Kind kind, const CancelFn* cancel);
    /// Runs until about the deadline (`paused`), or to the end, which observers are told of. The exception that stopped
    /// a run (`failed`) is kept for take_error(); what an observer threw in a run of kind `whole` is thrown here.
    RunStatus resume(Executor::Clock::time_point deadline);
    /// Ends a paused run: observers are told that it was cancelled.
    void stop() { end(RunStatus::cancelled); }
    [[nodiscard]] std::exception_ptr take_error() noexcept { return executor_.take_error(); }
    [[nodiscard]] Executor& executor() noexcept { return executor_; }

private:
    RunStatus timed_slice(Executor::Clock::time_point deadline);
    void end(RunStatus status);

    std::shared_ptr<TraceSession> session_;
    Executor executor_;
    SharedProcessors sharing_;
    DeferringObserver deferring_;  // of a run that has to get to its end
    bool is_seen_ = false;         // observers saw the run begin and have yet to see it end
    bool is_timed_ = false;        // its time tells whether other programs share the processors

public:
    TeamRunner team = is_forked() ? run_new_team : run_team;  ///< tests may take another
    int team_limit;  ///< more threads could only wait for each other; tests may raise it
};

}  // namespace tinfer::runtime
