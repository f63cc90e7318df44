// SPDX-License-Identifier: MIT
// Every graph that a golden model runs is one that the verifier takes. Checked builds verify each graph as it is built;
// this is for the others.
#include <doctest/doctest.h>

#include <array>
#include <span>

#include "gguf/file.hpp"
#include "graph/graph.hpp"
#include "graph/plan.hpp"
#include "kernels/tables.hpp"
#include "model/model.hpp"
#include "runtime/layout.hpp"
#include "support/golden.hpp"

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

}  // namespace

TEST_CASE("[golden] runtime: the verifier takes every graph of every golden architecture") {
    if (skip_without_golden()) return;
    for (const GoldenModel& golden : golden_models()) {
        CAPTURE(golden.name);
        auto file = gguf::File::open(std::span(&golden.file, 1), {});
        check_graphs(model::bind_model(file, {}), golden.encoder);
    }
}
