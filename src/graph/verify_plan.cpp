// SPDX-License-Identifier: MIT
// The verifier of plans. It trusts nothing the planner computed: the partition, the operands, the order and the arena
// are derived again from the graph, with other means, and compared.
#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "graph/fuse.hpp"
#include "graph/plan.hpp"
#include "graph/text.hpp"

namespace tinfer::graph {

namespace {

class PlanVerifier {
public:
    PlanVerifier(const Graph& graph, const Plan& plan)
        : nodes_(graph.nodes()), values_(graph.values()), plan_(plan), step_of_(nodes_.size(), kNone),
          stored_by_(values_.size(), kNone), last_use_(values_.size(), kNone) {}

    void run() {
        if (plan_.offsets.size() != values_.size()) fail(ErrorCode::compute_failed, "plan: made from another graph");
        check_partition();
        for (at_ = 0; at_ < plan_.steps.size(); ++at_) check_operands();
        check_lifetimes();
        check_arena();
    }

private:
    [[nodiscard]] const Step& step() const { return plan_.steps[at_]; }
    [[nodiscard]] std::span<const std::uint32_t> nodes_of(const Step& s) const {
        demand(s.first_node + std::size_t{s.n_nodes} <= plan_.step_nodes.size() && s.n_nodes > 0,
               "its nodes lie outside the plan");
        return std::span(plan_.step_nodes).subspan(s.first_node, s.n_nodes);
    }
    [[nodiscard]] std::span<const StepOperand> operands_of(const Step& s) const {
        demand(s.first_operand + std::size_t{s.n_operands} <= plan_.operands.size(),
               "its operands lie outside the plan");
        return std::span(plan_.operands).subspan(s.first_operand, s.n_operands);
    }
    [[nodiscard]] std::string named(std::uint32_t value) const {
        return cat('\'', escaped(name_of(values_[value])), '\'');
    }
    void demand(bool condition, std::string_view rule) const {
        if (condition) return;
        const std::string op =
            at_ < plan_.steps.size() ? cat(" (", to_string(plan_.steps[at_].op), ")") : std::string();
        fail(ErrorCode::compute_failed, cat("plan: step ", at_, op, ": ", rule));
    }

    // Every node that is no view lies in exactly one step, steps stand in the order of their last nodes, and a fused
    // step holds the ops it is made for.
    void check_partition() {
        std::uint32_t previous = kNone;
        for (at_ = 0; at_ < plan_.steps.size(); ++at_) {
            const std::span<const std::uint32_t> members = nodes_of(step());
            for (std::size_t i = 0; i < members.size(); ++i) {
                demand(members[i] < nodes_.size() && nodes_[members[i]].op != Op::alias,
                       "it holds a node that needs no step");
                demand(step_of_[members[i]] == kNone, cat("node ", members[i], " lies in two steps"));
                demand(i == 0 || members[i - 1] < members[i], "its nodes are out of order");
                step_of_[members[i]] = at_;
            }
            demand(previous == kNone || previous < members.back(), "steps are out of order");
            previous = members.back();
            const std::span<const Op> expected = fused_ops(step().op);
            const bool alone = members.size() == 1 && nodes_[members[0]].op == step().op;
            const bool fused = std::equal(members.begin(), members.end(), expected.begin(), expected.end(),
                                          [&](std::uint32_t node, Op op) { return nodes_[node].op == op; });
            demand(alone || fused, "its op is not what its nodes do");
        }
        for (std::size_t node = 0; node < nodes_.size(); ++node)
            if (nodes_[node].op != Op::alias && step_of_[node] == kNone)
                fail(ErrorCode::compute_failed,
                     cat("plan: node ", node, " ", named(nodes_[node].output), " lies in no step"));
    }

    // What the nodes of a step read from outside and write is listed, nothing else is, and all of it is there in time.
    void check_operands() {
        const std::span<const StepOperand> operands = operands_of(step());
        std::size_t expected = 0;
        for (const std::uint32_t member : nodes_of(step())) {
            const Node& node = nodes_[member];
            expected += 1;
            demand(std::ranges::any_of(
                       operands,
                       [&](const StepOperand& o) { return o.value == node.output && o.mode == AccessMode::write; }),
                   cat("result ", named(node.output), " is not listed"));
            for (std::uint32_t i = 0; i < node.n_inputs; ++i) {
                if (node.inputs[i] == kNone || made_here(node.inputs[i])) continue;
                expected += 1;
                demand(std::ranges::any_of(operands,
                                           [&](const StepOperand& o) {
                                               return o.value == node.inputs[i] &&
                                                      o.mode == input_mode(values_[o.value]) && !o.elided;
                                           }),
                       cat("operand ", named(node.inputs[i]), " of node ", member, " is not listed"));
            }
        }
        demand(expected == operands.size(), "it lists operands that none of its nodes has");
        for (std::size_t i = 1; i < operands.size(); ++i)
            demand(operands[i - 1].slot < operands[i].slot, "slots must ascend");
        for (const StepOperand& operand : operands)
            if (operand.mode != AccessMode::write) check_read(operand.value);
        for (const StepOperand& operand : operands)
            if (operand.elided) check_elided(operand.value);
            else if (operand.mode == AccessMode::write) stored_by_[operand.value] = at_;
    }

    [[nodiscard]] bool made_here(std::uint32_t value) const {
        const std::uint32_t maker = values_[value].node;
        return maker != kNone && nodes_[maker].op != Op::alias && step_of_[maker] == at_;
    }

    // A value is there when it is a leaf, or stored by an earlier step, or a view of such a value.
    void check_read(std::uint32_t value) {
        last_use_[values_[value].root] = at_;
        while (values_[value].node != kNone && nodes_[values_[value].node].op == Op::alias)
            value = nodes_[values_[value].node].inputs[0];
        demand(values_[value].node == kNone || (stored_by_[value] != kNone && stored_by_[value] < at_),
               cat("operand ", named(value), " is not there yet"));
    }

    // A result that is not stored may be read inside its step only.
    void check_elided(std::uint32_t value) const {
        demand(!values_[value].output, cat("result ", named(value), " is an output, but not stored"));
        for (std::size_t number = 0; number < nodes_.size(); ++number)
            for (std::uint32_t i = 0; i < nodes_[number].n_inputs; ++i)
                demand(nodes_[number].inputs[i] != value || step_of_[number] == at_,
                       cat("result ", named(value), " is read elsewhere, but not stored"));
    }

    // A result is declared dead once, after the step that touches it last; outputs never.
    void check_lifetimes() {
        std::vector<std::uint32_t> died(values_.size(), kNone);
        for (at_ = 0; at_ < plan_.steps.size(); ++at_) {
            demand(step().first_dead + std::size_t{step().n_dead} <= plan_.dead.size(),
                   "its dead results lie outside the plan");
            for (const std::uint32_t value : std::span(plan_.dead).subspan(step().first_dead, step().n_dead)) {
                demand(value < values_.size() && in_arena(value) && died[value] == kNone,
                       "it ends a result that is not alive");
                died[value] = at_;
            }
        }
        std::vector<bool> kept(values_.size(), false);
        for (const Value& value : values_)
            if (value.output) kept[value.root] = true;
        for (std::uint32_t value = 0; value < values_.size(); ++value) {
            if (!in_arena(value)) continue;
            const std::uint32_t expected = kept[value]                 ? kNone
                                           : last_use_[value] != kNone ? last_use_[value]
                                                                       : stored_by_[value];
            at_ = died[value] != kNone ? died[value] : stored_by_[value];
            demand(died[value] == expected, cat("result ", named(value), " ends at the wrong step"));
        }
    }

    [[nodiscard]] bool in_arena(std::uint32_t value) const {
        return stored_by_[value] != kNone && !values_[value].is_view &&
               values_[value].tensor_class == TensorClass::value;
    }

    // Stored results, and nothing else, have places; places in use at the same time are apart; the peak is the
    // planner's.
    void check_arena() {
        std::uint64_t peak = 0;
        std::vector<std::uint32_t> live;
        for (at_ = 0; at_ < plan_.steps.size(); ++at_) {
            for (const StepOperand& operand : operands_of(step())) {
                if (operand.elided || operand.mode != AccessMode::write || !in_arena(operand.value)) continue;
                const std::uint64_t offset = plan_.offsets[operand.value], size = storage_bytes(values_[operand.value]);
                demand(offset != kNotInArena, cat("result ", named(operand.value), " has no place"));
                demand(offset % 64 == 0, cat("result ", named(operand.value), " is not aligned"));
                for (const std::uint32_t other : live) {
                    const std::uint64_t begin = plan_.offsets[other], end = begin + storage_bytes(values_[other]);
                    demand(offset >= end || offset + size <= begin,
                           cat("results ", named(operand.value), " and ", named(other), " overlap"));
                }
                peak = std::max(peak, offset + size);
                live.push_back(operand.value);
            }
            const auto dead = std::span(plan_.dead).subspan(step().first_dead, step().n_dead);
            std::erase_if(live, [&](std::uint32_t value) { return std::ranges::find(dead, value) != dead.end(); });
        }
        demand(peak == plan_.arena_bytes, cat("the arena has ", plan_.arena_bytes, " bytes, its results reach ", peak));
        for (std::uint32_t value = 0; value < values_.size(); ++value)
            demand(in_arena(value) || plan_.offsets[value] == kNotInArena,
                   cat("value ", named(value), " has a place but is no stored result"));
    }

    std::span<const Node> nodes_;
    std::span<const Value> values_;
    const Plan& plan_;
    std::vector<std::uint32_t> step_of_;    ///< per node
    std::vector<std::uint32_t> stored_by_;  ///< per value: the step that writes it to memory
    std::vector<std::uint32_t> last_use_;   ///< per root: the last step that reads it
    std::uint32_t at_ = 0;                  ///< the step being looked at, for messages
};

}  // namespace

void verify(const Graph& graph, const Plan& plan) { PlanVerifier(graph, plan).run(); }

}  // namespace tinfer::graph
