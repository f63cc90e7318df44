// SPDX-License-Identifier: MIT
// The barrier between two steps of a team of threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tinfer {

/// Spins a while, then sleeps, because pure spinning collapses when threads outnumber cores and pure sleeping costs a
/// third of a decode. It never yields: a thread that yields gives up the rest of its turn, one that sleeps keeps its
/// claim to it. Arrivals and generation share one word, so that one cache line travels per barrier, not two. It sleeps
/// on a futex of its own, since std::atomic::wait keeps a pool of waiters in writable globals.
class Barrier {
public:
    /// How long the calling thread has slept.
    std::chrono::nanoseconds wait(int n_threads) noexcept;
    /// How long a thread spins before it sleeps. Call it while nobody waits.
    void set_spin(std::chrono::nanoseconds longest) noexcept { spin_ = longest; }

    /// Longer than a step that one thread does alone and than the others need to wake up; much shorter than a time
    /// slice, so that a thread whose fellow lost its processor does not use up its own in vain.
    static constexpr std::chrono::nanoseconds kSpin = std::chrono::microseconds(250);

private:
    [[nodiscard]] bool passes_soon(std::uint64_t generation) const noexcept;
    [[nodiscard]] bool has_passed(std::uint64_t generation) const noexcept {
        return state_.load(std::memory_order_seq_cst) >> 32 != generation;
    }

    alignas(64) std::atomic<std::uint64_t> state_{0};  ///< generation · 2^32 + threads that have arrived
    alignas(64) std::atomic<std::uint32_t> wake_calls_{0};
    std::atomic<int> sleepers_{0};
    std::chrono::nanoseconds spin_ = kSpin;
};

}  // namespace tinfer
