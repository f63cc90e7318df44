// SPDX-License-Identifier: MIT
// The team of threads that runs a plan: one parallel region per plan, a light barrier of our own between steps, and the
// default number of threads. A team never changes OpenMP's global state.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>

namespace tinfer::runtime {

/// Where the system tells about processors and control groups; tests have folders of their own.
struct SystemFiles {
    std::filesystem::path proc = "/proc", sys = "/sys";
};

/// min(physical cores, affinity mask, cgroup quota), at least 1; 1 in a build without OpenMP.
[[nodiscard]] int default_thread_count(const SystemFiles& files = {});
/// The same with hardware threads for cores: more threads than this could only wait for each other.
[[nodiscard]] int usable_cpu_count(const SystemFiles& files = {});

/// Spins a while, then yields, then sleeps, because pure spinning collapses when threads outnumber cores and pure sleeping
/// costs a third of a decode. Arrivals and generation share one word, so that one cache line travels per barrier, not two.
/// It sleeps on a futex of its own, since std::atomic::wait keeps a pool of waiters in writable globals.
class Barrier {
public:
    void wait(int n_threads) noexcept;

private:
    [[nodiscard]] bool has_passed(std::uint64_t generation) const noexcept { return state_.load(std::memory_order_seq_cst) >> 32 != generation; }

    alignas(64) std::atomic<std::uint64_t> state_{0};       ///< generation · 2^32 + threads that have arrived
    alignas(64) std::atomic<std::uint32_t> wake_calls_{0};
    std::atomic<int> sleepers_{0};
};

/// What each thread of a team runs: (context, thread, number of threads). Must not throw.
using TeamFn = void (*)(void* context, int thread, int n_threads) noexcept;
/// Runs `fn` on a team of at most n threads (the caller is thread 0) and returns when all are done.
using TeamRunner = void (*)(int n_threads, TeamFn fn, void* context) noexcept;
/// The runner of this build: an OpenMP region, or (without OpenMP) the caller alone.
void run_team(int n_threads, TeamFn fn, void* context) noexcept;

}  // namespace tinfer::runtime
