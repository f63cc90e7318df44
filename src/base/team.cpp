// SPDX-License-Identifier: MIT
#include "base/team.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#if defined(__unix__) || defined(__APPLE__)
#    include <pthread.h>
#endif
#if defined(_OPENMP)
#    include <omp.h>
#endif

namespace tinfer {

void run_team(int n_threads, TeamFn fn, void* context) noexcept {
#if defined(_OPENMP)
    if (n_threads > 1) {
#    pragma omp parallel num_threads(n_threads)
        fn(context, omp_get_thread_num(), omp_get_num_threads());
        return;
    }
#endif
    (void)n_threads;
    fn(context, 0, 1);
}

#if defined(_OPENMP) && (defined(__unix__) || defined(__APPLE__))
namespace {

/// What the threads of one run share, on the stack of its caller.
struct NewTeam {
    TeamFn fn;
    void* context;
    std::atomic<int> size{0};  ///< 0 until it is known how many threads could be made
    std::atomic<int> next{1};
};

void* run_in_new_team(void* shared) {
    auto& team = *static_cast<NewTeam*>(shared);
    const int thread = team.next.fetch_add(1, std::memory_order_relaxed);
    int size = 0;
    while ((size = team.size.load(std::memory_order_acquire)) == 0) std::this_thread::yield();
    team.fn(team.context, thread, size);
    return nullptr;
}

int most_threads_here() noexcept {
    return omp_get_active_level() < omp_get_max_active_levels() ? omp_get_thread_limit() : 1;
}

}  // namespace

void run_new_team(int n_threads, TeamFn fn, void* context) noexcept {
    constexpr int kMax = 512;
    n_threads = std::min(n_threads, most_threads_here());
    NewTeam team{fn, context};
    std::array<pthread_t, kMax> threads;
    int n = 1;
    while (n < std::min(n_threads, kMax) &&
           pthread_create(&threads[static_cast<std::size_t>(n)], nullptr, run_in_new_team, &team) == 0)
        ++n;
    team.size.store(n, std::memory_order_release);
    fn(context, 0, n);
    for (int t = 1; t < n; ++t) pthread_join(threads[static_cast<std::size_t>(t)], nullptr);
}
#else
void run_new_team(int n_threads, TeamFn fn, void* context) noexcept { run_team(n_threads, fn, context); }
#endif

}  // namespace tinfer
