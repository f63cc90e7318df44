// SPDX-License-Identifier: MIT
#include "team.hpp"

#include <algorithm>
#include <fstream>
#include <set>
#include <string>

#if defined(__linux__)
#    include <sched.h>
#endif

namespace roof {

namespace {

#if defined(__linux__)
/// Processors that this process may use, one per physical core.
std::vector<int> cores() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
    std::vector<int> found;
    std::set<std::string> seen;  // sibling lists such as "0,4"
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        std::string siblings = std::to_string(cpu);
        std::ifstream file("/sys/devices/system/cpu/cpu" + siblings + "/topology/thread_siblings_list");
        std::getline(file, siblings);
        if (seen.insert(siblings).second) found.push_back(cpu);
    }
    return found;
}

// Without pinning, several threads may start on one core; a single thread may move away from other programs.
void pin(int thread, int n_threads) {
    const auto available = cores();
    if (n_threads == 1 || static_cast<std::size_t>(n_threads) > available.size()) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(available[static_cast<std::size_t>(thread)], &set);
    static_cast<void>(sched_setaffinity(0, sizeof set, &set));  // best effort
}
#else
void pin(int, int) {}
#endif

/// Spins until `arrived()`, yielding now and then, for teams larger than the machine.
template <class Arrived>
void spin(Arrived arrived) {
    for (int turn = 1; !arrived(); ++turn)
        if (turn % 4096 == 0) std::this_thread::yield();
}

}  // namespace

Team::Team(int n_threads) : n_threads_(std::max(n_threads, 1)) {
    try {
        for (int thread = 0; thread < n_threads_; ++thread) threads_.emplace_back([this, thread] { serve(thread); });
    } catch (...) {  // one cannot be made: the others must not wait for it
        end();
        throw;
    }
}

Team::~Team() { end(); }

void Team::end() noexcept {
    work_ = nullptr;
    ++announced_;
    announced_.notify_all();
    threads_.clear();
}

// The last thread to be ready starts the clock and the run; the last one to finish stops them.
void Team::serve(int thread) {
    pin(thread, n_threads_);
    for (int run = 1;; ++run) {
        announced_.wait(run - 1);
        if (work_ == nullptr) return;
        if (++ready_ == n_threads_) {
            begin_ = Clock::now();
            started_ = run;
        }
        spin([&] { return started_ == run; });
        (*work_)(thread);
        if (++done_ == n_threads_) {
            end_ = Clock::now();
            ended_ = run;
            ended_.notify_one();
        }
    }
}

double Team::run(const Work& work) {
    work_ = &work;
    ready_ = 0;
    done_ = 0;
    const int before = ended_;
    ++announced_;
    announced_.notify_all();
    ended_.wait(before);
    return std::chrono::duration<double>(end_ - begin_).count();
}

double best_seconds(Team& team, double budget, const Team::Work& work) {
    const auto begin = std::chrono::steady_clock::now();
    double best = team.run(work);
    for (int runs = 1; runs < 3 || std::chrono::steady_clock::now() - begin < std::chrono::duration<double>(budget);
         ++runs)
        best = std::min(best, team.run(work));
    return best;
}

}  // namespace roof
