// SPDX-License-Identifier: MIT
#include <algorithm>

#include "tinfer/observers.hpp"

namespace tinfer {

TraceRequest AccessCounts::request() const { return {.level = TraceLevel::counts}; }

void AccessCounts::on_run_begin(const RunInfo& info) {
    ++counts_.runs;
    counts_.tokens += info.tokens.size();
}

void AccessCounts::on_events(std::span<const KernelEvent> events) {
    for (const KernelEvent& event : events) {
        ++counts_.steps;
        // Steps come in the order of layers, so the place is mostly the last one or the next.
        const int layer = event.step->layer;
        auto at = std::ranges::lower_bound(layers_, layer, {}, &TouchedLayer::layer);
        if (at == layers_.end() || at->layer != layer) at = layers_.insert(at, TouchedLayer{.layer = layer});
        for (const Access& access : event.accesses) {
            if (access.scratch) continue;
            const std::uint64_t bytes = access.bytes();
            const TensorClass kind = access.tensor->tensor_class;
            const auto c = static_cast<std::size_t>(kind);
            if (access.mode != AccessMode::read) counts_.written[c] += bytes;
            if (access.mode == AccessMode::write) continue;
            counts_.read[c] += bytes;
            if (kind == TensorClass::weight) at->weight_bytes += bytes;
            else if (kind == TensorClass::adapter) at->adapter_bytes += bytes;
            else if (kind == TensorClass::cache_k || kind == TensorClass::cache_v || kind == TensorClass::recurrent)
                at->cache_bytes += bytes;
        }
    }
}

}  // namespace tinfer
