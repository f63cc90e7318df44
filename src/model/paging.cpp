// SPDX-License-Identifier: MIT
#include "model/paging.hpp"

#include <algorithm>
#include <limits>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/pager.hpp"

namespace tinfer::model {

namespace {

/// Stacked experts of each layer. Those that belong to groups of experts (grovemoe) are few, and stay in memory.
std::vector<PagedGroup> expert_groups(const BoundModel& model) {
    std::vector<PagedGroup> groups;
    std::vector<bool> seen(model.file->tensors().size());
    const auto end = std::min(model.weights.layers.size(), static_cast<std::size_t>(model.hp.end_layer()));
    for (auto il = static_cast<std::size_t>(model.hp.part.first); il < end; ++il) {
        const LayerWeights& layer = model.weights.layers[il];
        PagedGroup group;
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
        if (!group.tensors.empty()) groups.push_back(std::move(group));
    }
    return groups;
}

std::int32_t most_used(const HParams& hp) noexcept {
    std::int32_t most = hp.experts.n_used;
    for (const int n : hp.experts.n_used_in) most = std::max(most, n);
    return most;
}

/// Units that must fit: those of one layer and one token, and as many that are read meanwhile. Without causality a call
/// is one micro-batch, which may choose every expert.
std::uint64_t least_units(const BoundModel& model, const PagingPlan& plan) noexcept {
    if (!model.hp.attention.causal) return plan.max_units;
    return std::min<std::uint64_t>(plan.max_units, 2 * static_cast<std::uint64_t>(most_used(model.hp)));
}

}  // namespace

std::optional<PagingPlan> plan_paging(const BoundModel& model, const ModelOptions& options) {
    if (options.memory_limit == 0) return std::nullopt;
    const std::uint64_t all = options.use_mmap ? model.info.weight_bytes : model.file->read_buffer_bytes();
    if (all <= options.memory_limit) return std::nullopt;
    PagingPlan plan{.groups = expert_groups(model), .limit = options.memory_limit};
    if (plan.groups.empty())
        fail(ErrorCode::limit_exceeded,
             cat(model.file->name(), ": the weights take ", all, " bytes, the memory limit is ", plan.limit,
                 ", and the model has no routed experts that could be read when they are needed"));
    plan.resident_bytes = model.file->read_buffer_bytes();
    for (const PagedGroup& group : plan.groups) {
        for (const PagedSlices& slices : group.tensors)
            plan.resident_bytes -= *checked_round_up(slices.slice_bytes * group.n_units, 64);
        plan.unit_bytes = std::max(plan.unit_bytes, paged_unit_bytes(group));
        plan.max_units = std::max(plan.max_units, group.n_units);
    }
    plan.fixed_bytes = Pager::fixed_bytes(plan);
    const std::uint64_t least = plan.resident_bytes + plan.fixed_bytes + least_units(model, plan) * plan.unit_bytes;
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
