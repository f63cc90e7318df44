// SPDX-License-Identifier: MIT
// Threads for measurements, each pinned to its own core if there are enough, with a barrier at the start of a run so
// that all begin at the same time. Between runs they sleep, and so does the caller during a run.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

namespace roof {

class Team {
public:
    using Work = std::function<void(int thread)>;

    explicit Team(int n_threads);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    [[nodiscard]] int size() const noexcept { return n_threads_; }
    /// Runs work(0) … work(size - 1), each on its thread. Seconds from the common start to the last end.
    double run(const Work& work);

private:
    using Clock = std::chrono::steady_clock;
    void serve(int thread);
    void end() noexcept;

    int n_threads_;
    const Work* work_ = nullptr;  ///< null tells the threads to exit
    Clock::time_point begin_{}, end_{};
    std::atomic<int> announced_{0}, started_{0}, ended_{0};  ///< numbers of runs
    std::atomic<int> ready_{0}, done_{0};                    ///< threads of the current run
    std::vector<std::jthread> threads_;
};

/// The best of at least three runs, repeated for about `budget` seconds.
[[nodiscard]] double best_seconds(Team& team, double budget, const Team::Work& work);

}  // namespace roof
