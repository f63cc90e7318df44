// SPDX-License-Identifier: MIT
#include "memory/window_gaps.hpp"

#include <algorithm>

namespace tinfer::memory {

void WindowGaps::placed(const KvCache& cache) noexcept {
    if (!any_) return;
    cache.for_each_placed(
        [&](SeqId, std::int32_t slot, std::int32_t) { missing_[static_cast<std::size_t>(cache.token_id(slot))] = 0; });
}

void WindowGaps::clear() noexcept {
    if (any_) std::ranges::fill(missing_, 0);
    any_ = false;
}

}  // namespace tinfer::memory
