// SPDX-License-Identifier: MIT
// When the steps of a run began and ended, from the times that each thread has taken.
#pragma once

#include <cstdint>
#include <span>

#include "tinfer/trace.hpp"

namespace tinfer::trace {

/// A thread's time with one step.
struct BusyTime {
    std::uint64_t begin = 0, busy = 0;
    std::uint32_t run = 0;  ///< that wrote it, counted from 1: what others have left is not cleared
    std::uint32_t work_items = 0;
    std::uint32_t n_slices = 0;
    std::uint16_t cpu = 0;
};

/// Replaces the leader's begins and ends of the events by those of the whole team. A leader that the system wakes late
/// finds steps done that others began at the barrier; by its clock they would take no time, and the step before them
/// all of it. A step ends when the last thread that worked on it is through, and where all meet after it, when the last
/// one has come; the next begins there. Steps that were cut into slices keep the leader's times, for all threads meet
/// around them.
/// times: {events, threads}, of the run `run`. Events stay in order and do not overlap.
void settle_step_times(std::span<KernelEvent> events, std::span<const BusyTime> times, std::size_t n_steps,
                       int n_threads, std::uint32_t run) noexcept;

}  // namespace tinfer::trace
