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

[[nodiscard]] long process_id() noexcept;
/// This process came from fork() without an exec() since. OpenMP may believe that it still has the threads of the
/// parent, and wait for them for ever: run_new_team() is for such a process. False where the system does not tell.
[[nodiscard]] bool is_forked(const SystemFiles& files = {});

/// Seconds that the calling thread has run so far; all time that passes, where the system does not tell.
[[nodiscard]] double thread_seconds() noexcept;

/// Spins a while, then sleeps, because pure spinning collapses when threads outnumber cores and pure sleeping costs a
/// third of a decode. It never yields: a thread that yields gives up the rest of its turn, one that sleeps keeps its
/// claim to it. Arrivals and generation share one word, so that one cache line travels per barrier, not two. It sleeps
/// on a futex of its own, since std::atomic::wait keeps a pool of waiters in writable globals.
class Barrier {
public:
    /// True where the calling thread has slept.
    bool wait(int n_threads) noexcept;
    /// More threads than processors will meet here: they sleep at once. To be said while nobody waits.
    void set_crowded(bool crowded) noexcept { crowded_ = crowded; }

private:
    [[nodiscard]] bool passes_soon(std::uint64_t generation) const noexcept;
    [[nodiscard]] bool has_passed(std::uint64_t generation) const noexcept {
        return state_.load(std::memory_order_seq_cst) >> 32 != generation;
    }

    alignas(64) std::atomic<std::uint64_t> state_{0};  ///< generation · 2^32 + threads that have arrived
    alignas(64) std::atomic<std::uint32_t> wake_calls_{0};
    std::atomic<int> sleepers_{0};
    bool crowded_ = false;
};

/// What each thread of a team runs: (context, thread, number of threads). Must not throw.
using TeamFn = void (*)(void* context, int thread, int n_threads) noexcept;
/// Runs `fn` on a team of at most n threads (the caller is thread 0) and returns when all are done.
using TeamRunner = void (*)(int n_threads, TeamFn fn, void* context) noexcept;
/// The runner of this build: an OpenMP region, or (without OpenMP) the caller alone.
void run_team(int n_threads, TeamFn fn, void* context) noexcept;
/// The same with threads that are made for this call, in a build with OpenMP: some ten microseconds for each.
void run_new_team(int n_threads, TeamFn fn, void* context) noexcept;

}  // namespace tinfer::runtime
