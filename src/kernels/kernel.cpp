// SPDX-License-Identifier: MIT
#include "kernels/kernel.hpp"

namespace tinfer::kernels {

AccessSink::~AccessSink() = default;

// Polling costs a call out of the library and must stay rare even where chunks take microseconds: at most once per
// millisecond. `polled_at_` is touched by the leading thread alone.
std::int64_t WorkQueue::claim(int thread, std::int64_t n_chunks) noexcept {
    if (thread == 0 && poll_ != nullptr) {
        const auto now = std::chrono::steady_clock::now();
        if (now - polled_at_ >= std::chrono::milliseconds(1)) {
            polled_at_ = now;
            if (poll_(poll_context_)) stop();
        }
    }
    if (stopped()) return kNoChunk;
    const std::int64_t chunk = next_.fetch_add(1, std::memory_order_relaxed);
    return chunk < n_chunks ? chunk : kNoChunk;
}

bool WorkQueue::finish(std::int64_t group, std::int64_t n) noexcept {
    if (!counted_.load(std::memory_order_relaxed)) counted_.store(true, std::memory_order_relaxed);
    return done_[static_cast<std::size_t>(group)].fetch_add(1, std::memory_order_acq_rel) + 1 == n;
}

const KernelDescriptor* KernelTable::find(Op op, DType type) const noexcept {
    for (std::size_t i = 0; i < n_kernels; ++i)
        if (kernels[i].op == op && (kernels[i].type == type || kernels[i].type == DType::none)) return &kernels[i];
    return nullptr;
}

}  // namespace tinfer::kernels
