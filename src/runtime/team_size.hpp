// SPDX-License-Identifier: MIT
// How many threads of a team are worth having. All threads of a run meet between steps, so where a processor is shared
// with other work, everybody waits for the thread whose turn it is not, and a smaller team is often faster. Nobody can
// tell beforehand: what other work there is, and whether it gives way, only shows. So runs are timed, and where the
// team does not get its processors, a smaller one is tried for a moment and kept if it is faster. The bits do not
// depend on it.
#pragma once

#include <algorithm>
#include <cstddef>

namespace tinfer::runtime {

class TeamSize {
public:
    /// Threads for the next run, at most n; `shape` is the same for runs whose times can be compared.
    [[nodiscard]] int choose(int n, std::size_t shape) noexcept;
    /// What that run took, in seconds: by the clock, and of a processor's time for the thread that waits for all
    /// others.
    void note(double wall, double on_processor) noexcept;

    [[nodiscard]] static int smaller(int n) noexcept { return n - std::max(1, n / 4); }
    [[nodiscard]] static int larger(int n) noexcept { return n + std::max(1, n / 3); }

    /// Runs are judged by the mean of so many seconds: several turns of a processor.
    static constexpr double kWindow = 0.05;

private:
    void start_trial(int size, double time) noexcept;
    void end_trial(double time, double spent) noexcept;

    int most_ = 0, now_ = 0;
    std::size_t shape_ = 0;
    double wall_ = 0, on_processor_ = 0;  ///< of the window
    int n_runs_ = 0;
    int n_disturbed_ = 0;       ///< windows in a row in which the team did not get its processors
    int before_ = 0;            ///< size before the trial that is on; 0: none is
    double time_before_ = 0;    ///< seconds of a run at that size
    bool try_larger_ = false;   ///< where both are possible
    int pause_ = 0, wait_ = 0;  ///< windows between trials, and until the next one
};

}  // namespace tinfer::runtime
