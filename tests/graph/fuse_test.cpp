// SPDX-License-Identifier: MIT
// Which nodes share a step, which never do, and that a fused step names every tensor it stands for.
#include "graph/fuse.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "graph/plan.hpp"
#include "graph/sample_graph.hpp"

using namespace tinfer;
using graph::Graph;
using graph::Plan;
using graph::Tensor;
using test::plan_of;
using test::SampleModel;

namespace {

std::vector<Op> ops_of(const Plan& plan) {
    std::vector<Op> ops;
    for (const graph::Step& step : plan.steps) ops.push_back(step.op);
    return ops;
}

// Operands of a step as "slot:name", elided ones in brackets.
std::set<std::string> operands_of(const Graph& g, const Plan& plan, std::size_t step) {
    std::set<std::string> out;
    for (std::uint32_t i = 0; i < plan.steps[step].n_operands; ++i) {
        const graph::StepOperand& o = plan.operands[plan.steps[step].first_operand + i];
        const std::string text = std::to_string(o.slot) + ":" + g.display_name(o.value);
        out.insert(o.elided ? "[" + text + "]" : text);
    }
    return out;
}

TensorInfo tensor(std::uint32_t id, std::string_view name, DType type, std::array<std::int64_t, 4> ne,
                  TensorClass c = TensorClass::weight) {
    TensorInfo info;
    info.id = id;
    info.name = name;
    info.tensor_class = c;
    info.type = type;
    info.ne = ne;
    return info;
}

// Inputs and weights that most patterns need.
struct Bench {
    Graph g{64, 128};
    TensorInfo norm_weight = tensor(0, "norm", DType::f32, {32, 1, 1, 1}),
               q8 = tensor(1, "q8", DType::q8_0, {32, 32, 1, 1});
    TensorInfo bias = tensor(2, "bias", DType::f32, {32, 1, 1, 1}),
               k_cache = tensor(3, "k_cache", DType::f16, {32, 64, 1, 1}, TensorClass::cache_k);
    Tensor x = g.input("x", DType::f32, {32, 3, 1, 1}), y = g.input("y", DType::f32, {32, 3, 1, 1});
    Tensor norm() { return g.name(g.rms_norm(x, g.weight(norm_weight), 1e-5f), "h"); }
    Tensor product(Tensor of) { return g.mul_mat(g.weight(q8), of); }
};

}  // namespace

TEST_CASE("fuse: a norm whose only reader is its quantization is never stored") {
    Bench b;
    b.product(b.norm());
    const Plan plan = plan_of(b.g);
    CHECK(ops_of(plan) == std::vector{Op::rms_norm_quantize, Op::mul_mat});
    CHECK(operands_of(b.g, plan, 0) == std::set<std::string>{"0:h", "1:x", "2:norm", "[3:h]"});
    CHECK(plan.steps[0].params.eps == 1e-5f);
    CHECK(ops_of(plan_of(b.g, false)) == std::vector{Op::rms_norm, Op::quantize, Op::mul_mat});
}

TEST_CASE("fuse: a norm that others read, or that is an output, is stored beside its quantized form") {
    for (const bool read_again : {true, false}) {
        Bench b;
        const Tensor h = b.norm();
        b.product(h);
        read_again ? void(b.g.silu(h)) : b.g.output(h);
        const Plan plan = plan_of(b.g);
        CHECK(plan.steps[0].op == Op::rms_norm_quantize);
        CHECK(operands_of(b.g, plan, 0) == std::set<std::string>{"0:h", "1:x", "2:norm", "3:h"});
    }
}

TEST_CASE("fuse: a norm that is read before its quantization, directly or through a view, stays where it is") {
    for (const bool through_view : {true, false}) {
        Bench b;
        const Tensor h = b.norm();
        b.g.silu(through_view ? b.g.view(h, 0, 16) : h);
        b.product(h);
        CHECK(ops_of(plan_of(b.g)) == std::vector{Op::rms_norm, Op::silu, Op::quantize, Op::mul_mat});
    }
}

TEST_CASE("fuse: silu times up, in either order, and its quantization") {
    for (const bool gate_first : {true, false}) {
        Bench b;
        const Tensor a = b.g.silu(b.x);
        const Tensor m = b.g.name(gate_first ? b.g.mul(a, b.y) : b.g.mul(b.y, a), "swiglu");
        const Plan unquantized = plan_of(b.g);
        CHECK(ops_of(unquantized) == std::vector{Op::silu_mul});
        CHECK(operands_of(b.g, unquantized, 0) == std::set<std::string>{"0:swiglu", "1:x", "2:y", "[3:silu]"});
        b.product(m);
        const Plan plan = plan_of(b.g);
        CHECK(ops_of(plan) == std::vector{Op::silu_mul_quantize, Op::mul_mat});
        CHECK(operands_of(b.g, plan, 0) == std::set<std::string>{"0:swiglu", "1:x", "2:y", "[3:silu]", "[4:swiglu]"});
        CHECK(plan.steps[0].n_nodes == 3);
    }
}

TEST_CASE("fuse: results with a second reader or kept as outputs are not fused away") {
    SUBCASE("silu is an output") {
        Bench b;
        const Tensor a = b.g.silu(b.x);
        b.g.output(a);
        b.g.mul(a, b.y);
        CHECK(ops_of(plan_of(b.g)) == std::vector{Op::silu, Op::mul});
    }
    SUBCASE("silu has another reader") {
        Bench b;
        const Tensor a = b.g.silu(b.x);
        b.g.mul(a, b.y);
        b.g.scale(a, 2.0f);
        CHECK(ops_of(plan_of(b.g)) == std::vector{Op::silu, Op::mul, Op::scale});
    }
    SUBCASE("silu is squared") {
        Bench b;
        const Tensor a = b.g.silu(b.x);
        b.g.mul(a, a);
        CHECK(ops_of(plan_of(b.g)) == std::vector{Op::silu, Op::mul});
    }
    SUBCASE("the factor is broadcast") {
        Bench b;
        b.g.mul(b.g.silu(b.x), b.g.weight(b.bias));
        CHECK(ops_of(plan_of(b.g)) == std::vector{Op::silu, Op::mul});
    }
    SUBCASE("the product of silu and up is an output") {
        Bench b;
        const Tensor m = b.g.mul(b.g.silu(b.x), b.y);
        b.g.output(m);
        b.product(m);
        CHECK(ops_of(plan_of(b.g)) == std::vector{Op::silu_mul, Op::quantize, Op::mul_mat});
    }
    SUBCASE("a product is read twice") {
        Bench b;
        const Tensor p = b.product(b.x);
        b.g.add(b.y, p);
        b.g.silu(p);
        CHECK(ops_of(plan_of(b.g)) == std::vector{Op::quantize, Op::mul_mat, Op::add, Op::silu});
    }
    SUBCASE("a product is seen through a view") {
        Bench b;
        const Tensor p = b.product(b.x);
        b.g.view(p, 0, 8);
        b.g.add(b.y, p);
        CHECK(ops_of(plan_of(b.g)) == std::vector{Op::quantize, Op::mul_mat, Op::add});
    }
}

TEST_CASE("fuse: a product and the residual or bias added to it") {
    for (const int form : {0, 1, 2}) {
        Bench b;
        const Tensor p = b.g.name(b.product(b.x), "p");
        const Tensor sum = form == 0 ? b.g.add(b.y, p) : form == 1 ? b.g.add(p, b.y) : b.g.add(p, b.g.weight(b.bias));
        b.g.name(sum, "sum");
        const Plan plan = plan_of(b.g);
        CHECK(ops_of(plan) == std::vector{Op::quantize, Op::mul_mat_add});
        CHECK(operands_of(b.g, plan, 1) ==
              std::set<std::string>{"0:sum", "1:q8", "2:x", form == 2 ? "3:bias" : "3:y", "[4:p]"});
    }
}

TEST_CASE("fuse: of two products the later one takes the sum, and a bias leaves the residual to an add of its own") {
    Bench b;
    const Tensor first = b.g.name(b.product(b.x), "first"), second = b.g.name(b.product(b.y), "second");
    const Tensor sum = b.g.name(b.g.add(first, second), "sum");
    b.g.add(b.x, b.g.add(b.product(sum), b.g.weight(b.bias)));
    const Plan plan = plan_of(b.g);
    CHECK(ops_of(plan) == std::vector{Op::quantize, Op::mul_mat, Op::quantize, Op::mul_mat_add, Op::quantize,
                                      Op::mul_mat_add, Op::add});
    CHECK(operands_of(b.g, plan, 3) == std::set<std::string>{"0:sum", "1:q8", "2:y", "3:first", "[4:second]"});
}

TEST_CASE("fuse: rotated keys go straight into the cache, keys kept for others do not") {
    for (const bool kept : {false, true}) {
        Bench b;
        RopeParams rope;
        rope.n_rot = 16;
        AttentionParams attention;
        attention.n_head = attention.n_head_kv = 2;
        attention.head_dim_k = attention.head_dim_v = 16;
        const Tensor table = b.g.rope_table(b.g.input("positions", DType::i32, {3, 1, 1, 1}), rope);
        const Tensor k = b.g.name(b.g.rope(b.g.heads(b.x, 2), table, rope), "k");
        if (kept) b.g.output(k);
        b.g.kv_write(b.g.cache(b.k_cache), k, b.g.input("slots", DType::i32, {3, 1, 1, 1}), attention, false);
        const Plan plan = plan_of(b.g);
        if (kept) {
            CHECK(ops_of(plan) == std::vector{Op::rope_table, Op::rope, Op::kv_write});
            continue;
        }
        CHECK(ops_of(plan) == std::vector{Op::rope_table, Op::rope_kv_write});
        CHECK(operands_of(b.g, plan, 1) ==
              std::set<std::string>{"0:kv_write", "1:x", "2:slots", "3:rope_table", "[4:k]"});
        CHECK(plan.steps[1].params.rope.n_rot == 16);
        CHECK(plan.steps[1].params.attention.head_dim_k == 16);
    }
}

TEST_CASE("[K7] fuse: every tensor a node names appears in its step, and fusing loses no node of a whole model") {
    for (const int n_expert : {0, 4}) {
        const SampleModel model({.n_expert = n_expert});
        Graph g(512, 1024);
        model.build(g, 5, 2);
        const Plan fused = plan_of(g), plain = plan_of(g, false);
        CHECK(fused.step_nodes.size() == plain.step_nodes.size());
        CHECK(plain.steps.size() == plain.step_nodes.size());
        CHECK(fused.steps.size() < plain.steps.size());
        std::map<Op, int> count;
        for (const Op op : ops_of(fused)) ++count[op];
        const int n_layer = model.shape().n_layer;
        CHECK(count[Op::rms_norm_quantize] ==
              (n_expert == 0 ? 2 : 1) * n_layer + 1);  // a router reads the norm as it is, first
        CHECK(count[Op::rope_kv_write] == n_layer);
        CHECK(count[Op::silu_mul_quantize] == n_layer);
        CHECK(count[Op::mul_mat_add] == (n_expert == 0 ? 2 : 1) * n_layer);
        for (const graph::Step& step : fused.steps) {
            std::set<std::uint32_t> listed, made;
            for (std::uint32_t i = 0; i < step.n_operands; ++i)
                listed.insert(fused.operands[step.first_operand + i].value);
            for (std::uint32_t i = 0; i < step.n_nodes; ++i) {
                const graph::Node& node = g.nodes()[fused.step_nodes[step.first_node + i]];
                CHECK(listed.contains(node.output));
                for (std::uint32_t k = 0; k < node.n_inputs; ++k)
                    if (node.inputs[k] != graph::kNone) CHECK(listed.contains(node.inputs[k]));
            }
        }
    }
}
