// SPDX-License-Identifier: MIT
// The team of threads that runs a plan: one parallel region per plan, a light barrier of our own between steps, and the
// default number of threads. A team never changes OpenMP's global state.
#pragma once

#include <atomic>
#include <cstdint>

namespace tinfer::runtime {

/// min(physical cores, affinity mask, cgroup quota), at least 1; 1 in a build without OpenMP.
[[nodiscard]] int default_thread_count() noexcept;

/// Arrival counter and generation on cache lines of their own: spins a while, then yields, then sleeps, because pure
/// spinning collapses when threads outnumber cores and pure sleeping costs a third of a decode. It sleeps on a futex of its
/// own, since std::atomic::wait keeps a pool of waiters in writable globals.
class Barrier {
public:
    void wait(int n_threads) noexcept;

private:
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<std::uint32_t> generation_{0};
    std::atomic<int> sleepers_{0};
};

/// What each thread of a team runs: (context, thread, number of threads). Must not throw.
using TeamFn = void (*)(void* context, int thread, int n_threads) noexcept;
/// Runs `fn` on a team of at most n threads (the caller is thread 0) and returns when all are done.
using TeamRunner = void (*)(int n_threads, TeamFn fn, void* context) noexcept;
/// The runner of this build: an OpenMP region, or (without OpenMP) the caller alone.
void run_team(int n_threads, TeamFn fn, void* context) noexcept;

}  // namespace tinfer::runtime
