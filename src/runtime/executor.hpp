// SPDX-License-Identifier: MIT
// Runs a bound plan: one parallel region, every thread through the same list of steps, a barrier between steps. The loop
// exists twice, with and without observers, and the choice is made once per run.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <utility>

#include "runtime/binding.hpp"
#include "runtime/threads.hpp"

namespace tinfer::runtime {

/// The leader's side of a traced run (runtime/trace_session.hpp). Called on thread 0 only; may throw.
class StepObserver {
public:
    virtual ~StepObserver() = default;
    /// Other threads wait while immediate callbacks run.
    [[nodiscard]] virtual bool immediate() const noexcept = 0;
    virtual void before_step(std::size_t step, const kernels::KernelCall& call) = 0;
    virtual void after_step(std::size_t step, const kernels::KernelCall& call, bool cancelled) = 0;
    /// Called by every thread for its own slot, level threads only.
    virtual void thread_span(std::size_t step, int thread, std::uint64_t begin, std::uint64_t end) noexcept = 0;
    [[nodiscard]] virtual bool wants_threads() const noexcept = 0;
    /// Nanoseconds since the session's time zero.
    [[nodiscard]] virtual std::uint64_t now() const noexcept = 0;
};

enum class RunStatus : std::uint8_t { ok, cancelled, failed };

class Executor {
public:
    /// Runs all steps. `cancel` (may be empty) is polled between steps and chunks. An exception of the observer stops the
    /// run (`failed`) and is kept in error().
    RunStatus run(const BoundPlan& bound, int n_threads, const CancelFn& cancel, StepObserver* observer, TeamRunner team = run_team) noexcept;
    [[nodiscard]] std::exception_ptr take_error() noexcept { return std::exchange(error_, nullptr); }

    /// For tests: fills results that nobody reads any more with NaN patterns after each step.
    void poison_dead(std::byte* arena) noexcept { poison_arena_ = arena; }

private:
    template <bool Traced>
    void loop(int thread, int n_threads) noexcept;
    bool should_stop(std::size_t step) noexcept;
    void poison(const graph::Step& step) noexcept;
    template <class Fn>
    void observe(Fn&& fn) noexcept;

    const BoundPlan* bound_ = nullptr;
    const CancelFn* cancel_ = nullptr;
    StepObserver* observer_ = nullptr;
    std::byte* poison_arena_ = nullptr;
    Barrier barrier_;
    std::array<kernels::WorkQueue, 2> queues_;
    // Decided by the leader before a barrier, read by all after it; alternating, so that the next decision cannot overtake
    // a slow reader of the last one.
    std::array<bool, 2> stop_after_{}, stop_before_{};
    bool cancelled_ = false;
    std::exception_ptr error_;
};

}  // namespace tinfer::runtime
