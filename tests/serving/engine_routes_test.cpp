// SPDX-License-Identifier: MIT
// Which experts the tokens of a request were sent to: as a trace of the same tokens says, whatever was shared, drafted
// or computed twice. And scores of chosen tokens behind a prompt's.
#include <thread>

#include "serving/full_engine.hpp"
#include "support/code_of.hpp"

using namespace tinfer;
using namespace tinfer::test;

#if TINFER_TRACE
namespace {

/// The ids that a trace of these tokens tells, {n_used, layers, tokens}.
std::vector<std::uint16_t> traced(const World& world, const std::vector<Token>& tokens) {
    const auto path = world.folder / "routes.tntrace";
    {
        Context context(*world.model,
                        {.n_ctx = 576, .n_ubatch = 0, .n_outputs = 576, .n_threads = 1, .logits_all = true});
        const auto trace = std::make_shared<TraceFile>(
            path, TraceFileOptions{.extras = TraceExtras{.router = true}, .overwrite = true});
        const auto attached = context.attach(trace);
        REQUIRE(context.decode(tokens) == DecodeStatus::ok);
        trace->close();
    }
    const auto reader = TraceReader::open(path);
    std::vector<std::uint16_t> out;
    for (std::size_t i = 0; i < tokens.size(); ++i)
        for (const auto& layer : reader.routings()) {
            REQUIRE(layer.header.n_tokens == tokens.size());
            for (std::size_t k = 0; k < layer.header.k; ++k) out.push_back(layer.picks[i * layer.header.k + k].expert);
        }
    return out;
}

}  // namespace

TEST_CASE("[V20] engine: the experts of a request are those of a trace, cold, cached, drafted, pushed back, beside 8") {
    const World world("qwen2moe");
    auto requests = mixed_requests(*world.model, 24, 90, 40);
    for (std::size_t i = 0; i < requests.size(); ++i) {
        requests[i].routed_experts = i % 7 != 3;  // others leave theirs, too
        if (requests[i].kind != EngineRequest::Kind::generate) continue;
        if (i % 3 > 0) requests[i].generation.speculation.drafter = ngram_drafter();
        requests[i].generation.speculation.adapt = false;
        if (i > 1) continue;
        requests[i].generation.n_predict = 300;  // more than is kept free for them
        requests[i].generation.stop.clear();
        requests[i].sampler.logit_bias = {{Token{2}, -100.0f}};
    }
    const EngineOptions options{.context = {.n_ctx = 576, .n_seq_max = 8, .n_threads = 1},
                                .max_batch_tokens = 48,
                                .max_queue = 1000,
                                .n_kept = 3,
                                .routed_experts = true};
    const EngineOptions cold{.context = {.n_ctx = 576, .n_seq_max = 1, .n_threads = 1},
                             .max_queue = 1000,
                             .share_prefixes = false,
                             .routed_experts = true};
    std::vector<Answer> expected;
    {
        Engine engine(*world.model, cold);
        Answers answers;
        for (std::size_t i = 0; i < requests.size(); ++i) {
            EngineRequest plain = requests[i];
            plain.generation.speculation.drafter.reset();
            engine.submit(plain, answers.sink(i));
            answers.wait();
            expected.push_back(answers[i]);
        }
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
        CHECK((expected[i].routed != nullptr) == requests[i].routed_experts);
        if (i % 7 != 0) continue;
        auto tokens = requests[i].prompt;
        for (const auto& drawn : expected[i].tokens) tokens.push_back(drawn.token);
        if (!expected[i].tokens.empty() && expected[i].stop != StopReason::eog) tokens.pop_back();
        REQUIRE(expected[i].routed->n_tokens == tokens.size());
        CHECK(expected[i].routed->layers.size() > 1);
        CHECK(expected[i].routed->ids == traced(world, tokens));
    }
    Engine engine(*world.model, options);
    std::size_t n_pushed_back = 0;
    for (const auto& order : {in_order(requests.size()), in_other_order(requests.size(), 2)}) {
        Answers answers;
        for (const std::size_t i : order) engine.submit(requests[i], answers.sink(i));
        answers.wait();
        for (std::size_t i = 0; i < requests.size(); ++i) {
            CHECK(answers[i].bits() == expected[i].bits());
            if (!requests[i].routed_experts) continue;
            REQUIRE(answers[i].routed != nullptr);
            CHECK(answers[i].routed->ids == expected[i].routed->ids);
            n_pushed_back += answers[i].n_pushed_back;
        }
    }
    const auto stats = engine.stats();
    CHECK(n_pushed_back > 0);
    CHECK(stats.cached_tokens > 0);
    CHECK(stats.accepted_tokens > 0);
    CHECK(stats.drafted_tokens > stats.accepted_tokens);
    auto context = engine.options().context;
    context.n_seq_max += options.n_kept;
    const auto& one = *expected[0].routed;
    CHECK(engine.memory().fixed >=
          plan(*world.model, context).fixed + 576 * one.layers.size() * static_cast<std::size_t>(one.n_used) * 2);
}

TEST_CASE("engine: experts are refused where there are none, and where nobody keeps them") {
    const World dense, experts("qwen2moe");
    const auto code = [](const Model& model, const EngineOptions& options) {
        return code_of([&] { Engine(model, options); });
    };
    CHECK(code(*dense.model, {.routed_experts = true}) == ErrorCode::unsupported_operation);
    CHECK(code(*experts.model, {.context = {.pooling = Pooling::mean}, .routed_experts = true}) ==
          ErrorCode::unsupported_operation);
    CHECK(code(*experts.model, {.store = PrefixStoreOptions{.memory_limit = 1 << 20}, .routed_experts = true}) ==
          ErrorCode::unsupported_operation);
    Engine engine(*experts.model, {.context = {.n_ctx = 128}});
    CHECK(code_of([&] { (void)engine.ask({.prompt = {Token{5}}, .routed_experts = true}); }) ==
          ErrorCode::unsupported_operation);
}
#endif

TEST_CASE("[V20] engine: a prompt is scored for tokens of a list") {
    const World world;
    const auto prompt = random_tokens(60, 90, 4);
    const auto logits = logits_of(*world.model, prompt, {.n_ctx = 256});
    const auto n_vocab = static_cast<std::size_t>(world.model->info().n_vocab);
    Engine engine(*world.model, {.context = {.n_ctx = 256}, .n_score_rows = 7});
    EngineRequest request{.kind = EngineRequest::Kind::score,
                          .prompt = prompt,
                          .score_prompt = true,
                          .prompt_scored = {Token{8}, Token{3}, Token{8}}};
    const auto answer = engine.ask(request);
    REQUIRE(answer.prompt.size() == prompt.size());
    CHECK(answer.prompt[0].asked.empty());
    for (std::size_t i = 1; i < prompt.size(); ++i) {
        const auto row = std::span(logits).subspan((i - 1) * n_vocab, n_vocab);
        const auto at = [&](int id) { return static_cast<float>(log_prob(row, Token{id})); };
        CHECK(answer.prompt[i].asked == std::vector<float>{at(8), at(3), at(8)});
    }
    request.prompt_scored.push_back(Token{static_cast<std::int32_t>(n_vocab)});
    CHECK(code_of([&] { (void)engine.ask(request); }) == ErrorCode::index_out_of_range);
}
