// SPDX-License-Identifier: MIT
#include "runtime/binding.hpp"

#include <algorithm>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/ops.hpp"

namespace tinfer::runtime {

namespace {

const graph::Value& root_of(const graph::Graph& graph, std::uint32_t value) {
    const graph::Value& v = graph.values()[value];
    return v.is_view ? graph.values()[v.root] : v;
}

kernels::Operand operand_of(const graph::Graph& graph, std::uint32_t id) {
    const graph::Value& v = graph.values()[id];
    kernels::Operand out;
    out.type = v.type;
    out.ne = v.ne;
    out.nb = v.nb;
    // Exact bytes, without the arena's padding: what "whole" means in a trace.
    const graph::Value& root = root_of(graph, id);
    out.bytes = static_cast<std::uint64_t>(row_bytes(root.type, root.ne[0]) * root.ne[1] * root.ne[2] * root.ne[3]);
    return out;
}

std::byte* address_of(const graph::Graph& graph, const graph::Plan& plan, const MemoryMap& memory, std::uint32_t id) {
    const graph::Value& v = graph.values()[id];
    const std::uint32_t root_id = v.is_view ? v.root : id;
    const graph::Value& root = graph.values()[root_id];
    std::byte* base = nullptr;
    switch (root.tensor_class) {
        case TensorClass::weight:
            if (root.tensor < memory.paged.size() && memory.paged[root.tensor].address != nullptr) {
                base = memory.paged[root.tensor].address;
                break;
            }
            [[fallthrough]];
        case TensorClass::cache_k:
        case TensorClass::cache_v:
        case TensorClass::recurrent:
        case TensorClass::adapter:
            base = static_cast<std::byte*>(const_cast<void*>(memory.tensors[root.tensor].address));
            break;
        case TensorClass::input:
            for (const InputPlace& input : memory.inputs)
                if (input.role == root.role) base = input.data;
            break;
        default: base = memory.arena + plan.offsets[root_id]; break;
    }
    return base + v.offset;
}

}  // namespace

void BoundPlan::reserve(const graph::PlanSize& size, std::size_t n_kept) {
    size.reserve(plan);
    kernels.reserve(size.n_steps);
    calls.reserve(size.n_steps);
    barriers.reserve(size.n_steps);
    declared.reserve(size.n_steps);
    needs.reserve(size.n_steps);
    outputs.reserve(kMaxOutputs + n_kept);
}

std::uint64_t BoundPlan::bytes(const graph::PlanSize& size, std::size_t n_kept) noexcept {
    return size.bytes() +
           size.n_steps * (sizeof(kernels::KernelDescriptor*) + sizeof(kernels::KernelCall) + sizeof(std::uint8_t) +
                           sizeof(DeclaredBytes) + sizeof(PagedNeed)) +
           (kMaxOutputs + n_kept) * sizeof(OutputValue);
}

void choose_kernels(const graph::Graph& graph, const graph::Plan& plan, const kernels::KernelTable& table,
                    std::vector<const kernels::KernelDescriptor*>& out) {
    out.clear();
    for (const graph::Step& step : plan.steps) {
        const int slot = selecting_slot(step.op);
        DType type = DType::none;
        std::uint32_t selecting = graph::kNone;
        for (std::uint32_t i = 0; i < step.n_operands && slot >= 0; ++i) {
            const graph::StepOperand& operand = plan.operands[step.first_operand + i];
            if (operand.slot != slot || operand.elided) continue;
            selecting = operand.value;
            type = graph.values()[operand.value].type;
        }
        const kernels::KernelDescriptor* kernel = table.find(step.op, type);
        if (kernel == nullptr)
            fail(ErrorCode::unsupported_tensor_type,
                 cat("no kernel for ", to_string(step.op), " with type ", to_string(type), " in table ", table.name,
                     selecting == graph::kNone ? std::string()
                                               : cat(", tensor '", escaped(graph.display_name(selecting)), "'")));
        out.push_back(kernel);
    }
}

kernels::KernelCall make_call(const graph::Graph& graph, const graph::Plan& plan, const graph::Step& step,
                              int n_threads) {
    kernels::KernelCall call;
    call.params = step.params;
    call.n_threads = n_threads;
    for (std::uint32_t i = 0; i < step.n_operands; ++i) {
        const graph::StepOperand& operand = plan.operands[step.first_operand + i];
        if (!operand.elided) call.operands[operand.slot] = operand_of(graph, operand.value);
    }
    return call;
}

std::uint64_t scratch_bytes(const graph::Graph& graph, const graph::Plan& plan,
                            std::span<const kernels::KernelDescriptor* const> kernels, int n_threads) {
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < plan.steps.size(); ++i)
        if (kernels[i]->scratch_bytes != nullptr)
            most = std::max(most, kernels[i]->scratch_bytes(make_call(graph, plan, plan.steps[i], n_threads)));
    return most;
}

namespace {

/// Memory that a step touches.
struct Touched {
    const std::byte *begin, *end;
    bool written;
    bool own_parts = false;  ///< scratch of a product: each thread keeps to its part, which is the same in all products
    [[nodiscard]] bool conflicts(const Touched& other) const noexcept {
        if (own_parts && other.own_parts) return false;
        return (written || other.written) && begin < other.end && other.begin < end;
    }
};

// Memory of step i that other threads may see.
std::size_t touched_by(const BoundPlan& bound, std::size_t i,
                       std::array<Touched, kernels::kMaxOperands>& out) noexcept {
    const graph::Step& step = bound.plan.steps[i];
    std::size_t n = 0;
    for (const graph::StepOperand& operand :
         std::span(bound.plan.operands).subspan(step.first_operand, step.n_operands)) {
        if (operand.elided) continue;
        const kernels::Operand& x = bound.calls[i][operand.slot];
        out[n++] = {x.data, x.data + x.bytes, operand.mode != AccessMode::read};
    }
    // Products keep to their thread's own part of scratch, which lies at the same place in all of them.
    const kernels::Operand& scratch = bound.calls[i][kernels::kScratchSlot];
    const kernels::KernelCall& call = bound.calls[i];
    if (scratch.present() && is_product(step.op))
        out[n++] = {scratch.data, scratch.data + call.scratch_stride * call.n_threads, true, true};
    else if (scratch.present()) out[n++] = {scratch.data, scratch.data + scratch.bytes, true};
    return n;
}

// A barrier stands before each step that reads what a step since the last barrier wrote, or writes what one of them
// touched. Others need none: Q, K and V, say, or gate and up, are made by threads that do not wait for each other.
void place_barriers(BoundPlan& bound) {
    const std::size_t n_steps = bound.calls.size();
    bound.barriers.assign(n_steps, 1);
    std::array<Touched, kMaxStepsBetweenBarriers * kernels::kMaxOperands> since;
    std::array<Touched, kernels::kMaxOperands> touched;
    std::size_t n_since = 0, n_steps_since = 0;
    for (std::size_t i = 0; i < n_steps; ++i) {
        const std::size_t n = touched_by(bound, i, touched);
        bool conflict = n_steps_since == kMaxStepsBetweenBarriers;
        for (std::size_t k = 0; k < n_since && !conflict; ++k)
            for (std::size_t j = 0; j < n && !conflict; ++j) conflict = since[k].conflicts(touched[j]);
        if (i > 0) bound.barriers[i - 1] = conflict ? 1 : 0;
        if (conflict) n_since = n_steps_since = 0;
        std::copy_n(touched.begin(), n, since.begin() + static_cast<std::ptrdiff_t>(n_since));
        n_since += n;
        ++n_steps_since;
    }
}

// Tells each product which one is next, so that it can prefetch. A routed product is announced only by one with the
// same expert ids: nobody else knows its experts.
void link_products(BoundPlan& bound) {
    const auto ids_of = [&](const graph::Step& step) {
        const auto operands = std::span(bound.plan.operands).subspan(step.first_operand, step.n_operands);
        const auto ids = std::ranges::find(operands, 3, &graph::StepOperand::slot);
        return ids == operands.end() ? graph::kNone : ids->value;
    };
    const auto finds = [&](std::size_t at, std::size_t next) {
        const graph::Step &step = bound.plan.steps[at], &then = bound.plan.steps[next];
        if (then.op == Op::mul_mat || then.op == Op::mul_mat_add) return true;
        return step.op == Op::mul_mat_id && then.op == step.op && ids_of(step) == ids_of(then) &&
               bound.calls[at][1].ne[2] == bound.calls[next][1].ne[2];
    };
    std::size_t next = 0;
    for (std::size_t at = bound.calls.size(); at-- > 0;) {
        if (!is_product(bound.plan.steps[at].op)) continue;
        if (next != 0 && finds(at, next)) bound.calls[at].next_product = static_cast<std::int64_t>(next - at);
        next = at;
    }
}

// The value in a slot of a step; kNone: there is none.
std::uint32_t value_in(const BoundPlan& bound, const graph::Step& step, std::uint16_t slot) {
    for (const graph::StepOperand& operand :
         std::span(bound.plan.operands).subspan(step.first_operand, step.n_operands))
        if (operand.slot == slot && !operand.elided) return operand.value;
    return graph::kNone;
}

bool is_plain_product(Op op) noexcept { return op == Op::mul_mat || op == Op::mul_mat_add; }

// Which steps need experts that are paged. Those of a layer with the same ids need the same ones.
void find_needs(const graph::Graph& graph, const MemoryMap& memory, BoundPlan& bound) {
    constexpr std::uint16_t kWeightSlot = 1, kIdsSlot = 3;  // of mul_mat_id (kernels/ops.hpp)
    bound.needs.assign(bound.calls.size(), {});
    if (memory.paged.empty()) return;
    for (std::size_t i = 0; i < bound.calls.size(); ++i) {
        const graph::Step& step = bound.plan.steps[i];
        for (const graph::StepOperand& operand :
             std::span(bound.plan.operands).subspan(step.first_operand, step.n_operands)) {
            if (operand.elided) continue;
            const graph::Value& value = graph.values()[operand.value];
            const graph::Value& root = value.is_view ? graph.values()[value.root] : value;
            if (root.tensor_class != TensorClass::weight || root.tensor >= memory.paged.size()) continue;
            const std::int32_t group = memory.paged[root.tensor].group;
            if (operand.slot == kWeightSlot && is_plain_product(step.op))
                bound.needs[i].asks_for_group = memory.paged[root.tensor].next_group;
            if (group < 0) continue;
            const bool by_ids = step.op == Op::mul_mat_id;
            if (!(by_ids || is_plain_product(step.op)) || operand.slot != kWeightSlot ||
                value.is_view)  // a bug of ours
                fail(ErrorCode::compute_failed,
                     cat("step ", i, " reads '", escaped(graph.display_name(operand.value)), "', which is paged"));
            bound.needs[i].group = group;
            bound.needs[i].first = static_cast<std::uint32_t>(i);
            bound.needs[i].by_ids = by_ids;
            if (!by_ids) {  // what it needs comes and goes while no thread is at work on another step
                if (i > 0) bound.barriers[i - 1] = 1;
                bound.barriers[i] = 1;
                if (i + 1 < bound.calls.size()) bound.needs[i + 1].releases = true;
                continue;
            }
            for (std::size_t k = i; k-- > 0;) {
                if (bound.needs[k].group < 0) continue;
                const bool same = bound.needs[k].group == group &&
                                  value_in(bound, bound.plan.steps[k], kIdsSlot) == value_in(bound, step, kIdsSlot);
                if (same) bound.needs[i].first = bound.needs[k].first;
                break;
            }
        }
    }
}

}  // namespace

void bind(const graph::Graph& graph, const kernels::KernelTable& table, const MemoryMap& memory, int n_threads,
          BoundPlan& bound) {
    const graph::Plan& plan = bound.plan;
    choose_kernels(graph, plan, table, bound.kernels);
    bound.outputs.clear();
    for (const graph::Value& value : graph.values())
        if (value.output)
            bound.outputs.push_back(
                {.role = value.role,
                 .layer = value.layer,
                 .offset = plan.offsets[value.root] + (value.is_view ? value.offset : 0),
                 .width = static_cast<std::size_t>(value.ne[0]),
                 .size = static_cast<std::size_t>(value.ne[0] * value.ne[1] * value.ne[2] * value.ne[3])});
    bound.calls.clear();
    bound.declared.clear();
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
        const graph::Step& step = plan.steps[i];
        kernels::KernelCall call = make_call(graph, plan, step, n_threads);
        call.processor = memory.processor;
        if (bound.kernels[i]->scratch_bytes != nullptr) {
            kernels::Operand& scratch = call.operands[kernels::kScratchSlot];
            scratch.bytes = bound.kernels[i]->scratch_bytes(call);
            if (scratch.bytes > memory.scratch_bytes)  // a bug of ours, which must not write beyond it
                fail(ErrorCode::compute_failed, cat("kernel ", bound.kernels[i]->name, " needs ", scratch.bytes,
                                                    " bytes of scratch, and the context has ", memory.scratch_bytes));
            scratch.type = DType::i8;
            scratch.ne = {static_cast<std::int64_t>(scratch.bytes), 1, 1, 1};
            scratch.data = memory.scratch;
            if (is_product(step.op))
                call.scratch_stride = static_cast<std::int64_t>(memory.scratch_bytes) / n_threads / 64 * 64;
        }
        for (std::uint32_t k = 0; k < step.n_operands; ++k) {
            const graph::StepOperand& operand = plan.operands[step.first_operand + k];
            if (!operand.elided) call.operands[operand.slot].data = address_of(graph, plan, memory, operand.value);
        }
        bound.declared.push_back(declared_bytes(*bound.kernels[i], call));
        bound.calls.push_back(call);
    }
    place_barriers(bound);
    link_products(bound);
    find_needs(graph, memory, bound);
}

}  // namespace tinfer::runtime
