// SPDX-License-Identifier: MIT
// What one request gets from an engine: the text that a loop of its own would make, and everything it asked for.
#include <thread>

#include "serving/serving_support.hpp"
#include "support/code_of.hpp"
#include "support/file_twins.hpp"
#include "support/temp_folder.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

struct EngineFixture {
    TempFolder folder;
    Model model = Model::load(TinyModel{}.save(folder.path()));
    std::vector<Token> prompt = random_tokens(100, 90, 1);
};

/// The same with a loop of its own.
struct Plain {
    std::vector<Token> tokens;
    std::string text;
    std::vector<double> log_probs;
    StopReason stop{};
};
Plain plain(const Model& model, const EngineRequest& request, int n_ctx) {
    Context context(model, {.n_ctx = n_ctx});
    Sampler sampler(model.vocab(), request.sampler);
    Generation generation(model.vocab(), request.prompt, request.generation);
    Plain out;
    while (generation.next(context, sampler))
        if (generation.tokens().size() > out.log_probs.size())
            out.log_probs.push_back(log_prob(context.logits(), generation.tokens().back()));
    out.tokens.assign(generation.tokens().begin(), generation.tokens().end());
    out.text = generation.text();
    out.stop = *generation.stop();
    return out;
}

}  // namespace

TEST_CASE("[V6] engine: an answer is the text that Generation makes, with its log-probabilities") {
    EngineFixture f;
    Engine engine(f.model, {.context = {.n_ctx = 256, .n_seq_max = 3}});
    for (const std::uint32_t seed : {1u, 2u, 3u}) {
        EngineRequest request{.prompt = f.prompt, .sampler = {.penalty_repeat = 1.2f, .seed = seed}, .n_top = 3};
        request.generation.n_predict = seed == 3 ? -1 : 20;  // -1: until the context is full
        const auto expected = plain(f.model, request, 256);
        const auto answer = engine.ask(request);
        CHECK(answer.text == expected.text);
        CHECK(answer.stop == expected.stop);
        CHECK(answer.seed == seed);
        CHECK(answer.n_prompt == 100);
        CHECK(answer.n_generated == expected.tokens.size());
        REQUIRE(answer.tokens.size() == expected.tokens.size());
        for (std::size_t i = 0; i < answer.tokens.size(); ++i) {
            CHECK(answer.tokens[i].token == expected.tokens[i]);
            CHECK(answer.tokens[i].log_prob == expected.log_probs[i]);
            CHECK(answer.tokens[i].piece == f.model.vocab().piece(expected.tokens[i]));
            REQUIRE(answer.tokens[i].top.size() == 3);
            CHECK(answer.tokens[i].top[0].second >= answer.tokens[i].top[1].second);
            CHECK(answer.tokens[i].top[0].second >= *answer.tokens[i].log_prob);
        }
        CHECK(answer.first_token_s > 0);
    }
    CHECK(engine.stats().cached_tokens == 2 * 99);
    CHECK(engine.stats().ended == 3);
}

TEST_CASE("[V7] engine: n tokens get n log-probabilities, the first of them none, in one request") {
    EngineFixture f;
    const auto logits = logits_of(f.model, f.prompt, {.n_ctx = 256});
    const auto n_vocab = static_cast<std::size_t>(f.model.info().n_vocab);
    for (const int n_rows : {1, 7, 200}) {
        Engine engine(f.model, {.context = {.n_ctx = 256, .n_seq_max = 2}, .n_score_rows = n_rows});
        for (const auto kind : {EngineRequest::Kind::score, EngineRequest::Kind::generate}) {
            EngineRequest request{.kind = kind, .prompt = f.prompt, .n_top = 1, .score_prompt = true};
            request.generation.n_predict = 2;
            const auto answer = engine.ask(request);
            REQUIRE(answer.prompt.size() == f.prompt.size());
            CHECK_FALSE(answer.prompt[0].log_prob.has_value());
            for (std::size_t i = 0; i < f.prompt.size(); ++i) {
                CHECK(answer.prompt[i].token == f.prompt[i]);
                if (i == 0) continue;
                const auto row = std::span(logits).subspan((i - 1) * n_vocab, n_vocab);
                CHECK(answer.prompt[i].log_prob == log_prob(row, f.prompt[i]));
                CHECK(answer.prompt[i].top.size() == 1);
            }
            CHECK(answer.n_generated == (kind == EngineRequest::Kind::score ? 0 : 2));
            CHECK(answer.n_cached == 0);
        }
    }
}

TEST_CASE("[V2] engine: 8 requests on 2 slots all finish, none mixes text") {
    EngineFixture f;
    const EngineOptions options{.context = {.n_ctx = 512, .n_seq_max = 2}, .max_batch_tokens = 16};
    const auto requests = mixed_requests(f.model, 8, 90, 30);
    const auto expected = alone(f.model, requests, options);
    Engine engine(f.model, options);
    CHECK(together(engine, requests, {0, 1, 2, 3, 4, 5, 6, 7}) == expected);
    CHECK(engine.stats().running == 0);
    CHECK(engine.stats().queued == 0);
    CHECK(engine.slots().empty());
}

TEST_CASE("[V8] engine: what cannot be is refused with its numbers, and costs nobody anything") {
    EngineFixture f;
    Engine engine(f.model, {.context = {.n_ctx = 128, .n_seq_max = 1}, .max_queue = 2});
    const auto code = [&](EngineRequest request) { return code_of([&] { engine.submit(std::move(request), {}); }); };
    CHECK(code({.prompt = {}}) == ErrorCode::bad_parameter);
    CHECK(code({.prompt = {Token{5000}}}) == ErrorCode::index_out_of_range);
    CHECK(code({.prompt = {Token{-1}}}) == ErrorCode::index_out_of_range);
    CHECK(code({.prompt = random_tokens(129, 90, 1)}) == ErrorCode::no_room);
    CHECK(code({.kind = EngineRequest::Kind::embed, .prompt = f.prompt}) == ErrorCode::unsupported_operation);
    CHECK(code({.prompt = f.prompt, .sampler = {.top_p = 2}}) == ErrorCode::bad_parameter);
    CHECK(code({.prompt = f.prompt, .generation = {.n_predict = -2}}) == ErrorCode::bad_parameter);
    CHECK(code({.prompt = f.prompt, .n_top = 101}) == ErrorCode::bad_parameter);
    CHECK(code({.prompt = f.prompt, .time_limit = std::chrono::milliseconds(0)}) == ErrorCode::bad_parameter);
    try {
        engine.submit({.prompt = random_tokens(129, 90, 1)}, {});
    } catch (const Error& error) {
        CHECK(std::string(error.what()) == "engine: prompt has 129 tokens, the context 128");
    }
    CHECK(engine.stats().submitted == 0);
    // A prompt as long as the context has one token of an answer.
    const auto full = engine.ask({.prompt = random_tokens(128, 90, 1), .sampler = {.seed = 1}});
    CHECK(full.stop == StopReason::context);
    CHECK(full.n_generated == 1);

    CHECK(code_of([&] { Engine(f.model, {.context = {.n_seq_max = 4}, .max_batch_tokens = 3}); }) ==
          ErrorCode::bad_parameter);
    CHECK(code_of([&] { Engine(f.model, {.context = {.n_seq_max = 250}, .n_kept = 8}); }) == ErrorCode::bad_parameter);
    CHECK(code_of([&] { Engine(f.model, {.max_queue = 0}); }) == ErrorCode::bad_parameter);
    CHECK(code_of([&] { Engine(f.model, {.slice = std::chrono::milliseconds(0)}); }) == ErrorCode::bad_parameter);
}

TEST_CASE("[V2] engine: a full queue refuses, a drained engine too, and what it had ends") {
    EngineFixture f;
    Answers answers;
    Engine engine(f.model, {.context = {.n_ctx = 256, .n_seq_max = 1}, .max_queue = 3});
    // While this sink waits nothing else happens.
    std::mutex gate;
    gate.lock();
    std::atomic<bool> inside = false;
    auto first = answers.sink(0);
    engine.submit({.prompt = f.prompt, .sampler = {.seed = 1}, .generation = {.n_predict = 2}},
                  [&, first](const EngineEvent& event) {
                      inside = true;
                      const std::lock_guard wait(gate);
                      first(event);
                  });
    while (!inside) std::this_thread::yield();
    for (std::size_t i = 1; i <= 3; ++i)
        engine.submit({.prompt = f.prompt, .generation = {.n_predict = 2}}, answers.sink(i));
    CHECK(code_of([&] { engine.submit({.prompt = f.prompt}, {}); }) == ErrorCode::limit_exceeded);
    CHECK(engine.stats().queued == 3);
    CHECK(engine.stats().refused == 1);
    CHECK_FALSE(engine.drain(std::chrono::milliseconds(1)));
    CHECK(code_of([&] { engine.submit({.prompt = f.prompt}, {}); }) == ErrorCode::limit_exceeded);
    gate.unlock();
    CHECK(engine.drain());
    for (std::size_t i = 0; i <= 3; ++i) CHECK(answers[i].stop == StopReason::limit);
}

TEST_CASE("[V11] engine: a cancelled request ends with what it has, a waiting one without having run") {
    EngineFixture f;
    Answers answers;
    Engine engine(f.model, {.context = {.n_ctx = 4096, .n_seq_max = 1}});
    std::atomic<std::size_t> n_events = 0;
    auto sink = answers.sink(0);
    const auto id = engine.submit({.prompt = f.prompt, .sampler = {.seed = 1}}, [&, sink](const EngineEvent& event) {
        sink(event);
        ++n_events;
    });
    const auto waiting = engine.submit({.prompt = f.prompt}, answers.sink(1));
    while (n_events < 3) std::this_thread::yield();
    engine.cancel(waiting);
    engine.cancel(id);
    engine.cancel(RequestId{99});
    answers.wait();
    CHECK(answers[0].stop == StopReason::interrupt);
    CHECK(answers[0].n_generated >= 2);
    CHECK(answers[0].n_ends == 1);
    CHECK(answers[1].stop == StopReason::interrupt);
    CHECK(answers[1].n_generated == 0);
    CHECK(engine.stats().interrupted == 2);
    engine.cancel(id);  // it has ended
    CHECK(engine.ask({.prompt = f.prompt, .generation = {.n_predict = 1}}).stop == StopReason::limit);
}

TEST_CASE("[V11] engine: time limits end requests that run and requests that wait") {
    EngineFixture f;
    Answers answers;
    Engine engine(f.model, {.context = {.n_ctx = 65536, .n_seq_max = 1}});
    for (std::size_t i = 0; i < 2; ++i)
        engine.submit({.prompt = f.prompt, .sampler = {.seed = 1}, .time_limit = std::chrono::milliseconds(50)},
                      answers.sink(i));
    answers.wait();
    for (std::size_t i = 0; i < 2; ++i) {
        CHECK(answers[i].stop == StopReason::interrupt);
        CHECK(answers[i].timed_out);
    }
}

TEST_CASE("[V2] engine: requests under way when an engine goes end with an event") {
    EngineFixture f;
    Answers answers;
    {
        Engine engine(f.model, {.context = {.n_ctx = 4096, .n_seq_max = 2}});
        for (std::size_t i = 0; i < 5; ++i) engine.submit({.prompt = f.prompt}, answers.sink(i));
    }
    answers.wait();
    for (std::size_t i = 0; i < 5; ++i) CHECK((answers[i].n_ends == 1 && answers[i].stop == StopReason::interrupt));
}

TEST_CASE("[V9] engine: the fingerprint covers what bits depend on and nothing else") {
    EngineFixture f;
    const auto fingerprint = [&](ContextOptions context, const ModelOptions& options = {}) {
        const Engine engine(Model::load(f.folder / "tiny.gguf", options), {.context = std::move(context)});
        return engine.fingerprint();
    };
    const auto path = f.model.file().paths().front();
    if (path.filename() != "tiny.gguf") std::filesystem::copy(path, f.folder / "tiny.gguf");
    const auto base = fingerprint({.n_ctx = 256});
    CHECK(base.size() == 32);
    CHECK(fingerprint({.n_ctx = 256, .n_threads = 2, .isa = Isa::reference, .fuse = false}) == base);
    CHECK(fingerprint({.n_ctx = 256}, {.use_mmap = false}) == base);
    CHECK(fingerprint({.n_ctx = 256, .n_seq_max = 4, .n_ubatch = 16, .swa_full = true}) == base);
    const Engine others(Model::load(f.folder / "tiny.gguf"), {.context = {.n_ctx = 256},
                                                              .max_batch_tokens = 64,
                                                              .max_queue = 3,
                                                              .n_kept = 2,
                                                              .n_score_rows = 4,
                                                              .share_prefixes = false,
                                                              .slice = std::chrono::milliseconds(3)});
    CHECK(others.fingerprint() == base);
    CHECK(fingerprint({.n_ctx = 320}) != base);
    CHECK(fingerprint({.n_ctx = 256, .type_k = KvType::f32}) != base);
    CHECK(fingerprint({.n_ctx = 256, .rope_freq_scale = 0.5f}) != base);
    CHECK(fingerprint({.n_ctx = 256}, {.overrides = {{"llama.rope.freq_base", 5000.0}}}) != base);
}

TEST_CASE("[V9] engine: other bytes of the file are another fingerprint; one by a sample says so until all is read") {
    EngineFixture f;
    const auto twin = [&](const char* name, char value, std::uintmax_t more) {
        return Model::load(test::twin_of(f.model.file().paths().front(), f.folder / name, value, more));
    };
    const auto a = twin("a.gguf", 'a', 1 << 20), b = twin("b.gguf", 'b', 1 << 20);
    REQUIRE(a.file().fingerprint() == b.file().fingerprint());
    const Engine of_a(a, {.context = {.n_ctx = 256}}), of_b(b, {.context = {.n_ctx = 256}});
    CHECK(of_a.fingerprint() != of_b.fingerprint());
    const auto large = twin("c.gguf", 'c', (std::uintmax_t{256} << 20) + 1);
    const Engine engine(large, {.context = {.n_ctx = 256}});
    const std::string by_sample = engine.fingerprint();
    CHECK(by_sample.size() == 32 + std::string_view("-sample").size());
    CHECK(by_sample.ends_with("-sample"));
    CHECK(engine.fingerprint() == by_sample);
    (void)large.file().compute_full_fingerprint();
    CHECK(engine.fingerprint().size() == 32);
    CHECK(!by_sample.starts_with(engine.fingerprint()));
    const Engine later(large, {.context = {.n_ctx = 256}});
    CHECK(later.fingerprint() == engine.fingerprint());
}
