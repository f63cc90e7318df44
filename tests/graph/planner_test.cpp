// SPDX-License-Identifier: MIT
// Plans: every result has a place of its own for as long as somebody reads it, over whole models and random graphs. A
// symbolic run writes each value's number into its bytes of the arena and checks every read, as poisoned memory would.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <span>

#include "graph/plan.hpp"
#include "graph/sample_graph.hpp"
#include "support/alloc_counter.hpp"
#include "support/small_stack.hpp"

using namespace tinfer;
using graph::Graph;
using graph::kNone;
using graph::kNotInArena;
using graph::Plan;
using graph::Step;
using graph::StepOperand;
using graph::Tensor;
using test::SampleModel;

namespace {

constexpr std::uint32_t kMaxNodes = 512, kMaxValues = 1024;

std::span<const StepOperand> operands_of(const Plan& plan, const Step& step) {
    return std::span(plan.operands).subspan(step.first_operand, step.n_operands);
}

// Runs a plan on numbers of values instead of floats, one per 64 bytes. Returns how many reads saw what they should
// not.
int wrong_reads(const Graph& g, const Plan& plan) {
    constexpr std::uint32_t poison = 0xDEADBEEF;
    std::vector<std::uint32_t> arena(plan.arena_bytes / 64, poison);
    const auto cells = [&](std::uint32_t root) {
        REQUIRE(plan.offsets[root] != kNotInArena);
        return std::span(arena).subspan(plan.offsets[root] / 64, graph::storage_bytes(g.values()[root]) / 64);
    };
    const auto in_arena = [&](std::uint32_t root) { return g.values()[root].tensor_class == TensorClass::value; };
    const auto holds = [&](std::uint32_t root) {
        return std::ranges::all_of(cells(root), [&](std::uint32_t x) { return x == root; });
    };
    int wrong = 0;
    for (const Step& step : plan.steps) {
        for (const StepOperand& o : operands_of(plan, step))
            if (const std::uint32_t root = g.values()[o.value].root;
                !o.elided && o.mode == AccessMode::read && in_arena(root) && !holds(root))
                ++wrong;
        for (const StepOperand& o : operands_of(plan, step))
            if (const std::uint32_t root = g.values()[o.value].root;
                !o.elided && o.mode == AccessMode::write && in_arena(root))
                std::ranges::fill(cells(root), root);
        for (const StepOperand& o : operands_of(plan, step))  // a step must not overwrite what it reads
            if (const std::uint32_t root = g.values()[o.value].root; !o.elided && in_arena(root) && !holds(root))
                ++wrong;
        for (const std::uint32_t dead : std::span(plan.dead).subspan(step.first_dead, step.n_dead))
            std::ranges::fill(cells(dead), poison);
    }
    for (const graph::Value& value : g.values())
        if (value.output && in_arena(value.root) && !holds(value.root)) ++wrong;
    return wrong;
}

// Operations drawn at random over values of one row length; views, outputs, chains and fans included.
void build_random(Graph& g, std::mt19937& random, const std::deque<TensorInfo>& weights) {
    g.reset();
    const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
    const std::int64_t t = 1 + static_cast<std::int64_t>(below(9));
    std::vector<Tensor> pool{g.input("x", DType::f32, {256, t, 1, 1}), g.input("y", DType::f32, {256, t, 1, 1})};
    const auto any = [&] { return below(2) == 0 ? pool.back() : pool[below(pool.size())]; };
    for (int i = 0, n = 5 + static_cast<int>(below(60)); i < n; ++i) {
        g.set_layer(i / 8);
        Tensor r;
        switch (below(9)) {
            case 0: r = g.rms_norm(any(), g.weight(weights[0]), 1e-5f); break;
            case 1: r = g.mul_mat(g.weight(weights[1 + below(3)]), any()); break;
            case 2: r = g.mul(g.silu(any()), any()); break;
            case 3: r = g.mul(any(), any()); break;
            case 4: r = g.add(any(), any()); break;
            case 5: r = g.add(any(), g.mul_mat(g.weight(weights[1 + below(3)]), any())); break;
            case 6: r = g.copy(g.view(any(), 0, 128)), r = g.mul_mat(g.weight(weights[4]), r); break;
            case 7: r = g.silu(any()); break;
            default: r = g.reshape(g.heads(g.copy(any()), 4), {256, t, 1, 1}); break;
        }
        if (below(12) == 0) g.output(r);
        pool.push_back(r);
    }
}

std::deque<TensorInfo> random_weights() {
    std::deque<TensorInfo> out(5);
    const std::array types{DType::f32, DType::q4_k, DType::q8_0, DType::f16, DType::q8_0};
    for (std::uint32_t i = 0; i < out.size(); ++i) {
        out[i].id = i;
        out[i].name = "w";
        out[i].tensor_class = TensorClass::weight;
        out[i].type = types[i];
        out[i].ne = {i == 4 ? 128 : 256, i == 0 ? 1 : 256, 1, 1};
    }
    return out;
}

std::string verdict(const Graph& g, const Plan& plan) {
    try {
        graph::verify(g, plan);
    } catch (const Error& error) {
        return error.what();
    }
    return "nothing found";
}

}  // namespace

TEST_CASE("[G10] planner: in whole models every read sees what was written for it, and dead memory is never read") {
    graph::Planner planner(kMaxNodes, kMaxValues);
    Plan plan;
    Graph g(kMaxNodes, kMaxValues);
    for (const int n_expert : {0, 4})
        for (const DType type : {DType::q4_k, DType::q8_0, DType::f16})
            for (const int n_tokens : {1, 2, 17})
                for (const bool fuse : {true, false}) {
                    const SampleModel model({.n_expert = n_expert, .weights = type});
                    model.build(g, n_tokens, 1);
                    planner.make(g, {.fuse = fuse}, plan);
                    CHECK(verdict(g, plan) == "nothing found");
                    CHECK(wrong_reads(g, plan) == 0);
                }
}

TEST_CASE("planner: random graphs are placed without overlap, fused or not") {
    const std::deque<TensorInfo> weights = random_weights();
    graph::Planner planner(kMaxNodes, kMaxValues);
    Plan plan;
    Graph g(kMaxNodes, kMaxValues);
    std::size_t fused_steps = 0;
    for (unsigned seed = 0; seed < 500; ++seed) {
        std::mt19937 random(seed);
        build_random(g, random, weights);
        graph::verify(g);
        for (const bool fuse : {true, false}) {
            CAPTURE(seed);
            planner.make(g, {.fuse = fuse}, plan);
            CHECK(verdict(g, plan) == "nothing found");
            CHECK(wrong_reads(g, plan) == 0);
            for (const Step& step : plan.steps) fused_steps += step.n_nodes > 1 ? 1 : 0;
        }
    }
    CHECK(fused_steps > 1000);  // the draw does meet the patterns
}

TEST_CASE("planner: memory is reused, and the peak is far below the sum of all results") {
    const SampleModel model({.n_layer = 16});
    Graph g(1024, 2048);
    model.build(g, 8, 8);
    graph::Planner planner(1024, 2048);
    Plan plan;
    planner.make(g, {}, plan);
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < g.values().size(); ++i)
        if (plan.offsets[i] != kNotInArena) sum += graph::storage_bytes(g.values()[i]);
    CHECK(plan.arena_bytes * 8 < sum);

    // One layer more lives in the same memory.
    Graph longer(1024, 2048);
    const SampleModel longer_model({.n_layer = 17});
    longer_model.build(longer, 8, 8);
    Plan same;
    planner.make(longer, {}, same);
    CHECK(same.arena_bytes == plan.arena_bytes);
}

TEST_CASE("[G6] planner: the arena of the largest micro-batch holds every smaller one") {
    graph::Planner planner(kMaxNodes, kMaxValues);
    Plan plan;
    Graph g(kMaxNodes, kMaxValues);
    for (const int n_expert : {0, 4}) {
        const SampleModel model({.n_expert = n_expert});
        constexpr int largest = 40;
        model.build(g, largest, largest);
        planner.make(g, {}, plan);
        const std::uint64_t worst = plan.arena_bytes;
        for (int n_tokens = 1; n_tokens <= largest; ++n_tokens)
            for (int n_outputs = 1; n_outputs <= n_tokens; ++n_outputs) {
                model.build(g, n_tokens, n_outputs);
                planner.make(g, {}, plan);
                if (plan.arena_bytes > worst)
                    FAIL_CHECK(n_tokens, " tokens, ", n_outputs, " outputs: ", plan.arena_bytes, " > ", worst);
            }
    }
}

TEST_CASE("[G4] planner: planning again allocates nothing") {
    const SampleModel model;
    Graph g(kMaxNodes, kMaxValues);
    graph::Planner planner(kMaxNodes, kMaxValues);
    graph::PlanSize size;
    model.build(g, 64, 64);
    for (const bool fuse : {true, false}) {
        Plan largest;
        planner.make(g, {.fuse = fuse}, largest);
        size.include(largest);
    }
    Plan plan;
    size.reserve(plan);
    const test::AllocationScope scope;
    for (int n_tokens = 1; n_tokens <= 64; ++n_tokens) {
        model.build(g, n_tokens, 1);
        planner.make(g, {.fuse = n_tokens % 2 == 0}, plan);
    }
    const std::uint64_t allocations = scope.count();
    CHECK(allocations == 0);
}

TEST_CASE("alloc_counter: counts allocations and fails the one asked for, once") {
    const test::AllocationScope scope;
    auto number = std::make_unique<int>(1);
    CHECK(scope.count() == 1);
    CHECK(scope.bytes() == sizeof(int));
    number.reset();
    test::fail_allocation_at(2);
    auto first = std::make_unique<int>(1);
    bool threw = false;
    try {
        number = std::make_unique<int>(2);
    } catch (const std::bad_alloc&) {
        threw = true;
    }
    CHECK(threw);
    CHECK(test::allocation_failed());
    CHECK_NOTHROW(std::make_unique<int>(3));
    test::fail_allocation_at(0);
    CHECK(!test::allocation_failed());
}

TEST_CASE("planner: only stored results have places, kept ones are never declared dead") {
    const SampleModel model;
    Graph g(kMaxNodes, kMaxValues);
    const Tensor logits = model.build(g, 4, 1);
    graph::Planner planner(kMaxNodes, kMaxValues);
    Plan plan;
    planner.make(g, {}, plan);
    for (std::uint32_t i = 0; i < g.values().size(); ++i) {
        const graph::Value& value = g.values()[i];
        if (value.tensor_class != TensorClass::value || value.is_view) CHECK(plan.offsets[i] == kNotInArena);
        else if (plan.offsets[i] != kNotInArena) CHECK(plan.offsets[i] % 64 == 0);
    }
    CHECK(plan.offsets[logits.id] != kNotInArena);
    CHECK(std::ranges::find(plan.dead, logits.id) == plan.dead.end());
    CHECK(plan.signature == g.signature());
}

TEST_CASE("verify: a damaged plan is found") {
    const SampleModel model;
    Graph g(kMaxNodes, kMaxValues);
    model.build(g, 4, 1);
    graph::Planner planner(kMaxNodes, kMaxValues);
    Plan plan;
    planner.make(g, {}, plan);
    const auto found = [&](auto&& damage, std::string_view rule) {
        Plan broken = plan;
        damage(broken);
        const std::string text = verdict(g, broken);
        CHECK_MESSAGE(text.find(rule) != std::string::npos, text, " instead of: ", rule);
    };
    const auto first_fused = [](Plan& p) -> Step& {
        return *std::ranges::find_if(p.steps, [](const Step& s) { return s.n_nodes > 1; });
    };
    const auto first_read = [](Plan& p, Op op) -> StepOperand& {
        const Step& step = *std::ranges::find_if(p.steps, [&](const Step& s) { return s.op == op; });
        return p.operands[step.first_operand + 1];
    };
    found([](Plan& p) { p.steps.pop_back(); }, "lies in no step");
    found([](Plan& p) { p.step_nodes[1] = p.step_nodes[0]; }, "lies in two steps");
    found([](Plan& p) { std::swap(p.steps[4], p.steps[5]); }, "steps are out of order");
    found(
        [&](Plan& p) {
            std::swap(p.step_nodes[first_fused(p).first_node], p.step_nodes[first_fused(p).first_node + 1]);
        },
        "out of order");
    found([](Plan& p) { p.steps[0].op = Op::silu; }, "its op is not what its nodes do");
    found([&](Plan& p) { first_read(p, Op::attention).value = p.operands[0].value; }, "is not listed");
    found([](Plan& p) { p.operands[p.steps[0].first_operand].elided = true; }, "is read elsewhere, but not stored");
    found([&](Plan& p) { --p.steps[0].n_operands; }, "is not listed");
    found([](Plan& p) { p.operands[p.steps[1].first_operand + 1].slot = 0; }, "slots must ascend");
    found([](Plan& p) { p.arena_bytes += 64; }, "the arena has");
    found(
        [](Plan& p) {
            for (auto& offset : p.offsets)
                if (offset != kNotInArena && offset > 0) {
                    offset += 32;
                    break;
                }
        },
        "is not aligned");
    found(
        [](Plan& p) {
            for (auto& offset : p.offsets)
                if (offset != kNotInArena) offset = 0;
        },
        "overlap");
    found([](Plan& p) { p.offsets[0] = 0; }, "has a place but is no stored result");
    found(
        [](Plan& p) {
            p.steps.back().n_dead = 0;
            p.steps[3].n_dead = 0;
            p.steps[2].n_dead = 0;
            for (Step& s : p.steps) s.n_dead = 0;
        },
        "ends at the wrong step");
    found([](Plan& p) { p.dead[1] = p.dead[0]; }, "ends a result that is not alive");
    found([](Plan& p) { p.offsets.pop_back(); }, "made from another graph");
}

TEST_CASE("planner: a hundred thousand nodes in a row are made, verified, fused and planned on a small stack") {
    test::on_small_stack([] {
        Graph g(100'000, 200'000);
        Tensor x = g.input("x", DType::f32, {8, 1, 1, 1});
        for (int i = 0; i < 100'000; ++i) x = i % 2 == 0 ? g.silu(x) : g.add(x, x);
        g.output(x);
        const Plan plan = test::plan_of(g);
        CHECK(plan.steps.size() > 40'000);
        CHECK(plan.arena_bytes < 4096);
    });
}
