// SPDX-License-Identifier: MIT
// What the executor tells of a traced run, step by step: the whole interface between running a plan and recording it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel.hpp"

namespace tinfer::trace {

/// The leader's side of a traced run (session.hpp). Called on thread 0 only; may throw.
class StepObserver {
public:
    virtual ~StepObserver() = default;
    /// Other threads wait while immediate callbacks run.
    [[nodiscard]] virtual bool immediate() const noexcept = 0;
    /// Before the first step, and where a paused run goes on: what lies in between is no step's time.
    virtual void begin_slice() noexcept = 0;
    /// When the step begins: what goes before it (resolving, callbacks) is not its time.
    virtual std::uint64_t before_step(std::size_t step, const kernels::KernelCall& call) = 0;
    virtual void after_step(std::size_t step, const kernels::KernelCall& call, bool cancelled, std::uint64_t end) = 0;
    /// Called by every thread where times_threads(); it writes to memory of its own. Once per slice of time that the
    /// step took part in. A thread's spans follow each other in time and do not overlap.
    virtual void thread_span(std::size_t step, int thread, std::uint64_t begin, std::uint64_t end,
                             std::uint32_t work_items) noexcept = 0;
    [[nodiscard]] virtual bool wants_threads() const noexcept = 0;  ///< level threads
    /// Each thread is to take its times: for level threads, and where more than one decides when a step ended.
    [[nodiscard]] virtual bool times_threads() const noexcept = 0;
    [[nodiscard]] virtual bool wants_times() const noexcept = 0;  ///< level steps or threads
    /// Nanoseconds since the session's time zero.
    [[nodiscard]] virtual std::uint64_t now() const noexcept = 0;
};

}  // namespace tinfer::trace
