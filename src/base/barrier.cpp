// SPDX-License-Identifier: MIT
#include "base/barrier.hpp"

#include <limits>
#include <thread>

#if defined(__linux__)
#    include <linux/futex.h>
#    include <sys/syscall.h>
#    include <unistd.h>
#endif
#if defined(__x86_64__) || defined(__i386__)
#    include <immintrin.h>
#endif

namespace tinfer {

namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4 &&
              std::atomic<std::uint32_t>::is_always_lock_free);  // a futex word

#if defined(__linux__)
void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t value) noexcept {
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void wake_all(std::atomic<std::uint32_t>& word) noexcept {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}
#else
void sleep_while(std::atomic<std::uint32_t>&, std::uint32_t) noexcept {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
}
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

bool Barrier::passes_soon(std::uint64_t generation) const noexcept {
    constexpr int kLooks = 64;  // between two looks at the clock
    const auto begin = std::chrono::steady_clock::now();
    do {
        for (int look = 0; look < kLooks; ++look) {
            if (state_.load(std::memory_order_acquire) >> 32 != generation) return true;
            pause_cpu();
        }
    } while (std::chrono::steady_clock::now() - begin < spin_);
    return false;
}

std::chrono::nanoseconds Barrier::wait(int n_threads) noexcept {
    if (n_threads == 1) return {};
    const std::uint64_t before = state_.fetch_add(1, std::memory_order_acq_rel), generation = before >> 32;
    if (static_cast<std::uint32_t>(before) + 1 == static_cast<std::uint32_t>(n_threads)) {
        state_.store((generation + 1) << 32, std::memory_order_seq_cst);
        if (sleepers_.load(std::memory_order_seq_cst) > 0) {
            wake_calls_.fetch_add(1, std::memory_order_seq_cst);
            wake_all(wake_calls_);
        }
        return {};
    }
    if (spin_.count() > 0 && passes_soon(generation)) return {};
    const auto begin = std::chrono::steady_clock::now();
    // A sleeper counts itself before it looks once more, the last to arrive looks for sleepers after it has moved on:
    // one of the two sees the other.
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    for (;;) {
        const std::uint32_t calls = wake_calls_.load(std::memory_order_seq_cst);
        if (has_passed(generation)) break;
        sleep_while(wake_calls_, calls);
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    return std::chrono::steady_clock::now() - begin;
}

}  // namespace tinfer
