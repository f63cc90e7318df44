// SPDX-License-Identifier: MIT
#include "memory/window_gaps.hpp"

#include <algorithm>

namespace tinfer::memory {

namespace {

/// fn(position, slot) for each token, in order.
template <class Fn>
void for_each_token(const KvCache& cache, SeqId seq, Fn&& fn) noexcept {
    for (const KvEntry& entry : cache.entries(seq))
        for (std::uint64_t live = entry.live; live != 0; live &= live - 1) {
            const std::int32_t slot = entry.page * kPageSlots + std::countr_zero(live);
            fn(cache.position(slot), slot);
        }
}

/// The last position that a sequence would have after an operation, and the last one at which a token would be missing.
struct Ends {
    std::int64_t last = -1, missing = -1;
    void add(std::int64_t pos, bool is_missing) noexcept {
        last = std::max(last, pos);
        if (is_missing) missing = std::max(missing, pos);
    }
};

}  // namespace

void WindowGaps::placed(const KvCache& cache) noexcept {
    if (!any_) return;
    cache.for_each_placed(
        [&](SeqId, std::int32_t slot, std::int32_t) { missing_[static_cast<std::size_t>(cache.token_id(slot))] = 0; });
}

void WindowGaps::clear() noexcept {
    if (any_) std::ranges::fill(missing_, 0);
    any_ = false;
}

std::int64_t WindowGaps::window_begin(std::int64_t last) const noexcept {
    return std::min(window_.begin(last + 1), last);
}

std::int32_t WindowGaps::pos_min(const KvCache& cache, SeqId seq) const noexcept {
    std::int32_t first = -1;
    for_each_token(cache, seq, [&](std::int32_t pos, std::int32_t slot) {
        if (lacks(cache, slot)) first = -1;
        else if (first < 0) first = pos;
    });
    return first;
}

bool WindowGaps::would_miss(const KvCache& cache, SeqId seq, Pos p0, Pos p1) const noexcept {
    if (!any_) return false;
    Ends ends;
    for_each_token(cache, seq, [&](std::int32_t pos, std::int32_t slot) {
        if (!is_in_range(pos, p0, p1)) ends.add(pos, lacks(cache, slot));
    });
    return ends.missing >= 0 && ends.missing >= window_begin(ends.last);
}

bool WindowGaps::move_would_miss(const KvCache& cache, SeqId seq, Pos p0, Pos p1, std::int32_t delta,
                                 std::int32_t divisor) const noexcept {
    if (!any_ || divisor < 1) return false;
    Ends ends;
    for_each_token(cache, seq, [&](std::int32_t pos, std::int32_t slot) {
        const std::int64_t to = is_in_range(pos, p0, p1) ? (std::int64_t{pos} + delta) / divisor : pos;
        if (to >= 0) ends.add(to, lacks(cache, slot));
    });
    return ends.missing >= 0 && ends.missing >= window_begin(ends.last);
}

bool WindowGaps::copy_would_miss(const KvCache& cache, SeqId from, SeqId to, Pos p0, Pos p1) const noexcept {
    if (!any_) return false;
    Ends ends;
    for_each_token(cache, from, [&](std::int32_t pos, std::int32_t slot) {
        if (is_in_range(pos, p0, p1)) ends.add(pos, lacks(cache, slot));
    });
    for_each_token(cache, to, [&](std::int32_t pos, std::int32_t slot) {
        if (!is_in_range(pos, p0, p1)) ends.add(pos, lacks(cache, slot));
    });
    return ends.missing >= 0 && ends.missing >= window_begin(ends.last);
}

}  // namespace tinfer::memory
