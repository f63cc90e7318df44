// SPDX-License-Identifier: MIT
// Sequences of touched objects: reuse distances and simulated caches. Objects are always touched as a whole.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tinfer::app {

struct Touch {
    std::uint64_t object = 0, bytes = 0;
};

/// For every touch the unique bytes of other objects since the last touch of the same object; ~0 for the first. O(n log
/// n), by a tree over the times of last accesses (F. Olken, 1981).
[[nodiscard]] std::vector<std::uint64_t> reuse_distances(const std::vector<Touch>& touches);

/// aged: as lfu, but a use counts half after half_life touches (the pager of --ram keeps by that, docs/paging.md).
enum class CachePolicy { lru, mru, fifo, lfu, aged, opt };
[[nodiscard]] CachePolicy policy_of(const std::string& name);

struct CacheResult {
    std::uint64_t hits = 0, misses = 0, bytes_missed = 0, bytes = 0;
    std::vector<bool> missed;  ///< by touch
};
/// A cache of `capacity` bytes that starts empty. opt evicts the object with the farthest next use, and bypasses
/// objects whose next use is later than all cached ones; objects that do not fit are never cached.
[[nodiscard]] CacheResult simulate_cache(const std::vector<Touch>& touches, std::uint64_t capacity, CachePolicy policy,
                                         double half_life = 64);

}  // namespace tinfer::app
