// SPDX-License-Identifier: MIT
// What a trace takes on disk: small enough to leave on. The texts of its tokens.
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

TEST_CASE("[X5] trace file: texts of tokens are there beside ids alone, and stay in what is cut or recovered") {
    const Model model = load_tiny(*std::begin(kTracedModels));
    const auto text_of = [](Token token) { return "<" + std::to_string(static_cast<int>(token)) + ">"; };
    for (const bool has_ids : {true, false}) {
        const auto bytes =
            record_trace(model, {.extras = {.token_ids = has_ids}, .piece = text_of}, [&](Context& context) {
                decode_some(context, 5, 3);
                decode_some(context, 1, 9);
            });
        const auto whole = TraceReader::from_bytes(bytes, "trace");
        const auto part = TraceReader::from_bytes(cut(whole, {.runs = {{1, 1}}}), "cut");
        const auto again = TraceReader::from_bytes(recover(whole), "recovered");
        for (const TraceReader* trace : {&whole, &part, &again}) {
            CHECK(trace->damage().empty());
            std::size_t n = 0;
            for (const RecordedRun& run : trace->runs())
                for (const trace_format::RunToken& token : run.tokens) {
                    const std::string_view text = trace->piece(Token{token.id});
                    CHECK(text == (has_ids ? text_of(Token{token.id}) : ""));
                    ++n;
                }
            CHECK(n > 0);
            CHECK(trace->piece(Token{1 << 30}).empty());
        }
    }
}
