// SPDX-License-Identifier: MIT
#include "runtime/plan_cache.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tinfer::runtime {

using Work = PlanKey::Work;

PlanCache::PlanCache(const Layout& layout, const MemoryMap& memory)
    : layout_(layout), memory_(memory), graph_(layout.max_nodes(), layout.max_values()),
      planner_(layout.max_nodes(), layout.max_values()) {
    for (Slot& slot : slots_) slot.plan.reserve(layout.plan_size(), layout.kept().size());
}

void PlanCache::build(const PlanKey& key, model::AdapterMask adapters) {
    switch (key.work) {
        case Work::none: break;
        case Work::decode:
            return layout_.build(graph_, key.n_tokens, key.n_outputs, key.from_embeddings, adapters, key.draft_block);
        case Work::encode: return layout_.build_encoder(graph_, key.n_tokens, adapters);
        case Work::page_copies: return layout_.build_page_copies(graph_);
        case Work::compaction: return layout_.build_compaction(graph_);
        case Work::key_shift: return layout_.build_key_shift(graph_);
    }
}

bool PlanCache::fits(BoundPlan& bound) const {
    if (bound.plan.arena_bytes > layout_.arena_bytes()) return false;
    choose_kernels(graph_, bound.plan, layout_.table(), bound.kernels);
    return scratch_bytes(graph_, bound.plan, bound.kernels, layout_.max_threads()) <= layout_.scratch_bytes();
}

void PlanCache::make(Slot& slot, const PlanKey& key) {
    BoundPlan& bound = slot.plan;
    const auto plan_with = [&](model::AdapterMask adapters) {
        slot.adapters = adapters;
        build(key, adapters);
        planner_.make(graph_, {.fuse = layout_.options().fuse}, bound.plan);
    };
    plan_with(key.adapters);
    // Memory was measured for graphs with all adapters and with none: others are used where they need no more.
    if (key.adapters != model::kAllAdapters && !fits(bound)) plan_with(model::kAllAdapters);
    const bool has_kind = key.work == Work::decode || key.work == Work::encode;
    if (has_kind && bound.plan.arena_bytes > layout_.arena_bytes()) {
        // First fit is not monotone. The places of the largest plan of the kind, whose graph has the same values, fit.
        const auto& largest =
            layout_.worst_offsets({key.from_embeddings, key.n_outputs > 0, key.work == Work::encode, key.draft_block});
        const auto in_arena = [](std::uint64_t offset) { return offset != graph::kNotInArena; };
        if (!std::ranges::equal(largest, bound.plan.offsets, {}, in_arena, in_arena))
            fail(ErrorCode::compute_failed,
                 cat("the graph of ", key.n_tokens, " tokens and ", key.n_outputs,
                     " outputs has other results than the largest of its kind, and needs more memory"));
        bound.plan.offsets = largest;
        bound.plan.arena_bytes = layout_.arena_bytes();
    }
    if (bound.plan.arena_bytes > layout_.arena_bytes())  // a bug of ours, which must not write beyond it
        fail(ErrorCode::compute_failed, cat("a graph of ", key.n_tokens, " tokens needs ", bound.plan.arena_bytes,
                                            " bytes of memory, and the context has ", layout_.arena_bytes()));
    bind(graph_, layout_.table(), memory_, layout_.max_threads(), bound);
    bound.id = ++n_made_;
    built_ = &slot;
}

const BoundPlan& PlanCache::get(const PlanKey& key) {
    if (last_ == nullptr || last_->key != key) {  // most decodes are like the one before
        last_ = nullptr;
        auto slot = std::ranges::find(slots_, key, &Slot::key);
        if (slot == slots_.end()) {
            built_ = nullptr;
            slot = std::ranges::min_element(slots_, {}, &Slot::last_use);
            slot->key = {};
            make(*slot, key);
            slot->key = key;
        }
        last_ = &*slot;
    }
    last_->last_use = ++n_uses_;
    return last_->plan;
}

const graph::Graph& PlanCache::graph() {
    if (built_ != last_) {
        built_ = nullptr;
        build(last_->key, last_->adapters);
        built_ = last_;
    }
    return graph_;
}

}  // namespace tinfer::runtime
