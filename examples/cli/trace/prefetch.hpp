// SPDX-License-Identifier: MIT
// Would reading experts ahead pay? A simulation over the routes of a trace and a storage's curve.
#pragma once

#include "../storage.hpp"
#include "predict.hpp"

namespace cli {

struct PrefetchResult {
    std::string policy;  ///< "on_demand", or what experts were told by
    std::uint64_t tokens = 0;
    double compute_ms = 0, stall_ms = 0;  ///< mean of a token
    std::uint64_t bytes = 0, wasted = 0;  ///< read in all, and of them what was told wrongly
    std::uint64_t hits = 0, in_time = 0, late = 0,
                  missed = 0;  ///< picks: cached; read ahead in time; too late; not told
};

/// Layer by layer: while a layer computes, the storage reads what is told for the next one; what is needed and not
/// there stops the token. Requests queue at one storage: a single one goes at the idle rate of its size, several at the
/// saturated one. Each layer keeps `cache` experts, the least recently used leaves; a token's own stay for it anyway.
/// Counts are learnt on the first half of the tokens, which also fills the caches, and tested on the second.
/// `layer_ns`: how long a layer computes. `routers` may be null.
[[nodiscard]] std::vector<PrefetchResult> simulate_prefetch(const Routes& routes, const StorageCurve& curve,
                                                            const std::map<int, double>& layer_ns, std::size_t cache,
                                                            std::size_t top, const Routers* routers);
[[nodiscard]] Table prefetch_table(const std::vector<PrefetchResult>& results);
/// Mean time of kernels of each layer that has experts, layers without them before it included, over runs of one token.
[[nodiscard]] std::map<int, double> times_of_layers(const tinfer::TraceReader& trace, const Routes& routes);

}  // namespace cli
