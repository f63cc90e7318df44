// SPDX-License-Identifier: MIT
// The verifier: the rules that every node and value obeys, and that of each op (tinfer/ops.def).
#include <algorithm>

#include "base/error.hpp"
#include "base/ops.hpp"
#include "graph/op_rules.hpp"
#include "graph/plan.hpp"
#include "graph/text.hpp"

namespace tinfer::graph {

namespace {

constexpr RuleFn* kOpRules[] = {
#define TINFER_OP(name, rule, types, touches, macs, scratch, work, tables, operands) TINFER_RULE_##rule(name),
#include "tinfer/ops.def"
};

// ---- rules of every node and value ----------------------------------------------------------------------------------

const char* broken_node_rule(std::size_t number, std::span<const Node> nodes, std::span<const Value> values) noexcept {
    const Node& node = nodes[number];
    if (node.output >= values.size()) return "the result is no value of this graph";
    if (node.n_inputs > kMaxInputs) return "too many operands";
    for (std::size_t i = 0; i < node.n_inputs; ++i) {
        if (node.inputs[i] == kNone) continue;
        if (node.inputs[i] >= values.size()) return "an operand is no value of this graph";
        const Value& input = values[node.inputs[i]];
        if (input.node != kNone && input.node >= number) return "an operand is made by a later node";
    }
    if (values[node.output].node != number) return "the result belongs to another node";
    if (values[node.output].layer != node.layer) return "node and result disagree about the layer";
    return broken_rule(node, values);
}

const char* broken_value_rule(std::size_t number, std::span<const Node> nodes, std::span<const Value> values) noexcept {
    const Value& value = values[number];
    if (value.node != kNone && (value.node >= nodes.size() || nodes[value.node].output != number))
        return "the producing node makes another value";
    if (value.node == kNone && value.tensor_class == TensorClass::value) return "a result needs a producing node";
    if (value.role.empty()) return "the name is empty";
    for (const std::int64_t extent : value.ne)
        if (extent < 1) return "extents must be positive";
    if (value.root >= values.size() || values[value.root].is_view) return "the root must be a value that owns memory";
    if (!value.is_view && (value.root != number || value.offset != 0)) return "a value that is no view is its own root";
    if (!value.is_view && value.nb != contiguous_strides(value.type, value.ne)) return "memory of its own has no gaps";
    if (value.tensor_class == TensorClass::input)
        for (std::size_t other = 0; other < number; ++other)
            if (!value.is_view && !values[other].is_view && values[other].tensor_class == TensorClass::input &&
                values[other].role == value.role)
                return "two inputs have this name";
    return nullptr;
}

}  // namespace

const char* broken_rule(const Node& node, std::span<const Value> values) noexcept {
    RuleFn* const rule = node.op < Op::count_ ? kOpRules[static_cast<std::size_t>(node.op)] : no_rule;
    if (rule == no_rule) return no_rule(Site{node, values});
    const OpInfo& op = info(node.op);
    if (node.n_inputs < op.n_needed || node.n_inputs > op.n_operands) return "wrong number of operands";
    for (std::size_t i = 0; i < op.n_needed; ++i)
        if (node.inputs[i] == kNone && !op.may_be_absent(i)) return "a mandatory operand is absent";
    const Value& result = values[node.output];
    for (const std::int64_t extent : result.ne)
        if (extent < 1) return "the result would be empty";
    const bool in_cache = op.types == KernelTypes::cache;
    if (in_cache && !(is_cache(result) && result.is_view)) return "the result must be a view of a cache";
    if (!in_cache && node.op != Op::alias && (result.is_view || result.tensor_class != TensorClass::value))
        return "the result needs memory of its own";
    return rule(Site{node, values});
}

void verify(std::span<const Node> nodes, std::span<const Value> values) {
    for (std::size_t i = 0; i < values.size(); ++i)
        if (const char* rule = broken_value_rule(i, nodes, values))
            fail(ErrorCode::compute_failed, cat("graph: value ", i, " '", escaped(name_of(values[i])), "' ",
                                                shape_text(values[i].ne), ": ", rule));
    for (std::size_t i = 0; i < nodes.size(); ++i)
        if (const char* rule = broken_node_rule(i, nodes, values)) {
            const auto inputs = std::span(nodes[i].inputs).first(std::min<std::size_t>(nodes[i].n_inputs, kMaxInputs));
            const std::string name =
                nodes[i].output < values.size() ? escaped(name_of(values[nodes[i].output])) : std::string("-");
            fail(ErrorCode::compute_failed,
                 cat("graph: node ", i, " '", name, "' = ", call_text(nodes[i].op, inputs, values), ": ", rule));
        }
}

void verify(const Graph& graph) { verify(graph.nodes(), graph.values()); }

}  // namespace tinfer::graph
