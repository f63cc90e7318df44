// SPDX-License-Identifier: MIT
// What a trace takes on disk: small enough to leave on.
#include <doctest/doctest.h>

#include "trace/trace_file_support.hpp"

using namespace tinfer;
using namespace tinfer::test;

TEST_CASE("trace file: a token of models of 22 and 30 layers takes at most 16 KB at level steps") {
    // The 1.1B shape and SmolLM2; with experts a layer has more steps.
    for (const auto& [arch, n_layer] : {std::pair{"llama", 22}, {"llama", 30}, {"qwen3moe", 16}}) {
        CAPTURE(arch);
        CAPTURE(n_layer);
        auto tiny = TinyModel::of(arch, DType::q8_0);
        tiny.n_layer = n_layer;
        Context context(load_tiny(tiny), {.n_ctx = 64, .n_threads = 1});
        std::vector<std::byte> bytes;
        const auto file = std::make_shared<TraceFile>(std::make_unique<MemorySink>(bytes));
        const auto attached = context.attach(file);
        decode_some(context, 5, 3);  // the first token of a plan writes the plan
        const std::uint64_t before = file->bytes(), events = file->events();
        decode_some(context, 1, 9);
        CHECK(file->events() > events);
        CHECK((file->bytes() - before) / 10 <= 16'000);
        CHECK(file->dropped() == 0);
    }
}
