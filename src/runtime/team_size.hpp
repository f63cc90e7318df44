// SPDX-License-Identifier: MIT
// How many threads a team should have. All threads of a run meet at barriers between steps, so where processors are
// shared with other programs, all wait for the thread that is not scheduled, and a smaller team is often faster. That
// cannot be known beforehand. So runs are timed, and where the team does not get its processors, a smaller size is
// tried for a moment and kept if it is faster. The bits do not depend on it. All runs that one TeamSize sees should
// take about the same time.
#pragma once

#include <algorithm>

namespace tinfer::runtime {

class TeamSize {
public:
    /// Threads for the next run, at most n.
    [[nodiscard]] int choose(int n) noexcept;
    /// What that run took, in seconds: of wall-clock time, and of processor time of thread 0, which waits for all
    /// others.
    void note(double wall, double on_processor) noexcept;

    [[nodiscard]] static int smaller(int n) noexcept { return n - std::max(1, n / 4); }
    [[nodiscard]] static int larger(int n) noexcept { return n + std::max(1, n / 3); }

    /// Runs are judged by their mean over so many seconds: several time slices of the scheduler.
    static constexpr double kWindow = 0.05;

private:
    void start_trial(int size, double time) noexcept;
    void end_trial(double time, double spent) noexcept;

    int most_ = 0, now_ = 0;
    double wall_ = 0, on_processor_ = 0;  ///< of the window
    int n_runs_ = 0;
    int n_disturbed_ = 0;       ///< windows in a row in which the team did not get its processors
    int before_ = 0;            ///< size before the trial that is on; 0: none is
    double time_before_ = 0;    ///< seconds of a run at that size
    bool try_larger_ = false;   ///< where both are possible
    int pause_ = 0, wait_ = 0;  ///< windows between trials, and until the next one
};

}  // namespace tinfer::runtime
