// SPDX-License-Identifier: MIT
// The bound plans of one context, the most recently used of them, by what their graphs depend on. A context's graph is
// a function of that key as long as the same adapters are attached, so a plan is found without a look at the graph.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/layout.hpp"

namespace tinfer::runtime {

/// What a graph depends on besides the context.
struct PlanKey {
    enum class Work : std::uint8_t { none, decode, encode, page_copies, compaction, key_shift };
    Work work = Work::none;
    bool from_embeddings = false;
    std::int64_t n_tokens = 0, n_outputs = 0;
    model::AdapterMask adapters = model::kAllAdapters;
    int draft_block = -1;  ///< BatchShape::draft_block
    bool operator==(const PlanKey&) const = default;
};

class PlanCache {
public:
    /// The layout outlives the cache. All memory is allocated here.
    PlanCache(const Layout& layout, const MemoryMap& memory);
    PlanCache(const PlanCache&) = delete;
    PlanCache& operator=(const PlanCache&) = delete;

    /// The plan of this key: one made before, or made in the place of the one that was used least recently. It is good
    /// until the next call.
    const BoundPlan& get(const PlanKey& key);
    /// The graph of the plan that get() gave last, for who describes it: built again where another one was built since.
    [[nodiscard]] const graph::Graph& graph();

private:
    struct Slot {
        PlanKey key;                      ///< of no work: empty
        model::AdapterMask adapters = 0;  ///< of its graph: the key's, or all where that plan does not fit
        BoundPlan plan;
        std::uint64_t last_use = 0;
    };
    void build(const PlanKey& key, model::AdapterMask adapters);
    void make(Slot& slot, const PlanKey& key);
    /// Whether the plan needs no more arena and scratch than the context has. Chooses its kernels.
    [[nodiscard]] bool fits(BoundPlan& bound) const;

    const Layout& layout_;
    MemoryMap memory_;
    graph::Graph graph_;
    graph::Planner planner_;
    std::array<Slot, kPlanSlots> slots_;
    Slot* last_ = nullptr;   // that get() gave
    Slot* built_ = nullptr;  // whose graph graph_ holds
    std::uint64_t n_uses_ = 0;
    std::uint32_t n_made_ = 0;
};

}  // namespace tinfer::runtime
