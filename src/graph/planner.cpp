// SPDX-License-Identifier: MIT
// From nodes to steps with operands, and a place in the arena for every result. Steps keep the order of the nodes;
// memory is first fit at ascending offsets, and a result's place is free again after the last step that reads it.
#include <algorithm>
#include <utility>

#include "base/dtype.hpp"
#include "graph/fuse.hpp"
#include "graph/plan.hpp"

namespace tinfer::graph {

std::uint64_t storage_bytes(const Value& value) noexcept {
    const std::int64_t bytes = row_bytes(value.type, value.ne[0]) * value.ne[1] * value.ne[2] * value.ne[3];
    return (static_cast<std::uint64_t>(bytes) + 63) / 64 * 64;
}

void PlanSize::include(const Plan& plan) noexcept {
    n_steps = std::max(n_steps, plan.steps.size());
    n_nodes = std::max(n_nodes, plan.step_nodes.size());
    n_operands = std::max(n_operands, plan.operands.size());
    n_dead = std::max(n_dead, plan.dead.size());
    n_values = std::max(n_values, plan.offsets.size());
}

void PlanSize::reserve(Plan& plan) const {
    plan.steps.reserve(n_steps);
    plan.step_nodes.reserve(n_nodes);
    plan.operands.reserve(n_operands);
    plan.dead.reserve(n_dead);
    plan.offsets.reserve(n_values);
}

std::uint64_t PlanSize::bytes() const noexcept {
    return n_steps * sizeof(Step) + (n_nodes + n_dead) * sizeof(std::uint32_t) + n_operands * sizeof(StepOperand) +
           n_values * sizeof(std::uint64_t);
}

struct Planner::Work {
    struct Block {
        std::uint64_t offset, size;
        std::uint32_t value;
    };

    Fusion fusion;
    std::vector<std::uint32_t> last_step;  ///< per root in the arena: the last step that touches it
    std::vector<Block> live;               ///< by ascending offset

    Work(std::uint32_t nodes, std::uint32_t values) {
        fusion.reserve(nodes, values);
        last_step.reserve(values);
        live.reserve(values);
    }

    void add_step(const Graph& graph, const FusedGroup& group, Plan& plan) const;
    void find_last_steps(const Graph& graph, const Plan& plan);
    void place(const Graph& graph, Plan& plan);
    std::uint64_t first_fit(std::uint64_t size, std::uint32_t value);
};

std::uint64_t Planner::bytes(std::uint32_t max_nodes, std::uint32_t max_values) noexcept {
    return sizeof(Work) + max_nodes * sizeof(FusedGroup) +
           max_values * (sizeof(ValueUses) + sizeof(std::uint32_t) + sizeof(Work::Block));
}

namespace {

// The places of the operands of one step, slot by slot.
class OperandList {
public:
    OperandList(std::vector<StepOperand>& out, std::span<const Value> values) noexcept : out_(out), values_(values) {}

    void write(std::uint16_t slot, std::uint32_t value) { out_.push_back({value, AccessMode::write, slot, false}); }
    /// A result that stays in registers: nobody can read it afterwards.
    void elided(std::uint16_t slot, std::uint32_t value) { out_.push_back({value, AccessMode::write, slot, true}); }
    void read(std::uint16_t slot, std::uint32_t value) {
        if (value != kNone) out_.push_back({value, input_mode(values_[value]), slot, false});
    }
    void node(const Node& n) {
        write(0, n.output);
        for (std::uint32_t i = 0; i < n.n_inputs; ++i) read(static_cast<std::uint16_t>(i + 1), n.inputs[i]);
    }

    void rms_norm_quantize(const Node& norm, const Node& quantize, bool keep_norm) {
        write(0, quantize.output);
        read(1, norm.inputs[0]);
        read(2, norm.inputs[1]);
        keep_norm ? write(3, norm.output) : elided(3, norm.output);
    }
    void silu_mul(const Node& silu, const Node& mul) {
        write(0, mul.output);
        gate_and_up(silu, mul);
        elided(3, silu.output);
    }
    void silu_mul_quantize(const Node& silu, const Node& mul, const Node& quantize) {
        write(0, quantize.output);
        gate_and_up(silu, mul);
        elided(3, silu.output);
        elided(4, mul.output);
    }
    void mul_mat_add(const Node& product, const Node& add) {
        write(0, add.output);
        read(1, product.inputs[0]);
        read(2, product.inputs[1]);
        read(3, add.inputs[add.inputs[0] == product.output ? 1 : 0]);
        elided(4, product.output);
    }
    void rope_kv_write(const Node& rope, const Node& kv_write) {
        write(0, kv_write.output);
        read(1, rope.inputs[0]);
        read(2, kv_write.inputs[1]);
        read(3, rope.inputs[1]);
        elided(4, rope.output);
    }

private:
    void gate_and_up(const Node& silu, const Node& mul) {
        read(1, silu.inputs[0]);
        read(2, mul.inputs[mul.inputs[0] == silu.output ? 1 : 0]);
    }

    std::vector<StepOperand>& out_;
    std::span<const Value> values_;
};

}  // namespace

void Planner::Work::add_step(const Graph& graph, const FusedGroup& group, Plan& plan) const {
    const auto node = [&](std::size_t i) -> const Node& { return graph.nodes()[group.nodes[i]]; };
    const Node& last = node(group.n_nodes - 1);
    Step step;
    step.op = group.op;
    step.part = last.part;
    step.layer = last.layer;
    step.params = last.params;
    step.first_node = static_cast<std::uint32_t>(plan.step_nodes.size());
    step.n_nodes = group.n_nodes;
    step.first_operand = static_cast<std::uint32_t>(plan.operands.size());
    plan.step_nodes.insert(plan.step_nodes.end(), group.nodes.begin(), group.nodes.begin() + group.n_nodes);

    OperandList list(plan.operands, graph.values());
    switch (group.op) {
        case Op::rms_norm_quantize: {
            const std::uint32_t norm = node(0).output;
            list.rms_norm_quantize(node(0), last, fusion.uses[norm].count > 1 || graph.values()[norm].output);
            step.params.eps = node(0).params.eps;
            break;
        }
        case Op::silu_mul: list.silu_mul(node(0), last); break;
        case Op::silu_mul_quantize: list.silu_mul_quantize(node(0), node(1), last); break;
        case Op::mul_mat_add: list.mul_mat_add(node(0), last); break;
        case Op::rope_kv_write:
            list.rope_kv_write(node(0), last);
            step.params.rope = node(0).params.rope;
            break;
        default: list.node(last); break;
    }
    step.n_operands = static_cast<std::uint32_t>(plan.operands.size()) - step.first_operand;
    plan.steps.push_back(step);
}

void Planner::Work::find_last_steps(const Graph& graph, const Plan& plan) {
    const std::span<const Value> values = graph.values();
    last_step.assign(values.size(), kNone);
    for (std::uint32_t number = 0; number < plan.steps.size(); ++number) {
        const Step& step = plan.steps[number];
        for (const StepOperand& operand : std::span(plan.operands).subspan(step.first_operand, step.n_operands))
            if (!operand.elided) last_step[values[operand.value].root] = number;
    }
    // A view that is kept keeps the memory it lies in.
    for (const Value& value : values)
        if (value.output) last_step[value.root] = kNone;
}

std::uint64_t Planner::Work::first_fit(std::uint64_t size, std::uint32_t value) {
    std::uint64_t offset = 0;
    auto next = live.begin();
    for (; next != live.end() && next->offset - offset < size; ++next) offset = next->offset + next->size;
    live.insert(next, {offset, size, value});
    return offset;
}

void Planner::Work::place(const Graph& graph, Plan& plan) {
    const std::span<const Value> values = graph.values();
    plan.offsets.assign(values.size(), kNotInArena);
    plan.arena_bytes = 0;
    live.clear();
    for (std::uint32_t number = 0; number < plan.steps.size(); ++number) {
        Step& step = plan.steps[number];
        for (const StepOperand& operand : std::span(plan.operands).subspan(step.first_operand, step.n_operands)) {
            const Value& value = values[operand.value];
            if (operand.elided || operand.mode != AccessMode::write || value.is_view) continue;
            const std::uint64_t size = storage_bytes(value);
            plan.offsets[operand.value] = first_fit(size, operand.value);
            plan.arena_bytes = std::max(plan.arena_bytes, plan.offsets[operand.value] + size);
        }
        step.first_dead = static_cast<std::uint32_t>(plan.dead.size());
        std::erase_if(live, [&](const Block& block) {
            if (last_step[block.value] != number) return false;
            plan.dead.push_back(block.value);
            return true;
        });
        step.n_dead = static_cast<std::uint32_t>(plan.dead.size()) - step.first_dead;
    }
}

Planner::Planner(std::uint32_t max_nodes, std::uint32_t max_values)
    : work_(std::make_unique<Work>(max_nodes, max_values)) {}
Planner::~Planner() = default;
Planner::Planner(Planner&&) noexcept = default;
Planner& Planner::operator=(Planner&&) noexcept = default;

void Planner::make(const Graph& graph, const PlanOptions& options, Plan& plan) {
    plan.steps.clear();
    plan.step_nodes.clear();
    plan.operands.clear();
    plan.dead.clear();
    plan.signature = graph.signature();
    work_->fusion.run(graph, options.fuse);
    for (const FusedGroup& group : work_->fusion.groups)
        if (group.n_nodes > 0) work_->add_step(graph, group, plan);
    work_->find_last_steps(graph, plan);
    work_->place(graph, plan);
}

}  // namespace tinfer::graph
