// SPDX-License-Identifier: MIT
#include "trace/live/plan.hpp"

#include <algorithm>
#include <cstring>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "graph/rules.hpp"

namespace tinfer::trace {

PendingAccess& AccessCollector::add(std::uint16_t slot, AccessMode mode, AccessKind kind) {
    PendingAccess pending;
    pending.access.slot = slot;
    pending.access.mode = mode;
    pending.access.kind = kind;
    pending.first_range = static_cast<std::uint32_t>(ranges_.size());
    return accesses_.emplace_back(pending);
}

template <class Fn>
void AccessCollector::collect(Fn&& fn) noexcept {
    if (out_of_memory_) return;
    try {
        fn();
    } catch (...) {  // no memory: kernels are noexcept, so the caller asks afterwards
        out_of_memory_ = true;
    }
}

void AccessCollector::whole(std::uint16_t slot, AccessMode mode, std::uint16_t passes) {
    if (slot != kernels::kScratchSlot)
        collect([&] { add(slot, mode, AccessKind::whole).access.passes = passes; });  // scratch is added by the plan
}

void AccessCollector::range(std::uint16_t slot, AccessMode mode, const AccessRange& range) {
    const auto same = [&](const PendingAccess& p) { return p.access.slot == slot && p.access.mode == mode; };
    collect([&] {
        if (accesses_.size() == first_ || !same(accesses_.back())) add(slot, mode, AccessKind::ranges);
        ranges_.push_back(range);
        ++accesses_.back().n_ranges;
    });
}

void AccessCollector::dynamic(std::uint16_t slot, AccessMode mode) {
    collect([&] { add(slot, mode, AccessKind::ranges).dynamic = true; });
}

namespace {

TensorInfo describe_value(const graph::Value& v, std::uint32_t id, std::string_view name) {
    TensorInfo info;
    info.id = 0x80000000u | id;
    info.name = name;
    info.tensor_class = v.tensor_class == TensorClass::value && v.output ? TensorClass::output : v.tensor_class;
    info.type = v.type;
    info.layer = v.layer;
    info.role = v.role;
    info.ne = v.ne;
    info.n_dims = 4;
    while (info.n_dims > 1 && v.ne[static_cast<std::size_t>(info.n_dims) - 1] == 1) --info.n_dims;
    info.row_bytes = static_cast<std::uint64_t>(row_bytes(v.type, v.ne[0]));
    info.bytes = info.row_bytes * static_cast<std::uint64_t>(v.ne[1] * v.ne[2] * v.ne[3]);
    return info;
}

ViewShape view_shape(std::span<const graph::Value> values, std::uint32_t id) {
    const graph::Value& v = values[id];
    if (!v.is_view || v.tensor_class == TensorClass::cache_k || v.tensor_class == TensorClass::cache_v) return {};
    const graph::Value& root = values[v.root];
    const auto size = [](const graph::Value& x) { return row_bytes(x.type, x.ne[0]) * x.ne[1] * x.ne[2] * x.ne[3]; };
    if (v.nb == graph::contiguous_strides(v.type, v.ne) && size(v) == size(root)) return {};
    ViewShape shape{.whole = false,
                    .offset = static_cast<std::uint64_t>(v.offset),
                    .length = static_cast<std::uint64_t>(row_bytes(v.type, v.ne[0]))};
    for (std::size_t d = 0; d < 3; ++d) {
        shape.count[d] = static_cast<std::uint64_t>(v.ne[d + 1]);
        shape.stride[d] = static_cast<std::uint64_t>(v.nb[d + 1]);
    }
    return shape;
}

}  // namespace

MovedBytes::MovedBytes(std::span<const Access> accesses) noexcept {
    for (const Access& access : accesses) {
        if (access.scratch) continue;
        const std::uint64_t bytes = access.bytes();
        if (access.mode != AccessMode::write) read += bytes;
        if (access.mode != AccessMode::read) written += bytes;
        if (access.tensor->tensor_class == TensorClass::weight) weights += bytes;
    }
}

std::string_view TracePlan::keep(std::string text) { return texts_.emplace_back(std::move(text)); }

void TracePlan::add_values(const graph::Graph& graph, const GraphTensors& tensors) {
    const auto values = graph.values();
    tensors_.resize(values.size(), nullptr);
    own_.resize(values.size(), nullptr);
    values_.reserve(values.size());  // pointers to them must stay
    for (std::uint32_t id = 0; id < values.size(); ++id) {
        const graph::Value& v = values[id];
        if (v.is_view) continue;
        switch (v.tensor_class) {
            case TensorClass::weight:
            case TensorClass::cache_k:
            case TensorClass::cache_v:
            case TensorClass::recurrent:
            case TensorClass::adapter: tensors_[id] = &tensors[v.tensor]; break;
            default:
                tensors_[id] = own_[id] = &values_.emplace_back(describe_value(v, id, keep(graph.display_name(id))));
                break;
        }
        if (v.tensor_class == TensorClass::input) inputs_.push_back({tensors_[id], v.role});
    }
    for (std::uint32_t id = 0; id < values.size(); ++id)
        if (values[id].is_view) {
            tensors_[id] = tensors_[values[id].root];
            own_[id] = own_[values[id].root];
        }
}

void TracePlan::add_nodes(const graph::Graph& graph, const graph::Plan& plan) {
    const auto nodes = graph.nodes();
    std::vector<std::uint32_t> step_of(nodes.size(), graph::kNone);
    for (std::uint32_t s = 0; s < plan.steps.size(); ++s)
        for (std::uint32_t i = 0; i < plan.steps[s].n_nodes; ++i)
            step_of[plan.step_nodes[plan.steps[s].first_node + i]] = s;
    std::size_t n_inputs = 0;
    for (const graph::Node& node : nodes) n_inputs += node.n_inputs;
    node_inputs_.reserve(n_inputs);  // spans into them must stay
    node_shapes_.reserve(n_inputs);
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
        const graph::Node& node = nodes[i];
        NodeView view;
        view.number = i;
        view.name = keep(graph.display_name(node.output));
        view.op = node.op;
        view.layer = node.layer;
        view.part = node.part;
        view.step = step_of[i];
        view.output = tensors_[node.output];
        const std::size_t first = node_inputs_.size();
        for (std::uint32_t k = 0; k < node.n_inputs; ++k) {
            const bool given = node.inputs[k] != graph::kNone;
            node_inputs_.push_back(given ? tensors_[node.inputs[k]] : nullptr);
            node_shapes_.push_back(given ? view_shape(graph.values(), node.inputs[k]) : ViewShape{});
        }
        view.inputs = std::span(node_inputs_).subspan(first);
        view.shapes = std::span(node_shapes_).subspan(first);
        if (node.op == Op::select_keys) view.block = node.params.whole_blocks != 0 ? node.params.block : 0;
        nodes_.push_back(view);
    }
}

// The tensor of each slot of a step. A plan is bound once, so its results and inputs have one address too.
void TracePlan::add_slots(const graph::Graph& graph, const BoundSteps& bound, std::size_t s) {
    const graph::Step& step = bound.plan->steps[s];
    StepPart& part = parts_.emplace_back();
    for (std::uint32_t i = 0; i < step.n_operands; ++i) {
        const graph::StepOperand& operand = bound.plan->operands[step.first_operand + i];
        if (operand.elided) continue;
        const auto offset = static_cast<std::uint64_t>(graph.values()[operand.value].offset);
        part.slots[operand.slot] = {tensors_[operand.value], offset};
        if (TensorInfo* own = own_[operand.value]) own->address = bound.calls[s][operand.slot].data - offset;
    }
}

// What the kernel declares, then what no kernel knows: elided results and scratch.
void TracePlan::add_accesses(const BoundSteps& bound, std::size_t s) {
    const graph::Step& step = bound.plan->steps[s];
    const auto first = static_cast<std::uint32_t>(accesses_.size());
    AccessCollector collector(accesses_, ranges_);
    collector.start();
    bound.kernels[s]->declare(bound.calls[s], collector);
    collector.check();
    complete(s, std::span(accesses_).subspan(first), ranges_);
    const auto add = [&](const Access& access) { accesses_.push_back({.access = access}); };
    for (std::uint32_t i = 0; i < step.n_operands; ++i) {
        const graph::StepOperand& operand = bound.plan->operands[step.first_operand + i];
        if (operand.elided)
            add({tensors_[operand.value], operand.slot, operand.mode, AccessKind::elided, 1, false, {}});
    }
    if (bound.calls[s][kernels::kScratchSlot].present())
        add({&scratch_, kernels::kScratchSlot, AccessMode::read_write, AccessKind::whole, 1, true, {}});
    parts_[s].first_access = first;
    parts_[s].n_accesses = static_cast<std::uint32_t>(accesses_.size()) - first;
}

void TracePlan::add_view(const BoundSteps& bound, std::size_t s, std::string_view table) {
    const graph::Step& step = bound.plan->steps[s];
    StepView view;
    view.number = static_cast<std::uint32_t>(s);
    view.op = step.op;
    view.kernel = keep(cat(bound.kernels[s]->name, ".", table));
    view.layer = step.layer;
    view.part = step.part;
    view.fused = step.n_nodes > 1;
    const std::size_t first = step_nodes_.size();
    for (std::uint32_t i = 0; i < step.n_nodes; ++i)
        step_nodes_.push_back(&nodes_[bound.plan->step_nodes[step.first_node + i]]);
    view.nodes = std::span(step_nodes_).subspan(first);
    steps_.push_back(view);
}

void TracePlan::add_operands() {
    for (const PendingAccess& pending : accesses_) {
        Access access = pending.access;
        access.ranges = std::span(ranges_).subspan(pending.first_range, pending.n_ranges);
        operands_.push_back(access);
    }
    for (std::size_t s = 0; s < steps_.size(); ++s)
        steps_[s].operands = std::span(operands_).subspan(parts_[s].first_access, parts_[s].n_accesses);
}

void TracePlan::add_steps(const graph::Graph& graph, const BoundSteps& bound, std::string_view table) {
    step_nodes_.reserve(bound.plan->step_nodes.size());  // spans into it must stay
    for (std::size_t s = 0; s < bound.plan->steps.size(); ++s) {
        add_slots(graph, bound, s);
        add_accesses(bound, s);
        add_view(bound, s, table);
    }
    add_operands();
    known_.resize(steps_.size());
    known_weights_.assign(1, 0);
    sources_.resize(steps_.size());
    for (std::uint32_t s = 0; s < steps_.size(); ++s) {
        const kernels::KernelDescriptor& kernel = *bound.kernels[s];
        sources_[s] = kernel.resolve == nullptr ? Source::plan : Source::kernel;
        if (kernel.resolve == nullptr)
            known_[s] = {MovedBytes(steps_[s].operands), kernel.macs != nullptr ? kernel.macs(bound.calls[s]) : 0};
        else data_dependent_.push_back(s);
        // The multiply-accumulates of attention depend on the visible slots; those of all other steps on shapes alone.
        if (steps_[s].op != Op::attention) steps_[s].macs = kernel.macs != nullptr ? kernel.macs(bound.calls[s]) : 0;
        known_weights_.push_back(known_weights_.back() + known_[s].bytes.weights);
    }
    add_expectations();
    find_repeats(bound);
}

// Most steps read whole weights whatever their inputs are, so their expectation is computed once for all runs.
void TracePlan::add_expectations() {
    expected_weights_.assign(1, 0);
    for (std::uint32_t s = 0; s < steps_.size(); ++s) {
        bool needs_data = false;
        const std::uint64_t bytes = expected_of(s, [&](const TensorInfo& ids) -> std::span<const std::byte> {
            static constexpr std::array<std::byte, sizeof(std::int32_t)> kRow{};
            if (ids.bytes == kRow.size()) return kRow;  // one row: all are of one size
            needs_data = true;
            return {};
        });
        if (needs_data) expectation_needs_data_.push_back(s);
        expected_weights_.push_back(expected_weights_.back() + (needs_data ? 0 : bytes));
    }
}

std::uint64_t TracePlan::expected_of(std::size_t step, const DataOf& data) const {
    std::vector<ExpectedAccess> accesses;
    for (const NodeView* node : steps_[step].nodes)
        if (std::ranges::any_of(node->inputs, [](const TensorInfo* t) {
                return t != nullptr && t->tensor_class == TensorClass::weight;
            }))
            expect(*node, data, accesses);
    return weight_bytes(accesses);
}

std::uint64_t TracePlan::expected_weight_bytes(std::size_t n_steps, const DataOf& data) const {
    std::uint64_t sum = expected_weights_[n_steps];
    for (const std::uint32_t step : expectation_needs_data_)
        if (step < n_steps) sum += expected_of(step, data);
    return sum;
}

// True if two steps always touch the same ranges: the same kernel, parameters and shapes, tensors of equal size, and
// the same ids. Ids must be inputs of the graph, because those that a step computes lie in memory that other steps use
// again.
bool TracePlan::resolve_same(const BoundSteps& bound, std::size_t a, std::size_t b) const noexcept {
    const kernels::KernelCall &x = bound.calls[a], &y = bound.calls[b];
    if (bound.kernels[a] != bound.kernels[b] || std::memcmp(&x.params, &y.params, sizeof(x.params)) != 0) return false;
    for (int slot = 0; slot < kernels::kScratchSlot; ++slot) {
        const kernels::Operand &p = x[slot], &q = y[slot];
        const Slot &of_p = parts_[a].slots[static_cast<std::size_t>(slot)],
                   &of_q = parts_[b].slots[static_cast<std::size_t>(slot)];
        if ((of_p.tensor == nullptr) != (of_q.tensor == nullptr) ||
            (of_p.tensor != nullptr && of_p.tensor->bytes != of_q.tensor->bytes))
            return false;
        if (p.type != q.type || p.ne != q.ne || p.nb != q.nb || p.bytes != q.bytes || of_p.offset != of_q.offset)
            return false;
        if (p.type == DType::i32 &&
            (p.data != q.data || of_p.tensor == nullptr || of_p.tensor->tensor_class != TensorClass::input))
            return false;
    }
    return MovedBytes(steps_[a].operands) ==
           MovedBytes(steps_[b].operands);  // what is known before: results that stay in a kernel, too
}

void TracePlan::find_repeats(const BoundSteps& bound) {
    same_as_.resize(steps_.size());
    std::vector<std::uint32_t> firsts;  // steps that others may repeat: few, as most repeat these
    for (std::uint32_t s = 0; s < steps_.size(); ++s) {
        if (sources_[s] == Source::plan) continue;
        const auto same =
            std::ranges::find_if(firsts, [&](std::uint32_t first) { return resolve_same(bound, first, s); });
        if (same == firsts.end()) {
            firsts.push_back(s);
        } else {
            sources_[s] = Source::same_as;
            same_as_[s] = *same;
        }
    }
}

void TracePlan::complete(std::size_t step, std::span<PendingAccess> accesses,
                         std::vector<AccessRange>& ranges) const noexcept {
    for (PendingAccess& pending : accesses) {
        const Slot& slot = parts_[step].slots[pending.access.slot];
        pending.access.tensor = slot.tensor;
        const auto own = std::span(ranges).subspan(pending.first_range, pending.n_ranges);
        for (AccessRange& range : own) {
            range.offset += slot.offset;
            if (range.count == 1) range.stride = 0;
        }
        // Storage is padded to cache lines, so a kernel cannot tell a whole tensor by its size; an untagged range can.
        if (own.size() == 1 && own[0].tag == 0 && own[0].weight == 0 && own[0].length == slot.tensor->bytes) {
            pending.access.kind = AccessKind::whole;
            pending.n_ranges = 0;
        }
    }
}

std::array<std::uint8_t, 16> TracePlan::hash_of(const graph::Graph& graph, const BoundSteps& bound,
                                                std::string_view table) {
    std::vector<std::string> texts;
    for (const auto* kernel : bound.kernels) texts.push_back(cat(kernel->name, ".", table));
    const std::vector<std::string_view> names(texts.begin(), texts.end());
    return graph::plan_hash(graph, *bound.plan, names);
}

TracePlan::TracePlan(const graph::Graph& graph, const BoundSteps& bound, const GraphTensors& tensors,
                     std::string_view table, std::string_view architecture, std::uint32_t n_tokens, std::uint32_t id,
                     const std::array<std::uint8_t, 16>& hash) {
    scratch_.name = "scratch";
    scratch_.role = "scratch";
    scratch_.tensor_class = TensorClass::scratch;
    scratch_.type = DType::i8;
    scratch_.id = 0xFFFFFFFF;
    for (const kernels::KernelCall& call : bound.calls)
        scratch_.bytes = std::max({scratch_.bytes, call[kernels::kScratchSlot].bytes,
                                   static_cast<std::uint64_t>(call.scratch_stride * call.n_threads)});
    add_values(graph, tensors);
    add_nodes(graph, *bound.plan);
    add_steps(graph, bound, table);
    view_.id = id;
    view_.hash = hash;
    view_.n_tokens = n_tokens;
    view_.architecture = keep(std::string(architecture));
    view_.nodes = nodes_;
    view_.steps = steps_;
    view_.values = values_;
}

std::span<const PendingAccess> TracePlan::declared(std::size_t step) const noexcept {
    return std::span(accesses_).subspan(parts_[step].first_access, parts_[step].n_accesses);
}

const TensorInfo* TracePlan::tensor(std::size_t step, std::uint16_t slot) const noexcept {
    return slot < kernels::kMaxOperands ? parts_[step].slots[slot].tensor : nullptr;
}

}  // namespace tinfer::trace
