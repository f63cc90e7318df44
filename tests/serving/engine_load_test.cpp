// SPDX-License-Identifier: MIT
// The promise of the engine: what a request gets does not depend on the load. Alone, all at once, in another order, on
// a warm engine, with a cache so small that requests are pushed back: equal, byte for byte.
#include <algorithm>
#include <numeric>
#include <random>

#include "serving/serving_support.hpp"
#include "support/golden.hpp"
#include "support/temp_folder.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

std::vector<std::size_t> shuffled(std::size_t n, unsigned seed) {
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(seed));
    return order;
}

void check_load(const Model& model, std::size_t n, int most_prompt, int most_predict) {
    const auto requests = mixed_requests(model, n, most_prompt, most_predict);
    const int longest = most_prompt * 2 + most_predict;
    EngineOptions cold{
        .context = {.n_ctx = longest, .n_seq_max = 1}, .max_queue = 1000, .n_kept = 7, .share_prefixes = false};
    const auto expected = alone(model, requests, cold);
    REQUIRE(expected.size() == n);

    EngineOptions wide{
        .context = {.n_ctx = 16 * longest, .n_seq_max = 6}, .max_batch_tokens = 48, .max_queue = 1000, .n_kept = 2};
    Engine engine(model, wide);
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    CHECK(together(engine, requests, order) == expected);
    CHECK(together(engine, requests, shuffled(n, 1)) == expected);  // warm, in another order

    // A cache in which few requests fit at once, and the promise to each is soon used up.
    EngineOptions narrow{
        .context = {.n_ctx = longest, .n_seq_max = 5}, .max_batch_tokens = 24, .max_queue = 1000, .n_kept = 3};
    Engine crowded(model, narrow);
    CHECK(together(crowded, requests, shuffled(n, 2)) == expected);
    CHECK(crowded.stats().ended == n);
}

}  // namespace

TEST_CASE("[V2] engine: answers do not depend on the load, with small models, dense and of experts") {
    for (const char* arch : {"llama", "qwen2moe"}) {
        CAPTURE(arch);
        const TempFolder folder;
        check_load(Model::load(TinyModel::of(arch).save(folder.path())), 40, 80, 24);
    }
}

TEST_CASE("[golden] [V2] engine: 200 mixed requests do not depend on the load") {
    const auto file = golden_model_file("llama", "llama");
    if (!file) return;
    check_load(Model::load(*file), 200, 150, 40);
}

TEST_CASE("[golden] [V2] engine: nor do those of dense, windowed, recurrent and hybrid models") {
    for (const char* name : {"qwen3", "gemma3", "gpt-oss", "mamba", "mamba2", "falcon-h1", "jamba", "lfm2"}) {
        const auto file = golden_model_file(name);
        if (!file) continue;
        CAPTURE(name);
        check_load(Model::load(*file), 16, 100, 16);
    }
}

TEST_CASE("[V4] engine: four requests at once read the weights once for all of them") {
    const TempFolder folder;
    const auto model = Model::load(TinyModel::of("llama").save(folder.path()));
    struct Cost {
        std::uint64_t rounds, weight_bytes, tokens;
    };
    const auto cost_of = [&](std::size_t n) {
        const auto request = [](std::size_t i) {
            return EngineRequest{.prompt = random_tokens(10, 90, i),
                                 .sampler = {.logit_bias = {{Token{2}, -1e9f}}, .temp = 0},
                                 .generation = {.n_predict = 30}};
        };
        Engine engine(model, {.context = {.n_ctx = 256, .n_seq_max = 4}, .share_prefixes = false, .count_bytes = true});
        Answers answers;
        auto first = answers.sink(n);
        // The end of a request before them gives all in, so that they begin in one round.
        engine.submit(request(n), [&](const EngineEvent& event) {
            for (std::size_t i = 0; event.ended() && i < n; ++i) engine.submit(request(i), answers.sink(i));
            first(event);
        });
        answers.wait();
        REQUIRE(engine.drain());
        for (std::size_t i = 0; i < n; ++i) CHECK(answers[i].n_generated == 30);
        const EngineStats stats = engine.stats();
        return Cost{stats.rounds, stats.bytes.read_of(TensorClass::weight), stats.bytes.tokens};
    };
    const Cost none = cost_of(0), one = cost_of(1), four = cost_of(4);
    CHECK(four.tokens - none.tokens == 4 * (one.tokens - none.tokens));
    CHECK(four.rounds == one.rounds);
    const std::uint64_t row_bytes = 64 * sizeof(float);  // at most, of the embedding of a token
    CHECK(four.weight_bytes <= one.weight_bytes + (four.tokens - one.tokens) * row_bytes);
}

TEST_CASE("[V2] engine: requests that are pushed back go on without a trace") {
    const TempFolder folder;
    TinyModel tiny;
    tiny.n_ctx = 2048;
    const auto model = Model::load(tiny.save(folder.path()));
    std::vector<EngineRequest> requests;
    for (std::size_t i = 0; i < 4; ++i) {
        EngineRequest request{.prompt = random_tokens(20, 90, i),
                              .sampler = {.seed = static_cast<std::uint32_t>(i + 1)}};
        request.generation.n_predict = 600;  // promised are 256
        request.sampler.logit_bias = {{Token{2}, -1e9f}};
        request.n_top = 0;
        request.score_prompt = i % 2 == 0;
        requests.push_back(request);
    }
    EngineOptions options{.context = {.n_ctx = 1216, .n_seq_max = 4}};
    const auto expected = alone(model, requests, options);
    Engine engine(model, options);
    Answers answers;
    for (std::size_t i = 0; i < 4; ++i) engine.submit(requests[i], answers.sink(i));
    answers.wait();
    CHECK(answers.bits() == expected);
    std::size_t n_pushed_back = 0;
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(answers[i].n_generated == 600);
        n_pushed_back += answers[i].n_pushed_back;
    }
    CHECK(n_pushed_back > 0);
    CHECK(answers[0].n_pushed_back == 0);  // never the oldest
    CHECK(engine.stats().pushed_back == n_pushed_back);
    CHECK(engine.stats().recomputed_tokens + engine.stats().cached_tokens > 0);
}

TEST_CASE("[V12] engine: prompts that begin alike are computed once") {
    const TempFolder folder;
    TinyModel tiny;
    tiny.n_ctx = 2048;
    const auto model = Model::load(tiny.save(folder.path()));
    const auto common = random_tokens(500, 90, 4);
    const auto request = [&](std::uint64_t i) {
        EngineRequest out{.prompt = common, .sampler = {.seed = 1}, .generation = {.n_predict = 4}};
        for (const Token token : random_tokens(10, 90, i)) out.prompt.push_back(token);
        out.prompt[500] = Token{static_cast<std::int32_t>(20 + i)};
        return out;
    };
    SUBCASE("one after the other: all but the last token") {
        Engine engine(model, {.context = {.n_ctx = 2048, .n_seq_max = 2}});
        CHECK(engine.ask(request(1)).n_cached == 0);
        CHECK(engine.ask(request(2)).n_cached == 500);
        CHECK(engine.ask(request(1)).n_cached == 509);
        auto apart = request(2);
        apart.share_prefix = false;
        CHECK(engine.ask(apart).n_cached == 0);
        CHECK(engine.stats().cache_slots_used <= 500 + 2 * 14 + 64);
    }
    SUBCASE("at once: the younger wait for the oldest to read what they share") {
        Engine engine(model, {.context = {.n_ctx = 2048, .n_seq_max = 8}, .max_batch_tokens = 64});
        Answers answers;
        for (std::size_t i = 0; i < 8; ++i) engine.submit(request(i), answers.sink(i));
        answers.wait();
        CHECK(engine.stats().prompt_tokens <= 500 + 8 * 10 + 2 * 64);
        for (std::size_t i = 1; i < 8; ++i) CHECK(answers[i].n_cached >= 448);
    }
    SUBCASE("the longest unused goes first, from its end") {
        Engine engine(model, {.context = {.n_ctx = 1024, .n_seq_max = 2}});
        (void)engine.ask(request(1));
        (void)engine.ask({.prompt = random_tokens(700, 80, 9), .sampler = {.seed = 1}, .generation = {.n_predict = 4}});
        const auto kept = engine.ask(request(2)).n_cached;
        CHECK(kept >= 192);
        CHECK(kept < 500);
    }
    SUBCASE("a conversation goes on where it was") {
        Engine engine(model, {.context = {.n_ctx = 2048, .n_seq_max = 2}, .n_kept = 1});
        auto turn = request(1);
        for (int i = 0; i < 4; ++i) {
            const auto answer = engine.ask(turn);
            CHECK(answer.n_cached == (i == 0 ? 0 : turn.prompt.size() - 6));  // the last token was drawn, not computed
            for (const auto& choice : answer.tokens) turn.prompt.push_back(choice.token);
            for (int k = 0; k < 5; ++k) turn.prompt.push_back(Token{static_cast<std::int32_t>(30 + k)});
        }
        CHECK(engine.stats().dropped_sequences == 0);
    }
}

TEST_CASE("[golden] [V12] engine: recurrent models share beginnings from where requests part") {
    const auto file = golden_model_file("mamba");
    if (!file) return;
    const auto model = Model::load(*file);
    Engine engine(model, {.context = {.n_ctx = 1024, .n_seq_max = 2}});
    const auto request = [&](std::int32_t i) {
        EngineRequest out{.prompt = random_tokens(210, 90, 4), .sampler = {.seed = 1}, .generation = {.n_predict = 4}};
        out.prompt[200] = Token{91 + i};
        return out;
    };
    CHECK(engine.ask(request(0)).n_cached == 0);
    CHECK(engine.ask(request(1)).n_cached == 0);  // leaves a copy at token 200
    const auto warm = engine.ask(request(2));
    CHECK(warm.n_cached == 200);
    auto cold = request(2);
    cold.share_prefix = false;
    CHECK(engine.ask(cold).text == warm.text);
}
