// SPDX-License-Identifier: MIT
// What requests and engines have touched: counters that are the sums of a trace, and traces of one request beside
// others that are those of the request alone.
#include "serving/full_engine.hpp"
#include "support/code_of.hpp"

using namespace tinfer;
using namespace tinfer::test;

TEST_CASE("engine: what is to be watched is checked before it runs") {
    const World world;
    EngineOptions options{.context = {.n_ctx = 256}};
    options.adapters = world.adapters;
    Engine engine(*world.model, options);
    EngineRequest request{.prompt = {Token{5}}};
    request.observers = {nullptr};
    CHECK(code_of([&] { (void)engine.ask(request); }) == ErrorCode::bad_parameter);
    request.observers.clear();
    request.receipt = true;
    request.adapters = {{"red"}};
    CHECK(code_of([&] { (void)engine.ask(request); }) == ErrorCode::unsupported_operation);
    request.adapters.clear();
    request.kind = EngineRequest::Kind::score;
    CHECK(code_of([&] { (void)engine.ask(request); }) == ErrorCode::unsupported_operation);
}

#if TINFER_TRACE
namespace {

/// Adds up a trace by itself: sums of events by class of tensor, from their accesses, and as the events say them.
struct Sums final : Observer {
    void on_run_begin(const RunInfo& run) override {
        bytes.tokens += run.tokens.size();
        CHECK(run.run == bytes.runs++);
    }
    void on_events(std::span<const KernelEvent> events) override {
        for (const KernelEvent& event : events) {
            CHECK(event.index == bytes.steps++);
            read += event.bytes_read;
            written += event.bytes_written;
            for (const Access& access : event.accesses) {
                if (access.scratch) continue;
                const auto c = static_cast<std::size_t>(access.tensor->tensor_class);
                if (access.mode != AccessMode::write) bytes.read[c] += access.bytes();
                if (access.mode != AccessMode::read) bytes.written[c] += access.bytes();
            }
        }
    }
    TouchedBytes bytes;
    std::uint64_t read = 0, written = 0;
};

std::uint64_t sum(const std::array<std::uint64_t, TouchedBytes::kClasses>& list) {
    return std::accumulate(list.begin(), list.end(), std::uint64_t{0});
}

}  // namespace

TEST_CASE("[V10] engine: its counters are the sums of a trace of the same requests") {
    const World world("qwen2moe");
    const auto requests = full_requests(*world.model, 30, 90, 20);
    EngineOptions options = world.with_all(
        {.context = {.n_ctx = 1024, .n_seq_max = 4}, .max_batch_tokens = 48, .max_queue = 1000, .n_kept = 2});
    options.store = PrefixStoreOptions{.memory_limit = 1u << 18};
    options.count_bytes = true;
    const auto trace = std::make_shared<TraceFile>(world.folder / "all.tntrace");
    options.observers = {trace};
    EngineStats stats;
    {
        Engine engine(*world.model, options);
        Answers answers, cancelled;
        for (std::size_t i = 0; i < requests.size(); ++i) {
            engine.submit(requests[i], answers.sink(i));
            if (i % 6 == 0) engine.cancel(engine.submit({.prompt = random_tokens(200, 90, i)}, cancelled.sink(i)));
        }
        answers.wait();
        cancelled.wait();
        CHECK(engine.drain());
        stats = engine.stats();
    }
    trace->close();
    Sums sums;
    TraceReader::open(world.folder / "all.tntrace").replay(sums);
    CHECK(stats.bytes == sums.bytes);
    CHECK(sum(stats.bytes.read) == sums.read);
    CHECK(sum(stats.bytes.written) == sums.written);
    CHECK(stats.bytes.read_of(TensorClass::weight) > 0);
    CHECK(stats.bytes.read_of(TensorClass::cache_k) > 0);
    CHECK(stats.bytes.read_of(TensorClass::adapter) > 0);
}

TEST_CASE("[V10] engine: a request that asks for it hears what it alone has touched, beside others") {
    const World world("qwen2moe");
    EngineOptions options = world.with_all({.context = {.n_ctx = 2048, .n_seq_max = 4}, .max_queue = 1000});
    const auto others = full_requests(*world.model, 20, 90, 20);
    EngineOptions plain{.context = {.n_ctx = 1024, .n_seq_max = 1}, .max_queue = 1000, .share_prefixes = false};
    plain.adapters = world.adapters;
    const auto expected = alone(*world.model, plain_requests(others), plain);
    Engine engine(*world.model, options);
    Answers answers, watched;
    std::vector<EngineRequest> requests;
    std::vector<std::shared_ptr<Sums>> sums;
    std::vector<std::shared_ptr<CoverageCheck>> coverage;
    std::vector<std::shared_ptr<TraceFile>> files;
    const auto path = [&](std::size_t i) { return world.folder / (std::to_string(i) + ".tntrace"); };
    for (std::size_t i = 0; i < others.size(); ++i) {
        engine.submit(others[i], answers.sink(i));
        if (i % 5 != 1) continue;
        const std::size_t k = requests.size();
        EngineRequest request{.prompt = random_tokens(30 + static_cast<int>(i), 90, 50 + i),
                              .sampler = {.seed = 3},
                              .generation = {.n_predict = 8}};
        request.share_prefix = false;
        request.count = true;
        if (k % 2 == 1) request.adapters = {{"red", 0.5f}};
        request.receipt = k % 2 == 0;
        sums.push_back(std::make_shared<Sums>());
        coverage.push_back(std::make_shared<CoverageCheck>());
        files.push_back(std::make_shared<TraceFile>(path(k)));
        request.observers = {sums.back(), files.back()};
        if (k >= 2) request.observers.push_back(coverage.back());
        requests.push_back(request);
        engine.submit(request, watched.sink(k));
    }
    answers.wait();
    watched.wait();
    CHECK(answers.bits() == expected);
    Engine single(*world.model, options);
    for (std::size_t k = 0; k < requests.size(); ++k) {
        CAPTURE(k);
        REQUIRE(watched[k].stop.has_value());
        REQUIRE(watched[k].touched != nullptr);
        const RequestCounts& counts = *watched[k].touched;
        EngineRequest same = requests[k];
        same.observers.clear();
        const auto alone = single.ask(same);
        CHECK(watched[k].text == alone.text);
        CHECK(counts.bytes == alone.touched->bytes);
        CHECK(counts.layers == alone.touched->layers);
        CHECK(counts.bytes.tokens ==
              requests[k].prompt.size() + watched[k].n_generated - (watched[k].stop == StopReason::limit ? 1 : 0));
        std::uint64_t weights = 0, cache = 0;
        for (const TouchedLayer& layer : counts.layers) weights += layer.weight_bytes, cache += layer.cache_bytes;
        CHECK(weights == counts.bytes.read_of(TensorClass::weight));
        CHECK(cache == counts.bytes.read_of(TensorClass::cache_k) + counts.bytes.read_of(TensorClass::cache_v));
        CHECK(counts.layers.size() == 3);
        REQUIRE(counts.experts.size() == 2);
        for (std::size_t i = 0; i < 2; ++i) {
            CHECK(counts.experts[i].tokens == alone.touched->experts[i].tokens);
            CHECK(std::ranges::count(counts.experts[i].tokens, std::uint64_t{0}) < counts.experts[i].n_experts);
        }
        CHECK(coverage[k]->differences().empty());
        if (k >= 2) CHECK(coverage[k]->runs() == counts.bytes.runs);
        else CHECK(sums[k]->bytes == counts.bytes);
        // The file that it left is that of a context of its own.
        files[k]->close();
        Sums read;
        TraceReader::open(path(k)).replay(read);
        CHECK(read.bytes == counts.bytes);
    }
}

TEST_CASE("[V10] engine: what a request has touched is what a context of its own touches") {
    const World world("qwen2moe");
    Engine engine(*world.model, {.context = {.n_ctx = 1024, .n_seq_max = 3}});
    EngineRequest request{.prompt = random_tokens(50, 90, 1), .sampler = {.seed = 3}, .generation = {.n_predict = 8}};
    request.count = true;
    const auto answer = engine.ask(request);
    Context context(*world.model, {.n_ctx = 1024});
    const auto counts = std::make_shared<AccessCounts>();
    const auto attached = context.attach(counts);
    Sampler sampler(world.model->vocab(), request.sampler);
    Generation generation(world.model->vocab(), request.prompt, request.generation);
    generation.run(context, sampler);
    CHECK(generation.text() == answer.text);
    // Tables of pages, which are inputs, are larger where there may be more sequences.
    const TouchedBytes &a = answer.touched->bytes, &b = counts->counts();
    for (const auto c : {TensorClass::weight, TensorClass::cache_k, TensorClass::cache_v, TensorClass::adapter}) {
        CHECK(a.read_of(c) == b.read_of(c));
        CHECK(a.written_of(c) == b.written_of(c));
    }
    CHECK(a.runs == b.runs);
    CHECK(a.tokens == b.tokens);
    CHECK(a.read_of(TensorClass::weight) > 0);
    CHECK(answer.touched->layers == counts->layers());
}

TEST_CASE("[V2] engine: a receipt of a request beside others is replayed to the bit") {
    const World world;
    Engine engine(*world.model, world.with_all({.context = {.n_ctx = 1024, .n_seq_max = 4}, .max_queue = 1000}));
    const auto others = full_requests(*world.model, 12, 60, 20);
    Answers answers;
    for (std::size_t i = 0; i < others.size(); ++i) engine.submit(others[i], answers.sink(i));
    for (const auto speculate : {EngineRequest::Speculate::none, EngineRequest::Speculate::ngram}) {
        EngineRequest request{
            .prompt = random_tokens(70, 90, 5), .sampler = {.temp = 0.9f, .seed = 11}, .generation = {.n_predict = 25}};
        request.speculate = speculate;
        request.generation.speculation.adapt = false;
        request.receipt = true;
        const auto answer = engine.ask(request);
        REQUIRE(answer.receipt != nullptr);
        const auto receipt = Receipt::parse(answer.receipt->json(), "answer.json");
        CHECK(receipt.tokens.size() >= answer.n_generated);
        CHECK(receipt.stop == to_string(*answer.stop));
        CHECK(receipt.n_predict == 25);
        Context context(*world.model, receipt.context_options({.n_threads = 1}));
        const auto report = replay(receipt, context);
        CHECK_FALSE(report.first_row.has_value());
        CHECK_FALSE(report.first_draw.has_value());
        CHECK(report.n_rows == receipt.tokens.size());
    }
    answers.wait();
}
#endif
