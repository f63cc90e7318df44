// SPDX-License-Identifier: MIT
#include "runtime/threads.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <utility>

#if defined(__linux__)
#  include <linux/futex.h>
#  include <sched.h>
#  include <sys/syscall.h>
#  include <unistd.h>
#endif
#if defined(_OPENMP)
#  include <omp.h>
#endif
#if defined(__x86_64__) || defined(__i386__)
#  include <immintrin.h>
#endif

namespace tinfer::runtime {

namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4 && std::atomic<std::uint32_t>::is_always_lock_free);   // a futex word

#if defined(__linux__) && defined(_OPENMP)
// CPUs this process may run on, as physical cores (package, core): sibling hyper-threads count once.
int affine_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 0;
    std::set<std::pair<int, int>> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &set)) continue;
        const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
        int package = 0, core = cpu;
        std::ifstream(folder + "physical_package_id") >> package;
        if (!(std::ifstream(folder + "core_id") >> core)) core = cpu;
        cores.emplace(package, core);
    }
    return static_cast<int>(cores.size());
}

// CPU quota of the control group in whole cores, rounded up; 0 = none.
int cgroup_quota() {
    std::string quota;
    double period = 0;
    if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> quota >> period) {
        if (quota == "max" || period <= 0) return 0;
        return std::max(1, static_cast<int>(std::stod(quota) / period + 0.999));
    }
    double limit = 0;
    std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    if (v1_quota >> limit && v1_period >> period && limit > 0 && period > 0) return std::max(1, static_cast<int>(limit / period + 0.999));
    return 0;
}
#endif

#if defined(__linux__)
void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t value) noexcept {
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void wake_all(std::atomic<std::uint32_t>& word) noexcept {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}
#else
void sleep_while(std::atomic<std::uint32_t>&, std::uint32_t) noexcept { std::this_thread::sleep_for(std::chrono::microseconds(20)); }
void wake_all(std::atomic<std::uint32_t>&) noexcept {}
#endif

void pause_cpu() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace

int default_thread_count() noexcept {
#if !defined(_OPENMP)
    return 1;
#else
    int n = 0;
    try {
#if defined(__linux__)
        n = affine_cores();
        if (const int quota = cgroup_quota(); quota > 0) n = n > 0 ? std::min(n, quota) : quota;
#endif
        if (n == 0) n = static_cast<int>(std::thread::hardware_concurrency());
    } catch (...) {
        n = 1;   // no memory for the file names: one thread is always right
    }
    return std::clamp(n, 1, 512);
#endif
}

void Barrier::wait(int n_threads) noexcept {
    if (n_threads == 1) return;
    const std::uint32_t generation = generation_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == n_threads - 1) {
        arrived_.store(0, std::memory_order_relaxed);
        generation_.store(generation + 1, std::memory_order_seq_cst);
        if (sleepers_.load(std::memory_order_seq_cst) > 0) wake_all(generation_);
        return;
    }
    for (int spin = 0; spin < 2000; ++spin) {
        if (generation_.load(std::memory_order_acquire) != generation) return;
        pause_cpu();
    }
    for (int turn = 0; turn < 50; ++turn) {
        if (generation_.load(std::memory_order_acquire) != generation) return;
        std::this_thread::yield();
    }
    // A sleeper counts itself before it looks once more, the last to arrive looks for sleepers after it has moved on: one of
    // the two sees the other.
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (generation_.load(std::memory_order_seq_cst) == generation) sleep_while(generation_, generation);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void run_team(int n_threads, TeamFn fn, void* context) noexcept {
#if defined(_OPENMP)
    if (n_threads > 1) {
#  pragma omp parallel num_threads(n_threads)
        fn(context, omp_get_thread_num(), omp_get_num_threads());
        return;
    }
#endif
    (void)n_threads;
    fn(context, 0, 1);
}

}  // namespace tinfer::runtime
