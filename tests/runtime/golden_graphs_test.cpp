// SPDX-License-Identifier: MIT
// Every graph that a golden model runs is one that the verifier takes (checked builds verify each graph as it is built;
// this is for the others), and graphs of one kind differ in their extents alone.
#include <doctest/doctest.h>

#include <array>
#include <span>
#include <vector>

#include "base/access.hpp"
#include "gguf/file.hpp"
#include "graph/graph.hpp"
#include "graph/plan.hpp"
#include "kernels/tables.hpp"
#include "model/model.hpp"
#include "runtime/context.hpp"
#include "runtime/graph_structure.hpp"
#include "runtime/layout.hpp"
#include "support/golden.hpp"
#include "support/tiny_model.hpp"
#include "tinfer/tinfer.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

void check_graphs(const model::BoundModel& bound, bool encoder) {
    ContextOptions options{.n_ctx = 64, .n_seq_max = 2, .n_ubatch = 8, .n_threads = 1};
    options.embeddings = encoder;
    const runtime::Layout layout(bound, options, *kernels::find_table(Isa::reference));
    graph::Graph graph(layout.max_nodes(), layout.max_values());
    for (const bool from_embeddings : {false, true}) {
        if (from_embeddings && !bound.hp.takes_embeddings) continue;
        for (const std::int64_t n_tokens : {1, 8})
            for (const std::int64_t n_outputs : {0, 1}) {
                CAPTURE(from_embeddings);
                CAPTURE(n_tokens);
                CAPTURE(n_outputs);
                layout.build(graph, n_tokens, n_outputs, from_embeddings);
                CHECK_NOTHROW(graph::verify(graph));
            }
    }
    if (layout.encoder() == nullptr) return;
    layout.build_encoder(graph, 8);
    CHECK_NOTHROW(graph::verify(graph));
}

void check_structure(const model::BoundModel& bound, const ContextOptions& options) {
    const runtime::Layout layout(bound, options, *kernels::find_table(Isa::reference));
    graph::Graph graph(layout.max_nodes(), layout.max_values());
    graph::Planner planner(layout.max_nodes(), layout.max_values());
    graph::Plan plan;
    const auto compare = [&](std::vector<std::uint64_t>& expected) {
        planner.make(graph, {}, plan);
        if (expected.empty()) expected = structure_of(graph, plan);
        CHECK(structure_of(graph, plan) == expected);
    };
    for (const bool from_embeddings : {false, true}) {
        if (from_embeddings && !bound.hp.takes_embeddings) continue;
        std::array<std::vector<std::uint64_t>, 2> expected;  // without outputs, with some
        for (const std::int64_t n_tokens : {8, 1, 2, 3, 7})
            for (const std::int64_t n_outputs : {n_tokens, std::int64_t{0}, std::int64_t{1}, n_tokens - 1}) {
                CAPTURE(from_embeddings);
                CAPTURE(n_tokens);
                CAPTURE(n_outputs);
                layout.build(graph, n_tokens, n_outputs, from_embeddings);
                compare(expected[n_outputs > 0 ? 1 : 0]);
            }
    }
    if (layout.encoder() == nullptr) return;
    std::vector<std::uint64_t> expected;
    for (const std::int64_t n_tokens : {8, 1, 2, 7}) {
        layout.build_encoder(graph, n_tokens);
        compare(expected);
    }
}

}  // namespace

// A plan that does not fit, because first fit is not monotone, takes the places of the largest of its kind.
TEST_CASE("[golden] runtime: graphs of one kind have one structure, whatever their numbers of tokens and outputs") {
    if (skip_without_golden()) return;
    for (const GoldenModel& golden : golden_models()) {
        CAPTURE(golden.name);
        auto file = gguf::File::open(std::span(&golden.file, 1), {});
        const model::BoundModel bound = model::bind_model(file, {});
        const ContextOptions options{.n_ctx = 64, .n_seq_max = 2, .n_ubatch = 8, .n_threads = 1};
        for (const bool logits_all : {false, true}) {
            ContextOptions of_logits = options;
            of_logits.logits_all = logits_all;
            of_logits.embeddings = golden.encoder;
            check_structure(bound, of_logits);
        }
        for (const Pooling pooling : {Pooling::none, Pooling::mean, Pooling::last}) {
            CAPTURE(std::string(to_string(pooling)));
            ContextOptions of_vectors = options;
            of_vectors.embeddings = true;
            of_vectors.pooling = pooling;
            check_structure(bound, of_vectors);
        }
    }
}

// Few models have such plans.
TEST_CASE("[golden] runtime: what does not fit, because first fit is not monotone, has the bits of what fits") {
    if (skip_without_golden()) return;
    int n_found = 0;
    for (const GoldenModel& golden : golden_models()) {
        if (golden.encoder) continue;
        CAPTURE(golden.name);
        const Model model = Model::load(golden.file);
        if (model.info().has_encoder) continue;
        ContextOptions options{.n_ctx = 64, .n_seq_max = 2, .n_ubatch = 48, .n_threads = 1};  // two outputs at most
        const Context planned(model, options);
        const runtime::Layout& layout = detail::impl_of(planned).layout;
        graph::Graph graph(layout.max_nodes(), layout.max_values());
        graph::Planner planner(layout.max_nodes(), layout.max_values());
        graph::Plan plan;
        for (int n_tokens = 48; n_tokens > 40; --n_tokens) {
            layout.build(graph, n_tokens, 1, false);
            planner.make(graph, {}, plan);
            if (plan.arena_bytes <= layout.arena_bytes()) continue;
            ++n_found;
            CAPTURE(n_tokens);
            const auto tokens = random_tokens(n_tokens, model.info().n_vocab, 3);
            const auto logits = [&](int n_ubatch) {
                options.n_ubatch = n_ubatch;
                Context context(model, options);
                REQUIRE(context.decode(tokens) == DecodeStatus::ok);
                return bits_of(context.logits());
            };
            CHECK(logits(48) == logits(64));
        }
    }
    MESSAGE(n_found, " plans that did not fit");
}

TEST_CASE("[golden] runtime: the verifier takes every graph of every golden architecture") {
    if (skip_without_golden()) return;
    for (const GoldenModel& golden : golden_models()) {
        CAPTURE(golden.name);
        auto file = gguf::File::open(std::span(&golden.file, 1), {});
        check_graphs(model::bind_model(file, {}), golden.encoder);
    }
}
