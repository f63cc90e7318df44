// SPDX-License-Identifier: MIT
// Layers with a window that share the slots of the other layers have the keys and values of every token, except for
// tokens of a loaded state that no window saw when it was saved. This records those tokens by their ids, which they
// keep when slots move.
#pragma once

#include <vector>

#include "memory/kv_cache.hpp"

namespace tinfer::memory {

class WindowGaps {
public:
    explicit WindowGaps(const KvLimits& limits) : missing_(static_cast<std::size_t>(limits.n_ctx)) {}

    /// Outside transactions.
    void add(std::int32_t token_id) noexcept {
        missing_[static_cast<std::size_t>(token_id)] = 1;
        any_ = true;
    }
    void remove(std::int32_t token_id) noexcept { missing_[static_cast<std::size_t>(token_id)] = 0; }
    /// A new token may have the id of one that is gone.
    void placed(const KvCache& cache) noexcept;
    void clear() noexcept;

    /// Some token may be missing.
    [[nodiscard]] bool any() const noexcept { return any_; }
    [[nodiscard]] bool lacks(const KvCache& cache, std::int32_t slot) const noexcept {
        return any_ && missing_[static_cast<std::size_t>(cache.token_id(slot))] != 0;
    }
    [[nodiscard]] static std::uint64_t bytes(const KvLimits& limits) noexcept {
        return static_cast<std::uint64_t>(limits.n_ctx);
    }
    [[nodiscard]] std::uint64_t allocated_bytes() const noexcept { return missing_.capacity(); }

private:
    std::vector<std::uint8_t> missing_;  // {n_ctx}, by id
    bool any_ = false;
};

}  // namespace tinfer::memory
