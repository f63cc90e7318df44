// SPDX-License-Identifier: MIT
// The builder: shapes, names, sharing, limits, and that it neither reads weights nor allocates.
#include "graph/graph.hpp"

#include <doctest/doctest.h>

#if defined(__unix__)
#    include <sys/mman.h>
#endif

#include <chrono>
#include <cstring>
#include <set>

#include "base/error.hpp"
#include "graph/plan.hpp"
#include "graph/sample_graph.hpp"
#include "graph/text.hpp"
#include "support/alloc_counter.hpp"

using namespace tinfer;
using graph::Graph;
using graph::Tensor;
using test::SampleModel;

namespace {

constexpr std::uint32_t kNodes = 512, kValues = 1024;

std::string message_of(auto&& action, ErrorCode expected) {
    try {
        action();
    } catch (const Error& error) {
        CHECK(error.code() == expected);
        return error.what();
    }
    return "no error";
}

TensorInfo file_tensor(std::uint32_t id, std::string_view name, DType type, std::array<std::int64_t, 4> ne,
                       int layer = kNoLayer) {
    TensorInfo info;
    info.id = id;
    info.name = name;
    info.tensor_class = TensorClass::weight;
    info.type = type;
    info.ne = ne;
    info.layer = layer;
    return info;
}

std::vector<Op> ops_of(const Graph& g) {
    std::vector<Op> ops;
    for (const graph::Node& node : g.nodes()) ops.push_back(node.op);
    return ops;
}

}  // namespace

#if defined(__unix__)
TEST_CASE("[G1] graph: building, verifying and planning touch no byte of a weight") {
    void* page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(page != MAP_FAILED);
    const SampleModel model({}, page);  // a read of any weight would end the process
    Graph g(kNodes, kValues);
    model.build(g, 7, 2);
    graph::verify(g);
    graph::Planner planner(kNodes, kValues);
    graph::Plan plan;
    planner.make(g, {}, plan);
    CHECK(g.value(g.weight(model.tensor("output.weight"))).tensor == model.tensor("output.weight").id);
    CHECK(plan.steps.size() > 20);
    munmap(page, 4096);
}
#endif

TEST_CASE("[G3] graph: nodes are in topological order and the same in every build") {
    const SampleModel model;
    Graph first(kNodes, kValues), second(kNodes, kValues);
    model.build(first, 5, 1);
    model.build(second, 9, 3);  // a graph of another shape in between
    model.build(second, 5, 1);
    for (std::uint32_t i = 0; i < first.nodes().size(); ++i)
        for (std::uint32_t k = 0; k < first.nodes()[i].n_inputs; ++k) {
            const std::uint32_t input = first.nodes()[i].inputs[k];
            if (input == graph::kNone) continue;
            const std::uint32_t maker = first.values()[input].node;
            CHECK((maker == graph::kNone || maker < i));
        }
    REQUIRE(ops_of(first) == ops_of(second));
    for (std::uint32_t i = 0; i < first.values().size(); ++i) {
        CHECK(first.display_name(i) == second.display_name(i));
        CHECK(first.values()[i].ne == second.values()[i].ne);
    }
    CHECK(first.signature() == second.signature());
}

TEST_CASE("[G4] graph: building again allocates nothing, whatever the number of tokens") {
    for (const int n_expert : {0, 4}) {
        const SampleModel model({.n_expert = n_expert});
        Graph g(kNodes, kValues);
        model.build(g, 3, 1);
        const test::AllocationScope scope;
        std::uint64_t signatures = 0;
        for (int n_tokens = 1; n_tokens <= 64; ++n_tokens) {
            model.build(g, n_tokens, 1);
            signatures ^= g.signature();
        }
        const std::uint64_t allocations = scope.count();
        CHECK(allocations == 0);
        CHECK(signatures != 0);
    }
}

TEST_CASE("[G5] graph: a graph above its limits is an error, not an overrun") {
    const SampleModel model;
    Graph roomy(kNodes, kValues);
    model.build(roomy, 4, 1);
    const auto n_nodes = static_cast<std::uint32_t>(roomy.nodes().size()),
               n_values = static_cast<std::uint32_t>(roomy.values().size());
    Graph exact(n_nodes, n_values);
    CHECK_NOTHROW(model.build(exact, 4, 1));
    Graph few_nodes(n_nodes - 1, n_values), few_values(n_nodes, n_values - 1);
    CHECK(message_of([&] { model.build(few_nodes, 4, 1); }, ErrorCode::limit_exceeded) ==
          "graph: mul_mat in layer -1 exceeds the limit of " + std::to_string(n_nodes - 1) + " nodes");
    CHECK(message_of([&] { model.build(few_values, 4, 1); }, ErrorCode::limit_exceeded) ==
          "graph: value 'mul_mat' exceeds the limit of " + std::to_string(n_values - 1) + " values");
    CHECK(few_nodes.nodes().size() == n_nodes - 1);
    CHECK(few_values.values().size() == n_values - 1);
}

TEST_CASE("[G7] graph: every input is a value with a name of its own") {
    const SampleModel model;
    Graph g(kNodes, kValues);
    model.build(g, 4, 1);
    std::set<std::string> names;
    for (std::uint32_t i = 0; i < g.values().size(); ++i)
        if (g.values()[i].tensor_class == TensorClass::input && !g.values()[i].is_view)
            CHECK(names.insert(g.display_name(i)).second);
    CHECK(names ==
          std::set<std::string>{"tokens", "positions", "slots", "kv_table", "kv_seqs", "kv_spans", "output_rows"});
}

TEST_CASE("[G13][X12] graph: every node of a layer carries its number and a stable role") {
    const SampleModel model;
    Graph g(kNodes, kValues);
    model.build(g, 4, 1);
    std::set<std::string> names;
    for (const graph::Node& node : g.nodes()) {
        const std::string name = g.display_name(node.output);
        CHECK(!g.values()[node.output].role.empty());
        CHECK(g.values()[node.output].layer == node.layer);
        if (node.layer >= 0) CHECK(name.ends_with(cat("-", node.layer)));
        names.insert(name);
    }
    for (const char* expected : {"inp_embd", "attn_norm-0", "attn_norm-1", "Qcur-1", "kv_write-0", "kqv_out-0",
                                 "ffn_inp-1", "ffn_swiglu-1", "l_out-0", "result_norm", "result_output"})
        CHECK_MESSAGE(names.contains(expected), expected);
    CHECK(g.display_name(g.weight(model.tensor("blk.1.attn_q.weight")).id) == "blk.1.attn_q.weight");
}

TEST_CASE("graph: products of one input share its quantized form, one per activation type") {
    Graph g(64, 64);
    const Tensor x = g.input("x", DType::f32, {256, 3, 1, 1});
    const TensorInfo a = file_tensor(0, "a", DType::q4_k, {256, 8, 1, 1}),
                     b = file_tensor(1, "b", DType::q6_k, {256, 4, 1, 1});
    const TensorInfo c = file_tensor(2, "c", DType::q8_0, {256, 4, 1, 1}),
                     d = file_tensor(3, "d", DType::f16, {256, 4, 1, 1});
    for (const TensorInfo* w : {&a, &b, &c, &d}) g.mul_mat(g.weight(*w), x);
    CHECK(ops_of(g) == std::vector{Op::quantize, Op::mul_mat, Op::mul_mat, Op::quantize, Op::mul_mat, Op::mul_mat});
    CHECK(g.values()[g.nodes()[0].output].type == DType::x8_256);
    CHECK(g.values()[g.nodes()[3].output].type == DType::x8_32);
    CHECK(g.nodes()[2].inputs[1] == g.nodes()[0].output);
    CHECK(g.nodes()[5].inputs[1] == x.id);
    CHECK(g.value(Tensor{g.nodes()[1].output}).ne == std::array<std::int64_t, 4>{8, 3, 1, 1});
}

TEST_CASE("[G13] graph: a quantized form lives in the layer and under the name of what it is made from") {
    Graph g(64, 64);
    const TensorInfo norm = file_tensor(0, "blk.3.attn_norm.weight", DType::f32, {256, 1, 1, 1}, 3),
                     w = file_tensor(1, "w", DType::q4_k, {256, 8, 1, 1});
    const Tensor x = g.input("x", DType::f32, {256, 3, 1, 1});
    g.set_layer(3);
    g.set_part(Part::attn_norm);
    const Tensor h = g.rms_norm(x, g.weight(norm), 1e-5f);
    g.set_part(Part::attn);
    g.mul_mat(g.weight(w), h);
    g.name(h, "attn_norm");  // later than its quantized form was made
    CHECK(g.nodes()[1].part == Part::attn_norm);
    CHECK(g.display_name(g.nodes()[1].output) == "attn_norm-3");
    CHECK(g.display_name(g.nodes()[2].output) == "mul_mat-3");
}

TEST_CASE("graph: the same tensor is the same leaf within a graph and never a stale one after reset") {
    Graph g(64, 64);
    const TensorInfo a = file_tensor(7, "a", DType::f32, {8, 1, 1, 1}),
                     b = file_tensor(3, "b", DType::f32, {8, 1, 1, 1});
    CHECK(g.weight(a) == g.weight(a));
    CHECK(g.weight(a) != g.weight(b));
    g.reset();
    const Tensor first = g.weight(b);  // takes the place that a had
    const Tensor second = g.weight(a);
    CHECK(first.id == 0);
    CHECK(second.id == 1);
    CHECK(g.display_name(second.id) == "a");
}

TEST_CASE("graph: views have strides, offset and root of what they look at") {
    Graph g(64, 64);
    const Tensor x = g.input("qkv", DType::f32, {24, 5, 1, 1});
    const Tensor k = g.heads(g.view(x, 8, 8), 2);  // heads of a slice of every row: no copy
    const graph::Value& v = g.value(k);
    CHECK(v.is_view);
    CHECK(v.root == x.id);
    CHECK(v.offset == 32);
    CHECK(v.ne == std::array<std::int64_t, 4>{4, 2, 5, 1});
    CHECK(v.nb == std::array<std::int64_t, 4>{4, 16, 96, 480});
    CHECK(g.value(g.reshape(x, {12, 10, 1, 1})).nb == std::array<std::int64_t, 4>{4, 48, 480, 480});
    CHECK(message_of(
              [&] {
                  g.reshape(k, {8, 5, 1, 1});
              },
              ErrorCode::compute_failed) ==
          "alias(qkv {4,2,5}): reshape to {8,5} needs contiguous elements: copy first");
    CHECK(message_of(
              [&] {
                  g.reshape(x, {7, 10, 1, 1});
              },
              ErrorCode::compute_failed) == "alias(qkv {24,5}): reshape to {7,10}: elements differ");
    CHECK(message_of([&] { g.view(x, 20, 5); }, ErrorCode::compute_failed) ==
          "alias(qkv {24,5}): elements 20 to 25 lie outside the rows");
    CHECK(message_of([&] { g.heads(x, 7); }, ErrorCode::compute_failed) ==
          "alias(qkv {24,5}): rows do not split into 7 heads");
    CHECK(!g.value(g.copy(k)).is_view);
}

TEST_CASE("graph: mistakes are reported in names and shapes") {
    Graph g(64, 64);
    const TensorInfo w = file_tensor(0, "blk.0.attn_q.weight", DType::q8_0, {64, 64, 1, 1}),
                     odd = file_tensor(1, "odd.weight", DType::q8_1, {64, 64, 1, 1});
    const TensorInfo hostile = file_tensor(2, "a\n'b", DType::f32, {3, 1, 1, 1});
    const Tensor x = g.input("x", DType::f32, {32, 5, 1, 1});
    g.set_layer(0);
    const Tensor h = g.name(g.silu(x), "attn_norm");
    CHECK(message_of([&] { g.mul_mat(g.weight(w), h); }, ErrorCode::compute_failed) ==
          "mul_mat(blk.0.attn_q.weight {64,64}, attn_norm-0 {32,5}): inner extents differ");
    CHECK(message_of([&] { g.mul_mat(g.weight(odd), h); }, ErrorCode::unsupported_tensor_type) ==
          "mul_mat: tensor 'odd.weight' has type q8_1, which has no product");
    CHECK(message_of([&] { g.get_rows(g.weight(odd), h); }, ErrorCode::unsupported_tensor_type) ==
          "get_rows: tensor 'odd.weight' has type q8_1, which cannot be unpacked");
    CHECK(message_of([&] { g.add(h, g.weight(hostile)); }, ErrorCode::compute_failed) ==
          "add(attn_norm-0 {32,5}, a\\x0a\\'b {3}): b must be like a, {n}, {1}, or {1,…}");
    CHECK(message_of([&] { g.add(h, {}); }, ErrorCode::compute_failed) == "add: operand 2 is no value of this graph");
    CHECK(message_of(
              [&] {
                  g.input("none", DType::f32, {4, 0, 1, 1});
              },
              ErrorCode::compute_failed) == "input 'none' has shape {4,0}");
    CHECK(g.nodes().size() == 1);  // a refused node leaves nothing behind
    CHECK_NOTHROW(graph::verify(g));
}

TEST_CASE("graph: experts read one shared row of a token, or one row each") {
    Graph g(64, 64);
    const TensorInfo w = file_tensor(0, "exps", DType::q8_0, {32, 16, 8, 1}),
                     down = file_tensor(1, "down", DType::q8_0, {32, 12, 8, 1});
    for (const std::int64_t t : {1, 2, 3}) {
        g.reset();
        const Tensor x = g.input("x", DType::f32, {32, t, 1, 1}), each = g.input("each", DType::f32, {32, 2, t, 1});
        const Tensor ids = g.input("ids", DType::i32, {2, t, 1, 1});
        CHECK(g.value(g.mul_mat_id(g.weight(w), x, ids)).ne == std::array<std::int64_t, 4>{16, 2, t, 1});
        CHECK(g.value(g.mul_mat_id(g.weight(down), each, ids)).ne == std::array<std::int64_t, 4>{12, 2, t, 1});
        CHECK_NOTHROW(graph::verify(g));
    }
}

TEST_CASE("graph: the signature sees shapes, attributes, outputs, operands and names") {
    const TensorInfo a = file_tensor(0, "a", DType::f32, {8, 1, 1, 1}),
                     b = file_tensor(1, "b", DType::f32, {8, 1, 1, 1});
    struct Variant {
        std::int64_t n_tokens = 4;
        float eps = 1e-5f;
        bool output = false, other_weight = false;
        const char* role = "h";
        Part part = Part::attn;
    };
    const auto signature = [&](const Variant& v) {
        Graph g(16, 16);
        g.set_part(v.part);
        const Tensor x = g.input("x", DType::f32, {8, v.n_tokens, 1, 1});
        const Tensor wa = g.weight(a), wb = g.weight(b);
        const Tensor h = g.name(g.rms_norm(x, v.other_weight ? wb : wa, v.eps), v.role);
        if (v.output) g.output(h);
        return g.signature();
    };
    const std::set<std::uint64_t> all{signature({}),
                                      signature({.n_tokens = 5}),
                                      signature({.eps = 1e-6f}),
                                      signature({.output = true}),
                                      signature({.other_weight = true}),
                                      signature({.role = "k"}),
                                      signature({.part = Part::ffn})};
    CHECK(all.size() == 7);
    CHECK(signature({}) == signature({}));
}

TEST_CASE("graph: the time of building, hashing and planning is reported") {
    const SampleModel model({.n_layer = 32});
    Graph g(2048, 4096);
    graph::Planner planner(2048, 4096);
    graph::Plan plan;
    const auto ns_per_node = [&](auto&& action) {
        double best = 1e30;
        for (int i = 0; i < 20; ++i) {
            const auto begin = std::chrono::steady_clock::now();
            action();
            best = std::min(best,
                            std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count());
        }
        return best / static_cast<double>(g.nodes().size());
    };
    const double build = ns_per_node([&] { model.build(g, 1, 1); });
    const double hash = ns_per_node([&] { plan.signature = g.signature(); });
    const double make = ns_per_node([&] { planner.make(g, {}, plan); });
    MESSAGE(g.nodes().size(), " nodes: build ", build, " ns, signature ", hash, " ns, plan ", make, " ns per node");
    CHECK(plan.signature == g.signature());
}
