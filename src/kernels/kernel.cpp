// SPDX-License-Identifier: MIT
#include "kernels/kernel.hpp"

namespace tinfer::kernels {

AccessSink::~AccessSink() = default;

// Most steps do not use their queue: what is armed already is not written, so that no cache line has to travel.
void WorkQueue::rearm() noexcept {
    if (!in_use() && !stopped()) return;
    stopped_.store(false, std::memory_order_relaxed);
    left_of_.store(0, std::memory_order_relaxed);
    next_.store(0, std::memory_order_relaxed);
    if (!counted_.load(std::memory_order_relaxed)) return;
    for (std::atomic<std::int32_t>& done : done_) done.store(0, std::memory_order_relaxed);
    counted_.store(false, std::memory_order_relaxed);
}

// A thread begins no chunk that would end behind the deadline, judged by its last one; but it does one in every slice,
// so that a budget smaller than a chunk gets on too.
bool WorkQueue::time_is_over(Worker& worker) const noexcept {
    const auto now = Clock::now();
    if (worker.in_chunk) worker.chunk_time = now - worker.claimed_at;
    worker.in_chunk = !worker.has_worked || now + worker.chunk_time <= deadline_;
    worker.has_worked = true;
    worker.claimed_at = now;
    return !worker.in_chunk;
}

// Polling costs a call out of the library and must stay rare even where chunks take microseconds: at most once per
// millisecond. `polled_at_` is touched by the leading thread alone.
std::int64_t WorkQueue::claim(int thread, std::int64_t n_chunks, Worker* worker) noexcept {
    if (thread == 0 && poll_ != nullptr) {
        const auto now = Clock::now();
        if (now - polled_at_ >= std::chrono::milliseconds(1)) {
            polled_at_ = now;
            if (poll_(poll_context_)) stop();
        }
    }
    if (stopped()) return kNoChunk;
    if (deadline_ != kNoDeadline && worker != nullptr && time_is_over(*worker)) {
        left_of_.store(n_chunks, std::memory_order_relaxed);
        return kNoChunk;
    }
    const std::int64_t chunk = next_.fetch_add(1, std::memory_order_relaxed);
    if (chunk >= n_chunks) return kNoChunk;
    if (worker != nullptr) ++worker->n_chunks;
    return chunk;
}

bool WorkQueue::finish(std::int64_t group, std::int64_t n) noexcept {
    if (!counted_.load(std::memory_order_relaxed)) counted_.store(true, std::memory_order_relaxed);
    return done_[static_cast<std::size_t>(group)].fetch_add(1, std::memory_order_acq_rel) + 1 == n;
}

const KernelDescriptor* KernelTable::find(Op op, DType type) const noexcept {
    for (std::size_t i = 0; i < n_kernels; ++i)
        if (kernels[i].op == op && (kernels[i].type == type || kernels[i].type == DType::none)) return &kernels[i];
    return base == nullptr ? nullptr : base->find(op, type);
}

}  // namespace tinfer::kernels
