// SPDX-License-Identifier: MIT
#include "model/paging.hpp"

#include <algorithm>
#include <limits>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/pager.hpp"

namespace tinfer::model {

namespace {

/// Of a stream: one that is multiplied, and one that is read meanwhile.
constexpr std::uint64_t kStreamUnits = 2;

/// Of plain rows: others are asked in their turn alone.
PagedRouter router_of(const LayerWeights& layer, const PagedGroup& group, int n_used) {
    const TensorInfo* rows = layer.ffn_gate_inp.weight;
    const bool can_be_asked = rows != nullptr && rows->ne[1] == group.n_units && rows->ne[2] == 1 && n_used > 0 &&
                              (rows->type == DType::f32 || rows->type == DType::f16 || rows->type == DType::bf16);
    PagedRouter router{.n_used = static_cast<std::uint32_t>(std::max(n_used, 0))};
    if (!can_be_asked) return router;
    router.id = rows->id;
    router.type = rows->type;
    router.n_in = static_cast<std::uint32_t>(rows->ne[0]);
    return router;
}

/// Stacked experts of each layer. Those that belong to groups of experts (grovemoe) are few, and stay in memory.
std::vector<PagedGroup> expert_groups(const BoundModel& model) {
    std::vector<PagedGroup> groups;
    std::vector<bool> seen(model.file->tensors().size());
    const auto end = std::min(model.weights.layers.size(), static_cast<std::size_t>(model.hp.end_layer()));
    for (auto il = static_cast<std::size_t>(model.hp.part.first); il < end; ++il) {
        const LayerWeights& layer = model.weights.layers[il];
        PagedGroup group{.tensors = {}, .layer = static_cast<std::int32_t>(il)};
        for (const Linear* linear :
             {&layer.ffn_gate_exps, &layer.ffn_up_exps, &layer.ffn_gate_up_exps, &layer.ffn_down_exps}) {
            const TensorInfo* tensor = linear->weight;
            if (tensor == nullptr || tensor->ne[2] < 2 || seen[tensor->id]) continue;  // layers may share tensors
            if (group.n_units != 0 && tensor->ne[2] != group.n_units) continue;
            seen[tensor->id] = true;
            group.n_units = static_cast<std::uint32_t>(tensor->ne[2]);
            group.tensors.push_back({std::string(tensor->name), static_cast<std::size_t>(tensor->file_index),
                                     tensor->file_offset, tensor->bytes / group.n_units, tensor->id});
        }
        if (group.tensors.empty()) continue;
        group.router = router_of(layer, group, model.hp.experts.used(il));
        groups.push_back(std::move(group));
    }
    return groups;
}

/// Matrices that steps read as a whole, each a group of its own, in the order in which a layer usually reads them.
std::vector<PagedGroup> matrices(const BoundModel& model, bool of_attention) {
    std::vector<PagedGroup> groups;
    std::vector<bool> seen(model.file->tensors().size());
    const auto end = std::min(model.weights.layers.size(), static_cast<std::size_t>(model.hp.end_layer()));
    for (auto il = static_cast<std::size_t>(model.hp.part.first); il < end; ++il) {
        const LayerWeights& w = model.weights.layers[il];
        const auto add = [&](const Linear& linear) {
            const TensorInfo* tensor = linear.weight;
            if (tensor == nullptr || tensor->ne[2] > 1 || seen[tensor->id]) return;  // layers may share tensors
            seen[tensor->id] = true;
            groups.push_back({.tensors = {{std::string(tensor->name), static_cast<std::size_t>(tensor->file_index),
                                           tensor->file_offset, tensor->bytes, tensor->id}},
                              .n_units = 1,
                              .layer = static_cast<std::int32_t>(il)});
        };
        if (of_attention)
            for (const Linear* linear : {&w.attn_qkv, &w.attn_q, &w.attn_k, &w.attn_v, &w.attn_output}) add(*linear);
        for (const Linear* linear : {&w.ffn_gate, &w.ffn_up, &w.ffn_down}) add(*linear);
    }
    return groups;
}

/// n of the groups, as evenly as they can lie: the storage has work while steps use what stays in memory.
std::vector<PagedGroup> spread(const std::vector<PagedGroup>& all, std::size_t n) {
    std::vector<PagedGroup> chosen;
    for (std::size_t i = 0; i < n; ++i) chosen.push_back(all[(2 * i + 1) * all.size() / (2 * n)]);
    return chosen;
}

std::int32_t most_used(const HParams& hp) noexcept {
    std::int32_t most = hp.experts.n_used;
    for (const int n : hp.experts.n_used_in) most = std::max(most, n);
    return most;
}

/// Units that must fit: those of one layer and one token, and as many that are read meanwhile. Without causality a call
/// is one micro-batch, which may choose every expert.
std::uint64_t least_units(const BoundModel& model, const PagingPlan& plan) noexcept {
    if (plan.streamed) return kStreamUnits;
    if (!model.hp.attention.causal) return plan.max_units;
    return std::min<std::uint64_t>(plan.max_units, 2 * static_cast<std::uint64_t>(most_used(model.hp)));
}

/// Fills in what the groups take. Returns the least limit that works with them.
std::uint64_t count(const BoundModel& model, PagingPlan& plan) {
    plan.resident_bytes = model.file->read_buffer_bytes();
    plan.unit_bytes = plan.max_units = 0;
    for (const PagedGroup& group : plan.groups) {
        for (const PagedSlices& slices : group.tensors)
            plan.resident_bytes -= *checked_round_up(slices.slice_bytes * group.n_units, 64);
        plan.unit_bytes = std::max(plan.unit_bytes, paged_unit_bytes(group));
        plan.max_units = std::max(plan.max_units, group.n_units);
    }
    plan.fixed_bytes = Pager::fixed_bytes(plan);
    return plan.resident_bytes + plan.fixed_bytes + least_units(model, plan) * plan.unit_bytes;
}

/// The fewest matrices with which the rest fits, of feed-forwards alone where that is enough.
PagingPlan plan_stream(const BoundModel& model, std::uint64_t limit) {
    PagingPlan plan{.groups = {}, .limit = limit, .streamed = true};
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    for (const bool of_attention : {false, true}) {
        const std::vector<PagedGroup> all = matrices(model, of_attention);
        for (std::size_t n = 2; n <= all.size(); ++n) {
            plan.groups = spread(all, n);
            const std::uint64_t needed = count(model, plan);
            least = std::min(least, needed);
            if (needed > limit) continue;
            plan.slot_bytes = limit - plan.resident_bytes - plan.fixed_bytes;
            return plan;
        }
    }
    const std::string text = cat(model.file->name(), ": ");
    if (plan.groups.empty())
        fail(ErrorCode::limit_exceeded,
             cat(text, "the weights take ", model.file->read_buffer_bytes(), " bytes, the memory limit is ", limit,
                 ", and none of them can be read when they are needed"));
    fail(ErrorCode::limit_exceeded,
         cat(text, "a memory limit of ", limit, " bytes is too small, at least ", least, " are needed"));
}

}  // namespace

std::optional<PagingPlan> plan_paging(const BoundModel& model, const ModelOptions& options) {
    if (options.memory_limit == 0) return std::nullopt;
    const std::uint64_t all = options.use_mmap ? model.info.weight_bytes : model.file->read_buffer_bytes();
    if (all <= options.memory_limit) return std::nullopt;
    PagingPlan plan{.groups = expert_groups(model), .limit = options.memory_limit};
    if (plan.groups.empty()) return plan_stream(model, options.memory_limit);
    const std::uint64_t least = count(model, plan);
    if (plan.limit < least)
        fail(ErrorCode::limit_exceeded,
             cat(model.file->name(), ": a memory limit of ", plan.limit, " bytes is too small, at least ", least,
                 " are needed (", plan.resident_bytes, " stay in memory, ", least_units(model, plan), " experts of ",
                 plan.unit_bytes, " each, ", plan.fixed_bytes, " for tables and buffers)"));
    plan.slot_bytes = plan.limit - plan.resident_bytes - plan.fixed_bytes;
    return plan;
}

std::int32_t tokens_of_slots(const BoundModel& model) noexcept {
    constexpr std::int32_t kAny = std::numeric_limits<std::int32_t>::max();
    if (!model.paging || model.paging->n_slots() >= model.paging->max_units) return kAny;
    return std::max(1, static_cast<std::int32_t>(model.paging->n_slots()) / std::max(1, most_used(model.hp)));
}

}  // namespace tinfer::model
