// SPDX-License-Identifier: MIT
// The verifier: a table with one row per op, and the rules that every node and value obeys.
#include <algorithm>

#include "base/error.hpp"
#include "graph/op_rules.hpp"
#include "graph/plan.hpp"
#include "graph/text.hpp"

namespace tinfer::graph {

namespace {

struct OpRule {
    Op op;
    std::uint32_t min_inputs, max_inputs;  ///< the ones above min_inputs are optional
    bool writes_cache;                     ///< the result is a cache, seen through a view
    const char* (*check)(const Site&) noexcept;
};

constexpr OpRule kOpRules[] = {
    {Op::alias, 1, 1, false, alias_rule},
    {Op::get_rows, 2, 2, false, get_rows_rule},
    {Op::rms_norm, 1, 2, false, norm_rule},
    {Op::layer_norm, 1, 3, false, norm_rule},
    {Op::quantize, 1, 1, false, quantize_rule},
    {Op::mul_mat, 2, 2, false, mul_mat_rule},
    {Op::mul_mat_id, 3, 3, false, mul_mat_id_rule},
    {Op::mul_mat_heads, 2, 2, false, mul_mat_heads_rule},
    {Op::l2_norm, 1, 1, false, l2_norm_rule},
    {Op::add, 2, 2, false, broadcast_rule},
    {Op::mul, 2, 2, false, broadcast_rule},
    {Op::div, 2, 2, false, broadcast_rule},
    {Op::scale, 1, 1, false, elementwise_rule},
    {Op::silu, 1, 1, false, elementwise_rule},
    {Op::gelu, 1, 1, false, elementwise_rule},
    {Op::relu, 1, 1, false, elementwise_rule},
    {Op::tanh, 1, 1, false, elementwise_rule},
    {Op::sigmoid, 1, 1, false, elementwise_rule},
    {Op::clamp, 1, 1, false, clamp_rule},
    {Op::exp, 1, 1, false, elementwise_rule},
    {Op::softplus, 1, 1, false, elementwise_rule},
    {Op::xielu, 1, 1, false, elementwise_rule},
    {Op::signed_sqrt, 1, 1, false, signed_sqrt_rule},
    {Op::sinkhorn, 1, 1, false, sinkhorn_rule},
    {Op::softmax, 1, 1, false, softmax_rule},
    {Op::sum_rows, 1, 1, false, sum_rows_rule},
    {Op::copy, 1, 1, false, copy_rule},
    {Op::concat, 2, 2, false, concat_rule},
    {Op::rope_table, 1, 2, false, rope_table_rule},
    {Op::rope, 2, 2, false, rope_rule},
    {Op::hadamard, 1, 1, false, hadamard_rule},
    {Op::relative_bias, 1, 1, false, relative_bias_rule},
    {Op::kv_write, 2, 2, true, kv_write_rule},
    {Op::select_keys, 6, 7, false, select_keys_rule},
    {Op::sparse_attention, 4, 5, false, sparse_attention_rule},
    {Op::compressed_attention, 6, 8, false, compressed_attention_rule},
    {Op::latest_mark, 6, 6, false, latest_mark_rule},
    {Op::attention, 6, 9, false, attention_rule},
    {Op::causal_conv, 5, 5, false, causal_conv_rule},
    {Op::compress_keys, 6, 6, false, compress_keys_rule},
    {Op::ngram_rows, 4, 4, false, ngram_rows_rule},
    {Op::token_shift, 3, 3, false, token_shift_rule},
    {Op::selective_scan, 8, 8, false, selective_scan_rule},
    {Op::wkv6, 7, 7, false, wkv6_rule},
    {Op::wkv7, 8, 8, false, wkv7_rule},
    {Op::delta_rule, 7, 7, false, delta_rule_rule},
    {Op::decay_rule, 5, 5, false, decay_rule_rule},
    {Op::top_k, 1, 1, false, top_k_rule},
    {Op::moe_weights, 2, 2, false, moe_weights_rule},
    {Op::moe_sum, 2, 2, false, moe_sum_rule},
    {Op::keep_groups, 1, 1, false, keep_groups_rule},
    {Op::divide_ids, 1, 1, false, divide_ids_rule},
    {Op::add_id, 3, 3, false, add_id_rule},
    {Op::log_temperature, 1, 1, false, log_temperature_rule},
    {Op::segment_sum, 3, 3, false, segment_sum_rule},
    {Op::key_shift, 3, 3, true, key_shift_rule},
    {Op::kv_copy_page, 2, 2, true, kv_copy_page_rule},
    {Op::kv_move, 2, 2, true, kv_move_rule},
};

/// Optional operands that stand between mandatory ones.
bool may_be_absent(Op op, std::size_t input) noexcept {
    switch (op) {
        case Op::causal_conv: return input == 2;
        case Op::select_keys: return input <= 2;
        case Op::compressed_attention: return input == 2;
        case Op::latest_mark: return input == 0 || input == 2;
        case Op::compress_keys: return input == 1 || input == 2;
        default: return false;
    }
}

const OpRule* find_rule(Op op) noexcept {
    const auto index = static_cast<std::size_t>(op) - static_cast<std::size_t>(Op::alias);
    static_assert(kOpRules[0].op == Op::alias && kOpRules[std::size(kOpRules) - 1].op == Op::kv_move);
    static_assert(std::size(kOpRules) ==
                  static_cast<std::size_t>(Op::kv_move) - static_cast<std::size_t>(Op::alias) + 1);
    return index < std::size(kOpRules) ? &kOpRules[index] : nullptr;
}

consteval bool rows_follow_the_enum() {
    for (std::size_t i = 0; i < std::size(kOpRules); ++i)
        if (static_cast<std::size_t>(kOpRules[i].op) != static_cast<std::size_t>(Op::alias) + i) return false;
    return true;
}
static_assert(rows_follow_the_enum(), "one row per op, in order");

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
    const OpRule* row = find_rule(node.op);
    if (row == nullptr) return "this op is no operation of a graph";
    if (node.n_inputs < row->min_inputs || node.n_inputs > row->max_inputs) return "wrong number of operands";
    for (std::size_t i = 0; i < row->min_inputs; ++i)
        if (node.inputs[i] == kNone && !may_be_absent(node.op, i)) return "a mandatory operand is absent";
    const Value& result = values[node.output];
    for (const std::int64_t extent : result.ne)
        if (extent < 1) return "the result would be empty";
    if (row->writes_cache && !(is_cache(result) && result.is_view)) return "the result must be a view of a cache";
    if (!row->writes_cache && node.op != Op::alias && (result.is_view || result.tensor_class != TensorClass::value))
        return "the result needs memory of its own";
    return row->check(Site{node, values});
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
