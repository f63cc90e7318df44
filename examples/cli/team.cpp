// SPDX-License-Identifier: MIT
#include "team.hpp"

#include <algorithm>

namespace roof {

namespace {

void pause() noexcept {
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_ia32_pause();
#else
    std::this_thread::yield();
#endif
}

/// Spins until `arrived()`; gives its core away now and then, for teams larger than the machine.
template <class Arrived>
void spin(Arrived arrived) noexcept {
    for (int turn = 1; !arrived(); ++turn)
        if (turn % 4096 == 0) std::this_thread::yield();
        else pause();
}

}  // namespace

Team::Team(int n_threads) : n_threads_(std::max(n_threads, 1)) {
    for (int thread = 1; thread < n_threads_; ++thread) threads_.emplace_back([this, thread] { serve(thread); });
}

Team::~Team() {
    work_ = nullptr;
    ++announced_;
    announced_.notify_all();
    for (auto& thread : threads_) thread.join();
}

void Team::serve(int thread) {
    for (int run = 1;; ++run) {
        announced_.wait(run - 1);
        if (work_ == nullptr) return;
        ++ready_;
        spin([&] { return started_ == run; });
        (*work_)(thread);
        ++done_;
    }
}

double Team::run(const Work& work) {
    work_ = &work;
    ready_ = 0;
    done_ = 0;
    ++announced_;
    announced_.notify_all();
    spin([&] { return ready_ == n_threads_ - 1; });
    const auto start = std::chrono::steady_clock::now();
    ++started_;
    work(0);
    spin([&] { return done_ == n_threads_ - 1; });
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double best_seconds(Team& team, double budget, const Team::Work& work) {
    const auto begin = std::chrono::steady_clock::now();
    double best = team.run(work);
    for (int runs = 1; runs < 3 || std::chrono::steady_clock::now() - begin < std::chrono::duration<double>(budget); ++runs)
        best = std::min(best, team.run(work));
    return best;
}

}  // namespace roof
