// SPDX-License-Identifier: MIT
// Simulates prefetching of experts, from the routes of a trace and the read rates of a storage.
#pragma once

#include "../storage.hpp"
#include "predict.hpp"

namespace tinfer::app {

struct PrefetchResult {
    std::string policy;  ///< "on_demand", or the predictor
    std::uint64_t tokens = 0;
    double compute_ms = 0, stall_ms = 0;  ///< mean per token
    std::uint64_t bytes = 0, wasted = 0;  ///< total bytes read, and those of wrong predictions
    std::uint64_t hits = 0, in_time = 0, late = 0,
                  missed = 0;  ///< picks: cached; prefetched in time; too late; not predicted
};

/// While a layer computes, the storage reads the predicted experts of the next one; missing experts stall the token.
/// Requests queue at one storage: a single one runs at the idle rate of its size, several at the saturated rate. Each
/// layer has an LRU cache of `cache` experts; those of the current token are always kept. Counts are learnt on the
/// first half of the tokens, which also fills the caches, and tested on the second half. `layer_ns`: compute time per
/// layer. `routers` may be null.
[[nodiscard]] std::vector<PrefetchResult> simulate_prefetch(const Routes& routes, const StorageCurve& curve,
                                                            const std::map<int, double>& layer_ns, std::size_t cache,
                                                            std::size_t top, const Routers* routers);
[[nodiscard]] Table prefetch_table(const std::vector<PrefetchResult>& results);
/// Mean kernel time of each layer with experts, including preceding layers without, over runs of one token.
[[nodiscard]] std::map<int, double> times_of_layers(const tinfer::TraceReader& trace, const Routes& routes);

}  // namespace tinfer::app
