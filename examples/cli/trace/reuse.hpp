// SPDX-License-Identifier: MIT
// Streams of touched objects: reuse distances and simulated caches. An object is touched whole.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cli {

struct Touch {
    std::uint64_t object = 0, bytes = 0;
};

/// Of every touch the unique bytes of other objects touched since the object was touched last; ~0 the first time.
/// O(n log n), by a tree over the times of last accesses (F. Olken, 1981).
[[nodiscard]] std::vector<std::uint64_t> reuse_distances(const std::vector<Touch>& touches);

enum class CachePolicy { lru, mru, fifo, lfu, opt };
[[nodiscard]] CachePolicy policy_of(const std::string& name);

struct CacheResult {
    std::uint64_t hits = 0, misses = 0, bytes_missed = 0, bytes = 0;
    std::vector<bool> missed;  ///< by touch
};
/// A cache of `capacity` bytes that starts empty. opt: evicts what is needed farthest in the future, and does not keep
/// what is needed later than all it holds; objects that do not fit are never kept.
[[nodiscard]] CacheResult simulate_cache(const std::vector<Touch>& touches, std::uint64_t capacity, CachePolicy policy);

}  // namespace cli
