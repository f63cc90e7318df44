// SPDX-License-Identifier: MIT
// Threads for measuring: they wait spinning once a run is announced, so that work starts on all of them at the same
// moment and its end is seen at once. Between runs they sleep.
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
    /// Runs work(0) here and work(1) … on the other threads. Seconds from the common start to the last end.
    double run(const Work& work);

private:
    void serve(int thread);

    int n_threads_;
    const Work* work_ = nullptr;                       ///< null tells the threads to leave
    std::atomic<int> announced_{0}, started_{0};       ///< number of the run that may be prepared for, that has begun
    std::atomic<int> ready_{0}, done_{0};
    std::vector<std::thread> threads_;
};

/// The best of at least three runs, repeated for about `budget` seconds.
[[nodiscard]] double best_seconds(Team& team, double budget, const Team::Work& work);

}  // namespace roof
