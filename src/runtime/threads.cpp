// SPDX-License-Identifier: MIT
#include "runtime/threads.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <utility>

#if defined(__linux__)
#  include <sched.h>
#endif
#if defined(_OPENMP)
#  include <omp.h>
#endif
#if defined(__x86_64__) || defined(__i386__)
#  include <immintrin.h>
#endif

namespace tinfer::runtime {

namespace {

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
        generation_.store(generation + 1, std::memory_order_release);
        generation_.notify_all();
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
    while (generation_.load(std::memory_order_acquire) == generation) generation_.wait(generation, std::memory_order_acquire);
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
