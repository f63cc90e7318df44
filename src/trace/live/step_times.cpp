// SPDX-License-Identifier: MIT
#include "trace/live/step_times.hpp"

#include <algorithm>
#include <limits>

namespace tinfer::trace {

namespace {

/// Of the threads that took part in a step.
struct TeamTime {
    std::uint64_t begin = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t worked_until = 0, left = 0;
    bool sliced = false;
    [[nodiscard]] bool known() const noexcept { return left > 0; }
};

}  // namespace

void settle_step_times(std::span<KernelEvent> events, std::span<const BusyTime> times, std::size_t n_steps,
                       int n_threads, std::uint32_t run) noexcept {
    const auto team_time = [&](std::size_t step) {
        TeamTime team;
        for (int thread = 0; thread < n_threads; ++thread) {
            const BusyTime& time = times[static_cast<std::size_t>(thread) * n_steps + step];
            if (time.run != run) continue;  // the team was smaller
            const std::uint64_t end = time.begin + time.busy;
            team.begin = std::min(team.begin, time.begin);
            team.left = std::max(team.left, end);
            if (time.work_items > 0) team.worked_until = std::max(team.worked_until, end);
            team.sliced = team.sliced || time.n_slices > 1;
        }
        return team;
    };
    std::uint64_t leader_end = 0, end = 0;  // of the step before
    TeamTime now = events.empty() ? TeamTime{} : team_time(0);
    for (std::size_t step = 0; step < events.size(); ++step) {
        KernelEvent& event = events[step];
        const bool is_last = step + 1 == events.size();
        const TeamTime next = is_last ? TeamTime{} : team_time(step + 1);
        const bool follows = step > 0 && event.begin == leader_end;
        leader_end = event.end;
        if (follows) event.begin = end;
        else event.begin = std::max(end, now.sliced ? event.begin : std::min(event.begin, now.begin));
        if (now.known() && !now.sliced && event.status == EventStatus::ok) {
            const bool meets = is_last || !next.known() || next.begin >= now.left;
            event.end = meets || now.worked_until == 0 ? now.left : now.worked_until;
        }
        end = event.end = std::max(event.end, event.begin);
        now = next;
    }
}

}  // namespace tinfer::trace
