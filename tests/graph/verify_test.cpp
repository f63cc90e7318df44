// SPDX-License-Identifier: MIT
// The verifier: every rule of the table, broken once in a graph that is otherwise sound, is found and named.
#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <set>

#include "graph/plan.hpp"
#include "graph/rules.hpp"
#include "graph/sample_graph.hpp"

using namespace tinfer;
using graph::Graph;
using graph::kNone;
using graph::Node;
using graph::Tensor;
using graph::Value;

namespace {

// A copy of a graph that can be damaged at will.
struct Damaged {
    std::vector<Node> nodes;
    std::vector<Value> values;
    std::size_t at = 0;  ///< the node under attack

    Node& node() { return nodes[at]; }
    Value& result() { return values[node().output]; }
    Value& input(std::uint32_t slot) { return values[node().inputs[slot - 1]]; }

    // Another operand, a leaf of its own, so that no other node is touched.
    void replace(std::uint32_t slot, DType type, std::array<std::int64_t, 4> ne, TensorClass c = TensorClass::weight) {
        Value leaf;
        leaf.tensor_class = c;
        leaf.type = type;
        leaf.ne = ne;
        leaf.nb = graph::contiguous_strides(type, ne);
        leaf.root = static_cast<std::uint32_t>(values.size());
        leaf.tensor = 1000;
        leaf.role = "intruder";
        values.push_back(leaf);
        node().inputs[slot - 1] = leaf.root;
    }
    // The operand as it is, but with another extent.
    void stretch(std::uint32_t slot, std::size_t dimension, std::int64_t by = 1) {
        std::array<std::int64_t, 4> ne = input(slot).ne;
        ne[dimension] += by;
        const TensorClass c = input(slot).tensor_class;
        replace(slot, input(slot).type, ne, c == TensorClass::value ? TensorClass::weight : c);
    }
    void reshape_result(DType type, std::array<std::int64_t, 4> ne) {
        result().type = type;
        result().ne = ne;
        result().nb = graph::contiguous_strides(type, ne);
    }
    void stretch_result(std::size_t dimension) {
        std::array<std::int64_t, 4> ne = result().ne;
        ne[dimension] += 1;
        reshape_result(result().type, ne);
    }
};

// A recurrent state of rows of `width` floats; ids beyond those of any sample model.
const TensorInfo& state_tensor(std::int64_t width) {
    static std::map<std::int64_t, TensorInfo> tensors;
    TensorInfo& tensor = tensors[width];
    tensor.id = 400 + static_cast<std::uint32_t>(width) % 100;
    tensor.name = tensor.role = "state";
    tensor.tensor_class = TensorClass::recurrent;
    tensor.type = DType::f32;
    tensor.n_dims = 2;
    tensor.ne = {width, 6, 1, 1};
    return tensor;
}

// Three tokens of 2 heads of 4.
void build_recurrent_ops(Graph& g) {
    const auto input = [&](const char* role, std::array<std::int64_t, 4> ne) { return g.input(role, DType::f32, ne); };
    const Tensor rows = g.input("state_rows", DType::i32, {2, 3, 1, 1});
    const auto state = [&](std::int64_t width) { return graph::RecurrentState{g.cache(state_tensor(width)), rows}; };
    const Tensor x = input("stream", {8, 3, 1, 1}), heads = g.heads(x, 2), per_head = input("per_head", {2, 3, 1, 1});
    g.sum_rows(g.l2_norm(g.exp(g.softplus(x)), 1e-6f));
    g.token_shift(g.causal_conv(x, input("taps", {4, 8, 1, 1}), input("taps_bias", {8, 1, 1, 1}), state(24)), state(8));
    const Tensor maps = input("maps", {5, 1, 3, 1});
    g.selective_scan(heads, per_head, input("rates", {5, 2, 1, 1}), maps, maps, input("skip", {2, 1, 1, 1}), state(40));
    g.wkv6(heads, heads, heads, heads, input("first", {4, 2, 1, 1}), state(32));
    g.wkv7(heads, heads, heads, heads, heads, heads, state(32));
    g.delta_rule(heads, heads, heads, per_head, per_head, 0.5f, state(32));
    g.decay_rule(heads, heads, heads, 0.5f, state(32));
    const Tensor positions = g.input("group_positions", DType::i32, {3, 1, 1, 1});
    g.compress_keys(x, x, input("added", {8, 2, 1, 1}), positions, 2, true, state(64));
    g.ngram_rows(positions, g.input("constants", DType::i32, {2, 11, 1, 1}), 3, 7, state(2));
}

// A cache of one float for each cell.
const TensorInfo& mark_cache() {
    static TensorInfo tensor;
    tensor.id = 399;
    tensor.name = tensor.role = "marks";
    tensor.tensor_class = TensorClass::cache_k;
    tensor.type = DType::f32;
    tensor.n_dims = 2;
    tensor.ne = {1, 128, 1, 1};
    return tensor;
}

// A graph with at least one node of every op.
void build_all_ops(Graph& g, const test::SampleModel& model) {
    model.build(g, 3, 2);
    const Tensor x = g.input("extra", DType::f32, {4, 3, 1, 1});
    g.sigmoid(g.scale(x, 2.0f));
    g.xielu(x, 1.0f, 2.0f, 0.5f, -1e-6f);
    g.signed_sqrt(g.sinkhorn(x, 2, 0.1f), 1e-6f);
    g.tanh(g.relu(g.gelu(g.clamp(g.div(x, x), -1.0f, 1.0f))));
    g.layer_norm(x, g.input("norm_weight", DType::f32, {4, 1, 1, 1}), g.input("norm_bias", DType::f32, {4, 1, 1, 1}),
                 1e-5f);
    g.concat(x, g.input("tail", DType::f32, {3, 1, 1, 1}));
    g.keep_groups(x, 2, 1);
    const Tensor stack = g.input("stack", DType::f32, {4, 5, 2, 1}), rows = g.input("rows", DType::f32, {4, 2, 3, 1});
    const Tensor chosen = g.input("chosen", DType::i32, {2, 3, 1, 1});
    g.divide_ids(chosen, 2);
    g.add_id(g.mul_mat_heads(stack, rows), g.input("biases", DType::f32, {5, 7, 1, 1}), chosen);
    const Tensor ids = g.input("ids", DType::i32, {3, 1, 1, 1});
    g.log_temperature(ids, 0.1f, 8, 1);
    g.relative_bias(g.input("bucket_biases", DType::f32, {2, 8, 1, 1}), 128, true);
    g.segment_sum(x, ids, g.input("sums", DType::f32, {4, 2, 1, 1}));
    g.copy(g.view(x, 1, 2));
    build_recurrent_ops(g);
    const TensorInfo& keys = model.tensor("cache_k.0");
    RopeParams rope;
    rope.n_rot = 4;
    const AttentionParams one_head{.n_head_kv = 1, .head_dim_k = static_cast<std::int32_t>(keys.ne[0])};
    g.key_shift(g.cache(keys), g.input("angles", DType::f32, {4, 5, 1, 1}), g.input("moved", DType::i32, {5, 1, 1, 1}),
                rope, one_head, 2);
    const std::int32_t width = one_head.head_dim_k;
    const TensorInfo& values = model.tensor("cache_v.0");
    AttentionParams sparse{.n_head = 2, .n_head_kv = 1, .head_dim_k = width};
    sparse.head_dim_v = static_cast<std::int32_t>(values.ne[0]);
    const Tensor queries = g.input("index_queries", DType::f32, {width, 2, 3, 1});
    const graph::KvInputs kv{g.input("cells_table", DType::i32, {4, 2, 1, 1}),
                             g.input("cells_seqs", DType::i32, {2, 1, 1, 1}),
                             g.input("cells_spans", DType::i32, {4, 3, 1, 1})};
    const Tensor listed =
        g.select_keys(queries, g.cache(keys), g.input("index_weights", DType::f32, {2, 3, 1, 1}), kv, sparse, {.k = 5});
    g.sparse_attention(queries, g.cache(keys), g.cache(values), listed, sparse);
    AttentionParams same = sparse;
    same.head_dim_v = width;
    const Tensor entries =
        g.select_keys({}, {}, {}, kv, {}, {.k = 3, .block = 4, .whole_blocks = true, .last_only = true});
    g.compressed_attention(queries, g.cache(keys), sparse.head_dim_v == width ? g.cache(values) : Tensor{},
                           sparse.head_dim_v == width ? entries : Tensor{}, kv, same);
    g.latest_mark(g.cache(mark_cache()), kv);
    g.kv_copy_page(g.cache(model.tensor("cache_k.0")), g.input("pairs", DType::i32, {2, 5, 1, 1}));
    g.kv_move(g.cache(model.tensor("cache_k.0")), g.input("moves", DType::i32, {3, 5, 1, 1}), one_head, false);
}

std::string verdict(const Damaged& d) {
    try {
        graph::verify(d.nodes, d.values);
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::compute_failed);
        return error.what();
    }
    return "nothing found";
}

struct Attack {
    Op op;
    const char* rule;
    std::function<void(Damaged&)> damage;
};

const std::vector<Attack>& attacks() {
    static const std::vector<Attack> list{
        {Op::get_rows, "the matrix has a type that cannot be unpacked",
         [](Damaged& d) {
             d.replace(1, DType::q8_1, {256, 300, 1, 1});
         }},
        {Op::get_rows, "the matrix must be {n,N}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::get_rows, "ids must be i32 {T}",
         [](Damaged& d) {
             d.replace(2, DType::f32, {3, 1, 1, 1});
         }},
        {Op::get_rows, "result must be {n,T}", [](Damaged& d) { d.stretch(1, 0, 256); }},
        {Op::rms_norm, "x must be f32",
         [](Damaged& d) {
             d.replace(1, DType::f16, {256, 3, 1, 1});
         }},
        {Op::rms_norm, "weight must be f32 with one value per element of a row", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::rms_norm, "eps must be finite and not negative", [](Damaged& d) { d.node().params.eps = -1.0f; }},
        {Op::rms_norm, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::layer_norm, "x must be f32",
         [](Damaged& d) {
             d.replace(1, DType::f16, {4, 3, 1, 1});
         }},
        {Op::layer_norm, "weight must be f32 with one value per element of a row", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::layer_norm, "bias must be f32 with one value per element of a row", [](Damaged& d) { d.stretch(3, 1); }},
        {Op::layer_norm, "eps must be finite and not negative", [](Damaged& d) { d.node().params.eps = -1.0f; }},
        {Op::mul_mat_heads, "W has a type without a product",
         [](Damaged& d) {
             d.replace(1, DType::i8, {4, 5, 2, 1});
         }},
        {Op::mul_mat_heads, "W must be {K,N,H}", [](Damaged& d) { d.stretch(1, 3); }},
        {Op::mul_mat_heads, "inner extents differ", [](Damaged& d) { d.stretch(1, 0); }},
        {Op::mul_mat_heads, "x must be {K,H,T}", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::mul_mat_heads, "x has not the type that W multiplies with",
         [](Damaged& d) {
             d.replace(2, DType::f16, {4, 2, 3, 1});
         }},
        {Op::mul_mat_heads, "result must be f32 {N,H,T}", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::div, "b must be like a, {n}, {1}, or {1,…}", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::gelu, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::relu, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::tanh, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::clamp, "low must not exceed high", [](Damaged& d) { d.node().params.low = 2.0f; }},
        {Op::clamp, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::concat, "a and b must be f32",
         [](Damaged& d) {
             d.replace(2, DType::f16, {3, 1, 1, 1});
         }},
        {Op::concat, "b must be {m,H,T} or {m,1,T}", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::concat, "result must be f32 {n+m,H,T}", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::keep_groups, "x must be {X,T}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::keep_groups, "X must be a multiple of n_group", [](Damaged& d) { d.node().params.n_group = 3; }},
        {Op::keep_groups, "k must lie in 1 … n_group", [](Damaged& d) { d.node().params.k = 3; }},
        {Op::log_temperature, "positions must be i32 {T}", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::log_temperature, "n must be positive", [](Damaged& d) { d.node().params.k = 0; }},
        {Op::log_temperature, "result must be f32 {1,T}", [](Damaged& d) { d.stretch_result(0); }},
        {Op::segment_sum, "x must be f32 {E,T}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::segment_sum, "segments must be i32 {T}", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::segment_sum, "sums must be f32 {E,S}", [](Damaged& d) { d.stretch(3, 0); }},
        {Op::segment_sum, "result must be f32 like the sums", [](Damaged& d) { d.stretch_result(1); }},
        {Op::add_id, "x must be f32 {N,k,T}", [](Damaged& d) { d.stretch(1, 3); }},
        {Op::add_id, "b must be f32 {N,X}", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::add_id, "ids must be i32 {k,T}", [](Damaged& d) { d.stretch(3, 0); }},
        {Op::add_id, "result must be f32 like x", [](Damaged& d) { d.stretch_result(2); }},
        {Op::quantize, "x must be f32",
         [](Damaged& d) {
             d.replace(1, DType::i32, {256, 3, 1, 1});
         }},
        {Op::quantize, "result must be x8_32 or x8_256",
         [](Damaged& d) {
             d.reshape_result(DType::f32, {256, 3, 1, 1});
         }},
        {Op::quantize, "rows are no whole number of blocks", [](Damaged& d) { d.stretch(1, 0); }},
        {Op::quantize, "result must have the shape of x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::mul_mat, "W has a type without a product",
         [](Damaged& d) {
             d.replace(1, DType::i8, {256, 256, 1, 1});
         }},
        {Op::mul_mat, "W must be {K,N}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::mul_mat, "inner extents differ", [](Damaged& d) { d.stretch(1, 0, 256); }},
        {Op::mul_mat, "x must be {K,T}", [](Damaged& d) { d.stretch(2, 2); }},
        {Op::mul_mat, "x has not the type that W multiplies with",
         [](Damaged& d) {
             d.replace(2, DType::f32, {256, 3, 1, 1});
         }},
        {Op::mul_mat, "result must be f32 {N,T}", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::mul_mat_id, "W has a type without a product",
         [](Damaged& d) {
             d.replace(1, DType::q8_1, {256, 512, 4, 1});
         }},
        {Op::mul_mat_id, "W must be {K,N,X}", [](Damaged& d) { d.stretch(1, 3); }},
        {Op::mul_mat_id, "inner extents differ", [](Damaged& d) { d.stretch(1, 0, 256); }},
        {Op::mul_mat_id, "ids must be i32 {k,T}", [](Damaged& d) { d.stretch(3, 2); }},
        {Op::mul_mat_id, "more ids per token than experts",
         [](Damaged& d) {
             d.replace(3, DType::i32, {5, 3, 1, 1});
         }},
        {Op::mul_mat_id, "x must be {K,1,T} or {K,k,T}", [](Damaged& d) { d.stretch(2, 2); }},
        {Op::mul_mat_id, "x has not the type that W multiplies with",
         [](Damaged& d) {
             d.replace(2, DType::f32, {256, 1, 3, 1});
         }},
        {Op::mul_mat_id, "result must be f32 {N,k,T}", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::add, "a and b must be f32",
         [](Damaged& d) {
             d.replace(2, DType::f16, {256, 3, 1, 1});
         }},
        {Op::add, "b must be like a, {n}, {1}, or {1,…}",
         [](Damaged& d) {
             d.replace(2, DType::f32, {1, 2, 1, 1});
         }},
        {Op::add, "result must be f32 like a", [](Damaged& d) { d.stretch_result(1); }},
        {Op::mul, "a and b must be f32",
         [](Damaged& d) {
             d.replace(1, DType::i32, {512, 2, 3, 1});
         }},
        {Op::mul, "b must be like a, {n}, {1}, or {1,…}", [](Damaged& d) { d.stretch(2, 2); }},
        {Op::scale, "x must be f32",
         [](Damaged& d) {
             d.replace(1, DType::i32, {4, 3, 1, 1});
         }},
        {Op::scale, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::silu, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::sigmoid, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::softmax, "x must be {n,T}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::softmax, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 0); }},
        {Op::copy, "x must be f32, f16 or bf16",
         [](Damaged& d) {
             d.replace(1, DType::i32, {4, 3, 1, 1});
         }},
        {Op::copy, "result must be f32 of x's shape", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::rope_table, "positions must be i32 {T}", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::rope_table, "n_rot must be even and positive", [](Damaged& d) { d.node().params.rope.n_rot = 7; }},
        {Op::rope_table, "freq_base must be positive", [](Damaged& d) { d.node().params.rope.freq_base = 0.0f; }},
        {Op::rope_table, "factors must be f32 with n_rot/2 values",
         [](Damaged& d) {
             d.replace(2, DType::f32, {31, 1, 1, 1});
         }},
        {Op::rope_table, "result must be f32 {n_rot,T}", [](Damaged& d) { d.node().params.rope.n_rot = 32; }},
        {Op::rope, "x must be f32 {d,H,T}", [](Damaged& d) { d.stretch(1, 3); }},
        {Op::rope, "the table must be f32 {n_rot,T}", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::rope, "n_rot exceeds the head",
         [](Damaged& d) {
             d.replace(2, DType::f32, {66, 3, 1, 1}), d.node().params.rope.n_rot = 66;
         }},
        {Op::rope, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::kv_write, "the cache is of the other kind", [](Damaged& d) { d.node().params.is_v ^= 1; }},
        {Op::kv_write, "rows must be f32 {head_dim,n_head_kv,T}", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::kv_write, "a cache row must hold head_dim · n_head_kv values",
         [](Damaged& d) {
             d.node().params.attention.n_head_kv = 1, d.replace(1, DType::f32, {64, 1, 3, 1});
         }},
        {Op::relative_bias, "table must be f32 {H,buckets}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::relative_bias, "a side must have at least 2 buckets",
         [](Damaged& d) { d.node().params.max_distance = 2; }},
        {Op::relative_bias, "result must be f32 {2D+1,H}", [](Damaged& d) { d.stretch_result(0); }},
        {Op::kv_write, "cells must be i32 {T}", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::attention, "n_head must be a multiple of n_head_kv",
         [](Damaged& d) { d.node().params.attention.n_head_kv = 3; }},
        {Op::attention, "q must be f32 {head_dim_k,n_head,T}", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::attention, "keys must be a K cache of n_head_kv heads",
         [](Damaged& d) { std::swap(d.node().inputs[1], d.node().inputs[2]); }},
        {Op::attention, "values must be a V cache of n_head_kv heads",
         [](Damaged& d) { d.node().inputs[2] = d.node().inputs[1]; }},
        {Op::attention, "kv_table must be i32 {4,entries}", [](Damaged& d) { d.stretch(4, 0); }},
        {Op::attention, "kv_seqs must be i32 {2,sequences}", [](Damaged& d) { d.stretch(5, 0); }},
        {Op::attention, "kv_spans must be i32 {4,T}", [](Damaged& d) { d.stretch(6, 1); }},
        {Op::attention, "sinks must be f32 {n_head}",
         [](Damaged& d) {
             d.replace(7, DType::f32, {5, 1, 1, 1});
         }},
        {Op::attention, "ALiBi needs kv_positions", [](Damaged& d) { d.node().params.attention.max_bias = 8.0f; }},
        {Op::attention, "a bias by distance needs kv_positions",
         [](Damaged& d) {
             d.replace(9, DType::f32, {5, 2, 1, 1});
         }},
        {Op::attention, "the bias must be f32 {2D+1,n_head}",
         [](Damaged& d) {
             d.replace(8, DType::i32, {d.input(2).ne[1], 1, 1, 1});
             d.replace(9, DType::f32, {4, d.node().params.attention.n_head, 1, 1});
         }},
        {Op::attention, "kv_positions must be i32 {cells}",
         [](Damaged& d) {
             d.replace(8, DType::i32, {64, 1, 1, 1});
         }},
        {Op::attention, "result must be f32 {head_dim_v·n_head,T}", [](Damaged& d) { d.stretch_result(1); }},
        {Op::top_k, "x must be f32 {X,T}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::top_k, "k must lie in 1 … X", [](Damaged& d) { d.node().params.k = 5; }},
        {Op::top_k, "result must be i32 {k,T}", [](Damaged& d) { d.node().params.k = 1; }},
        {Op::moe_weights, "probs must be f32 {X,T}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::moe_weights, "ids must be i32 {k,T}", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::moe_weights, "result must be f32 {k,T}", [](Damaged& d) { d.stretch_result(0); }},
        {Op::moe_sum, "y must be f32 {E,k,T}", [](Damaged& d) { d.stretch(1, 3); }},
        {Op::moe_sum, "weights must be f32 {k,T}", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::moe_sum, "result must be f32 {E,T}", [](Damaged& d) { d.stretch_result(0); }},
        {Op::key_shift, "a cache row must hold head_dim_k · n_head_kv values",
         [](Damaged& d) { d.node().params.attention.n_head_kv = 2; }},
        {Op::key_shift, "cells must be i32 {n}", [](Damaged& d) { d.stretch(3, 1); }},
        {Op::key_shift, "the table must be f32 {n_rot,n}", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::key_shift, "the rotated part exceeds the head", [](Damaged& d) { d.node().params.first = 1 << 20; }},
        {Op::l2_norm, "eps must be finite and above 0", [](Damaged& d) { d.node().params.eps = 0.0f; }},
        {Op::sum_rows, "x must be f32",
         [](Damaged& d) {
             d.replace(1, DType::i32, {8, 3, 1, 1});
         }},
        {Op::sum_rows, "result must be f32 {1,…}", [](Damaged& d) { d.stretch_result(0); }},
        {Op::causal_conv, "x must be f32 {C,T}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::causal_conv, "weight must be f32 {n,C} with n of at least 2", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::causal_conv, "bias must be f32 {C}", [](Damaged& d) { d.stretch(3, 0); }},
        {Op::causal_conv, "a state's rows have another size", [](Damaged& d) { d.stretch(4, 0); }},
        {Op::causal_conv, "state_rows must be i32 {2,T}", [](Damaged& d) { d.stretch(5, 1); }},
        {Op::causal_conv, "result must be f32 like x", [](Damaged& d) { d.stretch_result(0); }},
        {Op::causal_conv, "a mandatory operand is absent", [](Damaged& d) { d.node().inputs[3] = kNone; }},
        {Op::token_shift, "x must be f32 {E,T}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::token_shift, "a state's rows have another size",
         [](Damaged& d) {
             d.replace(2, DType::f32, {8, 6, 1, 1});
         }},
        {Op::selective_scan, "x must be f32 {P,H,T}",
         [](Damaged& d) {
             d.replace(1, DType::f16, {4, 2, 3, 1});
         }},
        {Op::selective_scan, "dt must be f32 {H,T}", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::selective_scan, "a must be f32 {N,H} or {1,H}", [](Damaged& d) { d.stretch(3, 0); }},
        {Op::selective_scan, "B must be f32 {N,G,T}", [](Damaged& d) { d.stretch(4, 2); }},
        {Op::selective_scan, "C must be f32 like B", [](Damaged& d) { d.stretch(5, 1); }},
        {Op::selective_scan, "D must be f32 {H}", [](Damaged& d) { d.stretch(6, 0); }},
        {Op::wkv6, "r, k, v, w and the result must be f32 {S,H,T}", [](Damaged& d) { d.stretch(3, 1); }},
        {Op::wkv6, "first must be f32 {S,H}", [](Damaged& d) { d.stretch(5, 0); }},
        {Op::wkv7, "all but the state must be f32 {S,H,T}", [](Damaged& d) { d.stretch(6, 0); }},
        {Op::delta_rule, "q must be f32 {S,Hk,T}", [](Damaged& d) { d.stretch(1, 0); }},
        {Op::delta_rule, "k must be f32 like q", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::delta_rule, "v must be f32 {S,H,T}",
         [](Damaged& d) {
             d.replace(3, DType::f16, {4, 2, 3, 1});
         }},
        {Op::delta_rule, "gamma must be f32 {H,T} or {S,H,T}", [](Damaged& d) { d.stretch(4, 0); }},
        {Op::delta_rule, "beta must be f32 {H,T}", [](Damaged& d) { d.stretch(5, 0); }},
        {Op::decay_rule, "q, k, v and the result must be f32 {S,H,T}", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::decay_rule, "a state's rows have another size", [](Damaged& d) { d.stretch(4, 0); }},
        {Op::divide_ids, "the divisor must be positive", [](Damaged& d) { d.node().params.k = 0; }},
        {Op::divide_ids, "result must be i32 like ids", [](Damaged& d) { d.stretch_result(0); }},
        {Op::select_keys, "iq must be f32 {d,h,T}", [](Damaged& d) { d.stretch(1, 0); }},
        {Op::select_keys, "index keys must be a K cache of one head",
         [](Damaged& d) { d.node().params.attention.n_head_kv = 2; }},
        {Op::select_keys, "weights must be f32 {h,T}", [](Damaged& d) { d.stretch(3, 0); }},
        {Op::select_keys, "kv_spans must be i32 {4,T}", [](Damaged& d) { d.stretch(6, 0); }},
        {Op::select_keys, "k and block must be positive, local not negative",
         [](Damaged& d) { d.node().params.k = 0; }},
        {Op::select_keys, "blocks need kv_positions", [](Damaged& d) { d.node().params.block = 4; }},
        {Op::select_keys, "result must be i32 {n,G,T}", [](Damaged& d) { d.stretch_result(0); }},
        {Op::select_keys, "only whole blocks are chosen without a score",
         [](Damaged& d) { d.node().inputs[0] = kNone; }},
        {Op::select_keys, "no block comes first where blocks are whole",
         [](Damaged& d) { d.node().params.whole_blocks = d.node().params.local = 1; }},
        {Op::select_keys, "only whole blocks have a last token", [](Damaged& d) { d.node().params.last_only = 1; }},
        {Op::compressed_attention, "keys are values, of one head",
         [](Damaged& d) { d.node().params.attention.head_dim_v = 3; }},
        {Op::compressed_attention, "q must be f32 {d,n_head,T}", [](Damaged& d) { d.stretch(1, 0); }},
        {Op::compressed_attention, "kv_spans must be i32 {4,T}", [](Damaged& d) { d.stretch(6, 0); }},
        {Op::compressed_attention, "neither ALiBi nor a soft cap",
         [](Damaged& d) { d.node().params.attention.softcap = 1.0f; }},
        {Op::latest_mark, "marks must be a K cache of f32", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::latest_mark, "result must be i32 {1,T}", [](Damaged& d) { d.stretch_result(0); }},
        {Op::compress_keys, "t must be f32 {c·D,T}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::compress_keys, "weights need both g and what is added to it",
         [](Damaged& d) { d.node().inputs[1] = kNone; }},
        {Op::compress_keys, "a must be f32 {c·D,r}", [](Damaged& d) { d.stretch(3, 1); }},
        {Op::compress_keys, "a state's rows have another size", [](Damaged& d) { d.stretch(5, 0); }},
        {Op::compress_keys, "result must be f32 {D,T}", [](Damaged& d) { d.stretch_result(0); }},
        {Op::ngram_rows, "as many rows for each n-gram", [](Damaged& d) { d.node().params.k = 1; }},
        {Op::ngram_rows, "constants must be i32 {2,N+2·(N-1)·m}", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::ngram_rows, "a state's rows have another size", [](Damaged& d) { d.stretch(3, 0); }},
        {Op::sinkhorn, "x must be {n·n,T}", [](Damaged& d) { d.stretch(1, 0); }},
        {Op::sinkhorn, "there must be a round", [](Damaged& d) { d.node().params.k = 0; }},
        {Op::signed_sqrt, "low must be finite and not negative", [](Damaged& d) { d.node().params.low = -1.0f; }},
        {Op::causal_conv, "dilation must be positive", [](Damaged& d) { d.node().params.dilation = 0; }},
        {Op::sparse_attention, "q must be f32 {head_dim_k,n_head,T}", [](Damaged& d) { d.stretch(1, 0); }},
        {Op::sparse_attention, "chosen must be i32 {n,1|n_head_kv,T}", [](Damaged& d) { d.stretch(4, 2); }},
        {Op::sparse_attention, "neither ALiBi nor a soft cap",
         [](Damaged& d) { d.node().params.attention.softcap = 1.0f; }},
        {Op::kv_copy_page, "pages are copied inside one cache", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::kv_copy_page, "pairs must be i32 {2,n}", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::kv_move, "cells are moved inside one cache", [](Damaged& d) { d.result().root = 0; }},
        {Op::kv_move, "a cache row must hold head_dim · n_head_kv values",
         [](Damaged& d) { d.node().params.attention.n_head_kv = 3; }},
        {Op::kv_move, "moves must be i32 {3,n}", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::alias, "a view has type and class of its source", [](Damaged& d) { d.result().type = DType::f16; }},
        {Op::alias, "a view lies in the memory of its source", [](Damaged& d) { d.result().root = 0; }},
        {Op::alias, "a view stays inside its source", [](Damaged& d) { d.result().offset += 1 << 20; }},
        // rules of every node
        {Op::silu, "wrong number of operands", [](Damaged& d) { d.node().n_inputs = 2; }},
        {Op::silu, "a mandatory operand is absent", [](Damaged& d) { d.node().inputs[0] = kNone; }},
        {Op::silu, "this op is no operation of a graph", [](Damaged& d) { d.node().op = Op::silu_mul; }},
        {Op::silu, "this op is no operation of a graph", [](Damaged& d) { d.node().op = Op::none; }},
        {Op::silu, "an operand is no value of this graph", [](Damaged& d) { d.node().inputs[0] = 100000; }},
        {Op::silu, "an operand is made by a later node", [](Damaged& d) { d.node().inputs[0] = d.node().output; }},
        {Op::silu, "node and result disagree about the layer", [](Damaged& d) { d.node().layer += 1; }},
        {Op::silu, "the producing node makes another value", [](Damaged& d) { d.node().output = d.nodes[0].output; }},
        {Op::silu, "too many operands", [](Damaged& d) { d.node().n_inputs = graph::kMaxInputs + 1; }},
        {Op::kv_write, "the result must be a view of a cache",
         [](Damaged& d) { d.result().tensor_class = TensorClass::value; }},
        {Op::silu, "the result needs memory of its own",
         [](Damaged& d) { d.result().tensor_class = TensorClass::weight; }},
        // rules of every value
        {Op::silu, "a result needs a producing node", [](Damaged& d) { d.result().node = kNone; }},
        {Op::silu, "the name is empty", [](Damaged& d) { d.result().role = {}; }},
        {Op::silu, "extents must be positive", [](Damaged& d) { d.result().ne[1] = 0; }},
        {Op::silu, "the root must be a value that owns memory", [](Damaged& d) { d.result().root = 100000; }},
        {Op::silu, "a value that is no view is its own root", [](Damaged& d) { d.result().offset = 64; }},
        {Op::silu, "memory of its own has no gaps", [](Damaged& d) { d.result().nb[1] += 64; }},
        {Op::silu, "two inputs have this name", [](Damaged& d) { d.values[1].role = d.values[0].role; }},
        {Op::silu, "the result is no value of this graph",
         [](Damaged& d) { d.nodes.push_back(d.node()), d.nodes.back().output = 100000; }},
        {Op::silu, "the result belongs to another node", [](Damaged& d) { d.nodes.push_back(d.node()); }},
    };
    return list;
}

}  // namespace

TEST_CASE("verify: sound graphs of dense and expert models pass, and hold every op") {
    Graph g(512, 1024);
    const test::SampleModel experts({.n_expert = 4}), dense;
    build_all_ops(g, experts);
    CHECK_NOTHROW(graph::verify(g));
    std::set<Op> seen;
    for (const Node& node : g.nodes()) seen.insert(node.op);
    for (auto op = static_cast<int>(Op::alias); op <= static_cast<int>(Op::kv_move); ++op)
        CHECK_MESSAGE(seen.contains(static_cast<Op>(op)), to_string(static_cast<Op>(op)));
    build_all_ops(g, dense);
    CHECK_NOTHROW(graph::verify(g));
}

TEST_CASE("verify: each rule, broken once, is found and names node and rule") {
    Graph g(512, 1024);
    const test::SampleModel model({.n_expert = 4});
    build_all_ops(g, model);
    for (const Attack& attack : attacks()) {
        CAPTURE(to_string(attack.op));
        CAPTURE(attack.rule);
        Damaged d{{g.nodes().begin(), g.nodes().end()}, {g.values().begin(), g.values().end()}, 0};
        while (d.node().op != attack.op) ++d.at;  // the first of its kind: what reads its result is judged later
        attack.damage(d);
        const std::string found = verdict(d);
        CHECK_MESSAGE(found.find(attack.rule) != std::string::npos, found);
        CHECK_MESSAGE(found.starts_with("graph: "), found);
    }
}

TEST_CASE("verify: a message names node, op, operands and shapes") {
    Graph g(512, 1024);
    const test::SampleModel model;
    model.build(g, 3, 1);
    Damaged d{{g.nodes().begin(), g.nodes().end()}, {g.values().begin(), g.values().end()}, 0};
    while (d.node().op != Op::rms_norm) ++d.at;
    d.node().params.eps = -1.0f;
    CHECK(verdict(d) == "graph: node 2 'attn_norm-0' = rms_norm(inp_embd {256,3}, blk.0.attn_norm.weight {256}): eps "
                        "must be finite and not negative");
}
