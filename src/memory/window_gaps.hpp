// SPDX-License-Identifier: MIT
// Layers with a window that share the slots of the other layers have the keys and values of every token, except for
// tokens of a loaded state that no window saw when it was saved. This records those tokens by their ids, which they
// keep when slots move, and tells which operations would let a window reach back to one.
#pragma once

#include <vector>

#include "memory/kv_cache.hpp"

namespace tinfer::memory {

class WindowGaps {
public:
    WindowGaps(const KvLimits& limits, const Window& window)
        : window_(window), missing_(static_cast<std::size_t>(limits.n_ctx)) {}

    /// Outside transactions.
    void add(std::int32_t token_id) noexcept {
        missing_[static_cast<std::size_t>(token_id)] = 1;
        any_ = true;
    }
    void remove(std::int32_t token_id) noexcept { missing_[static_cast<std::size_t>(token_id)] = 0; }
    /// A new token may have the id of one that is gone.
    void placed(const KvCache& cache) noexcept;
    void clear() noexcept;

    [[nodiscard]] bool lacks(const KvCache& cache, std::int32_t slot) const noexcept {
        return any_ && missing_[static_cast<std::size_t>(cache.token_id(slot))] != 0;
    }
    /// First position that the window of position last + 1 can see; at most `last`.
    [[nodiscard]] std::int64_t window_begin(std::int64_t last) const noexcept;
    /// First position of the sequence from which on nothing is missing; -1 when it is empty.
    [[nodiscard]] std::int32_t pos_min(const KvCache& cache, SeqId seq) const noexcept;
    /// As those of WindowPages.
    [[nodiscard]] bool would_miss(const KvCache& cache, SeqId seq, Pos p0, Pos p1) const noexcept;
    [[nodiscard]] bool move_would_miss(const KvCache& cache, SeqId seq, Pos p0, Pos p1, std::int32_t delta,
                                       std::int32_t divisor) const noexcept;
    [[nodiscard]] bool copy_would_miss(const KvCache& cache, SeqId from, SeqId to, Pos p0, Pos p1) const noexcept;

    [[nodiscard]] static std::uint64_t bytes(const KvLimits& limits) noexcept {
        return static_cast<std::uint64_t>(limits.n_ctx);
    }
    [[nodiscard]] std::uint64_t bytes_held() const noexcept { return missing_.capacity(); }

private:
    Window window_;
    std::vector<std::uint8_t> missing_;  // {n_ctx}, by id
    bool any_ = false;
};

}  // namespace tinfer::memory
