// SPDX-License-Identifier: MIT
// The verifier: every rule of the table, broken once in a graph that is otherwise sound, is found and named.
#include <doctest/doctest.h>

#include <map>
#include <set>

#include "graph/plan.hpp"
#include "graph/rules.hpp"
#include "graph/sample_graph.hpp"
#include "graph/verify_support.hpp"
#include "support/op_lists.hpp"

using namespace tinfer;
using graph::Graph;
using graph::Node;
using graph::Tensor;
using test::Attack;
using test::Damaged;

namespace {

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
    g.sum_rows(g.l2_norm(x, 1e-6f));
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

// A cache of one float for each slot.
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
    for (const test::UnaryOp& unary : test::kUnaryOps) (g.*unary.build)(x);
    g.scale(x, 2.0f);
    g.hadamard(g.input("wide", DType::f32, {32, 3, 1, 1}), 16);
    g.xielu(x, 1.0f, 2.0f, 0.5f, -1e-6f);
    g.signed_sqrt(g.sinkhorn(x, 2, 0.1f), 1e-6f);
    g.clamp(g.div(x, x), -1.0f, 1.0f);
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
    const graph::KvInputs kv{g.input("slots_table", DType::i32, {4, 2, 1, 1}),
                             g.input("slots_seqs", DType::i32, {2, 1, 1, 1}),
                             g.input("slots_spans", DType::i32, {4, 3, 1, 1})};
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
    for (const Attack& attack : test::attacks()) {
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
