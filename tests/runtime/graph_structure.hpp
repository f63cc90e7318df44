// SPDX-License-Identifier: MIT
// What graphs of one kind have in common, whatever their numbers of tokens and outputs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/graph.hpp"
#include "graph/plan.hpp"

namespace tinfer::test {

/// Everything of a planned graph but its extents: nodes and their operands (of inputs only that they are some), values,
/// steps, and what has a place in the arena.
[[nodiscard]] inline std::vector<std::uint64_t> structure_of(const graph::Graph& graph, const graph::Plan& plan) {
    std::vector<std::uint64_t> out;
    for (const graph::Node& node : graph.nodes()) {
        out.insert(out.end(), {static_cast<std::uint64_t>(node.op), node.output, node.n_inputs});
        for (const std::uint32_t id : std::span(node.inputs).first(node.n_inputs))
            out.push_back(id != graph::kNone && graph.values()[id].tensor_class == TensorClass::input ? 0 : id);
    }
    for (std::uint32_t id = 0; id < graph.values().size(); ++id) {
        const graph::Value& value = graph.values()[id];
        out.insert(out.end(),
                   {value.node, value.root, static_cast<std::uint64_t>(value.type),
                    static_cast<std::uint64_t>(value.tensor_class), plan.offsets[id] == graph::kNotInArena ? 0u : 1u});
    }
    for (const graph::Step& step : plan.steps)
        out.insert(out.end(), {static_cast<std::uint64_t>(step.op), step.first_node, step.n_nodes, step.n_operands});
    return out;
}

}  // namespace tinfer::test
