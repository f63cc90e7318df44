// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <unordered_map>

#include "reuse.hpp"

namespace tinfer::app {

std::vector<std::uint64_t> reuse_distances(const std::vector<Touch>& touches) {
    // A Fenwick tree over time, with each object's size at the time of its last access.
    std::vector<std::uint64_t> tree(touches.size() + 1), distances;
    const auto add = [&](std::size_t at, std::uint64_t bytes) {
        for (++at; at < tree.size(); at += at & (~at + 1)) tree[at] += bytes;  // negative changes wrap modulo 2^64
    };
    const auto sum = [&](std::size_t end) {
        std::uint64_t bytes = 0;
        for (; end > 0; end -= end & (~end + 1)) bytes += tree[end];
        return bytes;
    };
    std::unordered_map<std::uint64_t, std::size_t> last;
    distances.reserve(touches.size());
    for (std::size_t now = 0; now < touches.size(); ++now) {
        const auto [found, is_new] = last.try_emplace(touches[now].object, now);
        if (is_new) {
            distances.push_back(std::numeric_limits<std::uint64_t>::max());
        } else {
            distances.push_back(sum(now) - sum(found->second + 1));
            add(found->second, ~touches[found->second].bytes + 1);
            found->second = now;
        }
        add(now, touches[now].bytes);
    }
    return distances;
}

CacheResult simulate_cache(const std::vector<Touch>& touches, std::uint64_t capacity, CachePolicy policy,
                           double half_life) {
    constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
    std::vector<std::uint64_t> next(touches.size(), kNever);
    std::unordered_map<std::uint64_t, std::uint64_t> later;
    for (std::size_t i = touches.size(); policy == CachePolicy::opt && i-- > 0;) {
        const auto found = later.find(touches[i].object);
        if (found != later.end()) next[i] = found->second;
        later[touches[i].object] = i;
    }
    // Cached objects, sorted by eviction key: the front is evicted first.
    struct Kept {
        std::pair<std::uint64_t, std::uint64_t> key;
        std::uint64_t bytes = 0;
    };
    std::unordered_map<std::uint64_t, Kept> kept;
    std::unordered_map<std::uint64_t, std::uint64_t> uses;
    std::unordered_map<std::uint64_t, double> weights;  // log2 of aged uses, plus their age (src/base/pager.cpp)
    std::set<std::pair<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t>> order;
    CacheResult result;
    result.missed.assign(touches.size(), false);
    std::uint64_t used = 0;
    for (std::size_t i = 0; i < touches.size(); ++i) {
        const Touch& touch = touches[i];
        const auto key = [&]() -> std::pair<std::uint64_t, std::uint64_t> {
            switch (policy) {
                case CachePolicy::mru: return {kNever - i, 0};
                case CachePolicy::lfu: return {uses[touch.object], i};
                case CachePolicy::aged: return {std::uint64_t(weights[touch.object] * (1 << 20)), i};
                case CachePolicy::opt: return {kNever - next[i], i};
                case CachePolicy::lru:
                case CachePolicy::fifo: break;
            }
            return {i, 0};
        };
        result.bytes += touch.bytes;
        ++uses[touch.object];
        if (policy == CachePolicy::aged) {
            double& weight = weights[touch.object];
            const double now = double(i) / half_life;
            weight = now + std::log2(1 + std::exp2(std::max(weight - now, -60.0)));
        }
        const auto found = kept.find(touch.object);
        if (found != kept.end()) {
            ++result.hits;
            if (policy == CachePolicy::fifo) continue;
            order.erase({found->second.key, touch.object});
            found->second.key = key();
            order.emplace(found->second.key, touch.object);
            continue;
        }
        ++result.misses;
        result.bytes_missed += touch.bytes;
        result.missed[i] = true;
        if (touch.bytes > capacity) continue;
        const auto own = key();
        if (policy == CachePolicy::opt) {  // bypass: evict only objects whose next use is later
            std::uint64_t room = capacity - used;
            for (auto at = order.begin(); at != order.end() && room < touch.bytes && at->first < own; ++at)
                room += kept[at->second].bytes;
            if (room < touch.bytes) continue;
        }
        while (capacity - used < touch.bytes) {
            const auto [key_of_first, object] = *order.begin();
            used -= kept[object].bytes;
            kept.erase(object);
            order.erase(order.begin());
        }
        kept[touch.object] = {own, touch.bytes};
        order.emplace(own, touch.object);
        used += touch.bytes;
    }
    return result;
}

}  // namespace tinfer::app
