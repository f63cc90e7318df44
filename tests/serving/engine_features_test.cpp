// SPDX-License-Identifier: MIT
// Adapters and guesses, each by itself.
#include "serving/full_engine.hpp"
#include "support/code_of.hpp"
#include "support/golden.hpp"

using namespace tinfer;
using namespace tinfer::test;

TEST_CASE("[V2] engine: requests with adapters get what a context with these adapters gives") {
    const World world;
    EngineOptions options{.context = {.n_ctx = 1024, .n_seq_max = 4}};
    options.adapters = world.adapters;
    const auto prompt = random_tokens(40, 90, 1);
    const std::vector<std::vector<AdapterUse>> uses{
        {}, {{"red", 1.0f}}, {{"blue", 0.5f}}, {{"red", 0.5f}, {"blue", -1.0f}}};
    std::vector<std::string> texts;
    for (const auto& use : uses) {
        Context context(*world.model, {.n_ctx = 1024});
        for (const auto& [name, scale] : use) attach(context, world.adapters[name == "red" ? 0 : 1].adapter, scale);
        Sampler sampler(world.model->vocab(), {.seed = 7});
        Generation generation(world.model->vocab(), prompt, {.n_predict = 30});
        generation.run(context, sampler);
        texts.push_back(generation.text());
    }
    CHECK(texts[0] != texts[1]);
    CHECK(texts[1] != texts[3]);

    Engine engine(*world.model, options);
    for (int round = 0; round < 2; ++round) {  // the second time with what the first one left
        Answers answers;
        for (std::size_t i = 0; i < uses.size(); ++i) {
            EngineRequest request{.prompt = prompt, .sampler = {.seed = 7}, .generation = {.n_predict = 30}};
            request.adapters = uses[i];
            engine.submit(request, answers.sink(i));
        }
        answers.wait();
        for (std::size_t i = 0; i < uses.size(); ++i) {
            CHECK(answers[i].text == texts[i]);
            CHECK(answers[i].n_cached == (round == 0 ? 0 : 39));  // beginnings are shared among equal adapters alone
        }
    }
}

TEST_CASE("engine: adapters that cannot be are refused by name") {
    const World world;
    EngineOptions options{.context = {.n_ctx = 256}};
    options.adapters = world.adapters;
    Engine engine(*world.model, options);
    const auto refuses = [&](std::vector<AdapterUse> adapters, std::string_view text) {
        EngineRequest request{.prompt = {Token{5}}};
        request.adapters = std::move(adapters);
        CHECK(code_of([&] { (void)engine.ask(request); }) == ErrorCode::bad_parameter);
        try {
            (void)engine.ask(request);
        } catch (const Error& error) {
            CHECK(std::string_view(error.what()).find(text) != std::string_view::npos);
        }
    };
    refuses({{"green"}}, "'green'");
    refuses({{"red", std::numeric_limits<float>::infinity()}}, "'red'");
    refuses({{"red"}, {"red", 0.5f}}, "twice");

    const Engine without(*world.model, {.context = {.n_ctx = 256}});
    CHECK(without.fingerprint() != engine.fingerprint());
    options.adapters[1].name = "red";
    CHECK(code_of([&] { Engine twice(*world.model, options); }) == ErrorCode::bad_parameter);
    EngineRequest request{.prompt = {Token{5}}};
    request.speculate = EngineRequest::Speculate::draft;
    CHECK(code_of([&] { (void)engine.ask(request); }) == ErrorCode::unsupported_operation);
}

TEST_CASE("[J1][J2] engine: guesses give the same bytes, and are checked only where there is room for them") {
    const World world;
    EngineOptions options = world.with_all({.context = {.n_ctx = 1024, .n_seq_max = 4}});
    Engine engine(*world.model, options);
    // What repeats itself: the answer is made to go round in few tokens.
    EngineRequest request{.prompt = random_tokens(30, 90, 1), .sampler = {.temp = 0}, .generation = {.n_predict = 80}};
    for (int i = 0; i < 4; ++i) request.sampler.logit_bias.push_back({Token{10 + i}, 30.0f});
    request.n_top = 1;
    const auto plain = engine.ask(request);
    CHECK(plain.timings.drafted_n == 0);
    request.generation.speculation.adapt = false;
    for (const auto speculate : {EngineRequest::Speculate::ngram, EngineRequest::Speculate::draft}) {
        request.speculate = speculate;
        const auto answer = engine.ask(request);
        CHECK(answer.text == plain.text);
        REQUIRE(answer.tokens.size() == plain.tokens.size());
        for (std::size_t i = 0; i < plain.tokens.size(); ++i) {
            CHECK(answer.tokens[i].token == plain.tokens[i].token);
            CHECK(answer.tokens[i].log_prob == plain.tokens[i].log_prob);
        }
        CHECK(answer.timings.drafted_n > 0);
        if (speculate == EngineRequest::Speculate::ngram) CHECK(answer.timings.accepted_n > 0);
    }
    // A drafter that throws costs its guesses.
    struct Broken final : Drafter {
        Draft draft(std::span<const Token>, std::span<Token>) override { throw std::runtime_error("no draft"); }
        [[nodiscard]] std::unique_ptr<Drafter> clone() const override { return std::make_unique<Broken>(); }
    };
    request.speculate = EngineRequest::Speculate::none;
    request.generation.speculation.drafter = std::make_shared<Broken>();
    CHECK(engine.ask(request).text == plain.text);

    // No row to spare: nothing is guessed.
    options.n_score_rows = 1;
    options.context.n_seq_max = 1;
    options.max_batch_tokens = 1;
    Engine narrow(*world.model, options);
    request.generation.speculation.drafter.reset();
    request.speculate = EngineRequest::Speculate::ngram;
    const auto answer = narrow.ask(request);
    CHECK(answer.text == plain.text);
    CHECK(answer.timings.drafted_n == 0);
}

TEST_CASE("[J1] engine: guesses of recurrent models, which take nothing back, give the same bytes") {
    for (const char* name : {"mamba", "jamba", "gemma3"}) {
        const auto file = golden_model_file(name);
        if (!file) continue;
        CAPTURE(name);
        const auto model = Model::load(*file);
        auto requests = mixed_requests(model, 12, 80, 30);
        const auto expected =
            alone(model, requests, {.context = {.n_ctx = 512, .n_seq_max = 1}, .share_prefixes = false});
        for (EngineRequest& request : requests) {
            request.speculate = EngineRequest::Speculate::ngram;
            request.generation.speculation.adapt = false;
        }
        Engine engine(model, {.context = {.n_ctx = 2048, .n_seq_max = 3}});
        CHECK(together(engine, requests, in_order(requests.size())) == expected);
        CHECK(engine.stats().drafted_tokens > 0);
    }
}
