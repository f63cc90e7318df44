// SPDX-License-Identifier: MIT
#include "runtime/plan_cache.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tinfer::runtime {

using Work = PlanKey::Work;

PlanCache::PlanCache(const Layout& layout, const MemoryMap& memory)
    : layout_(layout), memory_(memory), graph_(layout.max_nodes(), layout.max_values()),
      planner_(layout.max_nodes(), layout.max_values()) {
    for (Slot& slot : slots_) slot.plan.reserve(layout.max_nodes(), layout.max_values());
}

void PlanCache::build(const PlanKey& key) {
    switch (key.work) {
        case Work::none: break;
        case Work::decode: return layout_.build(graph_, key.n_tokens, key.n_outputs, key.from_embeddings);
        case Work::encode: return layout_.build_encoder(graph_, key.n_tokens);
        case Work::page_copies: return layout_.build_page_copies(graph_);
        case Work::compaction: return layout_.build_compaction(graph_);
        case Work::key_shift: return layout_.build_key_shift(graph_);
    }
}

void PlanCache::make(const PlanKey& key, BoundPlan& bound) {
    planner_.make(graph_, {.fuse = layout_.options().fuse}, bound.plan);
    const bool has_kind = key.work == Work::decode || key.work == Work::encode;
    if (has_kind && bound.plan.arena_bytes > layout_.arena_bytes()) {
        // First fit is not monotone: the largest plan's offsets always fit.
        bound.plan.offsets = layout_.worst_offsets({key.from_embeddings, key.n_outputs > 0, key.work == Work::encode});
        bound.plan.arena_bytes = layout_.arena_bytes();
    }
    TINFER_ASSERT(bound.plan.arena_bytes <= layout_.arena_bytes());
    bind(graph_, layout_.table(), memory_, layout_.max_threads(), bound);
    bound.id = ++n_made_;
}

const BoundPlan& PlanCache::get(const PlanKey& key) {
    if (built_ != nullptr && built_->key == key) {  // as for most decodes: the one before was like it
        built_->last_use = ++n_uses_;
        return built_->plan;
    }
    built_ = nullptr;
    build(key);
    auto slot = std::ranges::find(slots_, key, &Slot::key);
    if (slot == slots_.end()) {
        slot = std::ranges::min_element(slots_, {}, &Slot::last_use);
        slot->key = {};
        make(key, slot->plan);
        slot->key = key;
    }
    slot->last_use = ++n_uses_;
    built_ = &*slot;
    return slot->plan;
}

}  // namespace tinfer::runtime
