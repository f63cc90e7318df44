// SPDX-License-Identifier: MIT
// One request cannot hurt another where the decode itself fails: the round is rolled back, who is to blame is found by
// computing parts of it, and the others get the bytes they get alone.
#include <atomic>
#include <future>
#include <random>
#include <thread>

#include "serving/full_engine.hpp"
#include "support/alloc_counter.hpp"
#include "support/code_of.hpp"
#include "support/golden.hpp"
#include "support/temp_folder.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

constexpr Token kPoison{101};  // in no sound prompt, and never drawn

std::vector<EngineRequest> sound_requests(const Model& model, std::size_t n) {
    auto requests = mixed_requests(model, n, 80, 24);
    for (EngineRequest& request : requests) request.sampler.logit_bias.push_back({kPoison, -1e9f});
    return requests;
}

/// Sound requests and those that somebody is to fail, all at once; the sound ones' bytes and the bad ones' answers.
struct Mixture {
    Answers sound, bad;
    std::size_t n_bad = 0;

    void run(Engine& engine, const std::vector<EngineRequest>& requests,
             const std::function<EngineRequest(std::size_t)>& make_bad) {
        for (std::size_t i = 0; i < requests.size(); ++i) {
            if (i % 4 == 1) engine.submit(make_bad(n_bad), bad.sink(n_bad)), ++n_bad;
            engine.submit(requests[i], sound.sink(i));
        }
        sound.wait();
        bad.wait();
    }
};

/// Nothing is left of any request, and the engine goes on as if it were new.
void check_whole(Engine& engine, const std::vector<EngineRequest>& requests, const std::vector<std::string>& expected) {
    CHECK(together(engine, requests, in_order(requests.size())) == expected);
    CHECK(engine.drain());
    CHECK(engine.stats().running == 0);
    CHECK(engine.stats().queued == 0);
    if (engine.options().n_kept == 0) CHECK(engine.stats().cache_slots_used == 0);
}

}  // namespace

#if TINFER_TRACE
namespace {

/// Fails every run that holds the poison, and some others once in a while: as an observer's exception.
struct Poisoned final : Observer {
    explicit Poisoned(std::uint64_t every = 0) : every_(every) {}
    void on_run_begin(const RunInfo& run) override {
        for (const TokenView& token : run.tokens)
            if (token.id == kPoison) throw std::runtime_error("the observer finds poison");
        if (every_ != 0 && ++n_ % every_ == 0) throw std::runtime_error("now and then");
    }
    std::uint64_t every_, n_ = 0;
};

}  // namespace

TEST_CASE("[V2] engine: a decode that throws for some tokens fails those requests alone") {
    const TempFolder folder;
    const auto model = Model::load(TinyModel{}.save(folder.path()));
    const auto requests = sound_requests(model, 32);
    EngineOptions options{
        .context = {.n_ctx = 1024, .n_seq_max = 6}, .max_batch_tokens = 64, .max_queue = 1000, .n_kept = 0};
    const auto expected = alone(model, requests, options);
    options.observers = {std::make_shared<Poisoned>()};
    Engine engine(model, options);
    Mixture mixture;
    mixture.run(engine, requests, [](std::size_t i) {
        EngineRequest request{.prompt = random_tokens(5 + 9 * static_cast<int>(i), 90, i)};
        request.prompt[request.prompt.size() / 2] = kPoison;
        return request;
    });
    CHECK(mixture.sound.bits() == expected);
    for (std::size_t i = 0; i < mixture.n_bad; ++i) {
        REQUIRE(mixture.bad[i].error.has_value());
        CHECK(mixture.bad[i].error->code() == ErrorCode::compute_failed);
        CHECK(std::string_view(mixture.bad[i].error->what()).find("poison") != std::string_view::npos);
        CHECK(mixture.bad[i].n_ends == 1);
    }
    CHECK(engine.stats().failed == mixture.n_bad);
    CHECK(engine.stats().failed_rounds > mixture.n_bad);
    check_whole(engine, requests, expected);
}

TEST_CASE("[V2] engine: a decode that throws once fails nobody, unless somebody is alone with it") {
    const TempFolder folder;
    const auto model = Model::load(TinyModel{}.save(folder.path()));
    const auto requests = sound_requests(model, 32);
    EngineOptions options{
        .context = {.n_ctx = 1024, .n_seq_max = 6}, .max_batch_tokens = 64, .max_queue = 1000, .n_kept = 0};
    const auto expected = alone(model, requests, options);
    options.observers = {std::make_shared<Poisoned>(7)};
    Engine engine(model, options);
    Answers answers;
    for (std::size_t i = 0; i < requests.size(); ++i) engine.submit(requests[i], answers.sink(i));
    answers.wait();
    std::size_t n_failed = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        if (answers[i].error) ++n_failed;
        else CHECK(answers[i].bits() == expected[i]);
    }
    CHECK(engine.stats().failed_rounds > n_failed);
    CHECK(engine.stats().failed == n_failed);
    CHECK(engine.drain());
    CHECK(engine.stats().cache_slots_used == 0);
}

TEST_CASE("[V2] engine: a round that memory does not suffice for suspects all its requests, and hurts none") {
    const TempFolder folder;
    const auto model = Model::load(TinyModel{}.save(folder.path()));
    const auto requests = sound_requests(model, 24);
    EngineOptions options{
        .context = {.n_ctx = 1024, .n_seq_max = 6}, .max_batch_tokens = 64, .max_queue = 1000, .n_kept = 0};
    const auto expected = alone(model, requests, options);
    /// Memory for the tokens of one sequence at a time.
    struct Scarce final : Observer {
        void on_run_begin(const RunInfo& run) override {
            for (const TokenView& token : run.tokens)
                if (token.first_seq != run.tokens.front().first_seq) {
                    ++n_refused;
                    throw std::bad_alloc();
                }
        }
        std::atomic<std::uint64_t> n_refused{0};
    };
    const auto scarce = std::make_shared<Scarce>();
    options.observers = {scarce};
    Engine engine(model, options);
    Answers answers;
    for (std::size_t i = 0; i < requests.size(); ++i) engine.submit(requests[i], answers.sink(i));
    answers.wait();
    CHECK(answers.bits() == expected);
    CHECK(scarce->n_refused > 0);
    CHECK(engine.stats().failed_rounds >= scarce->n_refused);
    CHECK(engine.stats().failed == 0);
    check_whole(engine, requests, expected);
}

TEST_CASE("[V2] engine: a request's own observer that throws ends that request alone") {
    const World world;
    const auto requests = sound_requests(*world.model, 24);
    EngineOptions options{
        .context = {.n_ctx = 1024, .n_seq_max = 6}, .max_batch_tokens = 64, .max_queue = 1000, .n_kept = 0};
    const auto expected = alone(*world.model, requests, options);
    struct Throws final : Observer {
        explicit Throws(std::size_t where) : where_(where) {}
        void on_session(const SessionInfo&) override { at(0); }
        void on_run_begin(const RunInfo&) override { at(1); }
        void on_events(std::span<const KernelEvent>) override { at(2); }
        void on_run_end(const RunResult&) override { at(3); }
        void on_sample(const SampleEvent&) override { at(4); }
        void on_plan(const PlanView&) override { at(5); }
        void at(std::size_t i) const {
            if (i == where_ % 6) throw std::runtime_error("the request's observer throws");
        }
        std::size_t where_;
    };
    Engine engine(*world.model, options);
    Mixture mixture;
    mixture.run(engine, requests, [](std::size_t i) {
        EngineRequest request{.prompt = random_tokens(20, 90, i), .generation = {.n_predict = 5}};
        request.observers = {std::make_shared<Throws>(i)};
        return request;
    });
    CHECK(mixture.sound.bits() == expected);
    for (std::size_t i = 0; i < mixture.n_bad; ++i) {
        CAPTURE(i);
        REQUIRE(mixture.bad[i].error.has_value());
        CHECK(std::string_view(mixture.bad[i].error->what()).find("observer throws") != std::string_view::npos);
    }
    check_whole(engine, requests, expected);
}
#endif

TEST_CASE("[V2] engine: logits that are no numbers fail the request that they are of, and leave nothing behind") {
    const TempFolder folder;
    GgufWriter writer = TinyModel{}.writer();
    for (GgufWriter::Tensor& tensor : writer.tensors())
        if (tensor.name == "token_embd.weight") {
            const auto row = static_cast<std::size_t>(tensor.ne[0]) * sizeof(float);
            const std::vector<float> nan(static_cast<std::size_t>(tensor.ne[0]),
                                         std::numeric_limits<float>::quiet_NaN());
            std::memcpy(tensor.data.data() + static_cast<std::size_t>(kPoison) * row, nan.data(), row);
        }
    writer.save(folder / "model.gguf");
    const auto model = Model::load(folder / "model.gguf");
    const auto requests = sound_requests(model, 32);
    const EngineOptions options{
        .context = {.n_ctx = 512, .n_seq_max = 6}, .max_batch_tokens = 64, .max_queue = 1000, .n_kept = 0};
    const auto expected = alone(model, requests, options);
    Engine engine(model, options);
    for (int round = 0; round < 2; ++round) {  // the second one in pages that have held NaN
        Mixture mixture;
        mixture.run(engine, requests, [](std::size_t i) {
            EngineRequest request{.prompt = random_tokens(70 + 5 * static_cast<int>(i), 90, i)};
            request.prompt[i] = kPoison;
            return request;
        });
        CHECK(mixture.sound.bits() == expected);
        for (std::size_t i = 0; i < mixture.n_bad; ++i) {
            REQUIRE(mixture.bad[i].error.has_value());
            CHECK(mixture.bad[i].error->code() == ErrorCode::non_finite_logits);
        }
    }
    check_whole(engine, requests, expected);
}

TEST_CASE("[V2] engine: an allocation that fails, wherever it is, costs at most one request, and many in a row no more "
          "than their requests") {
    const World world;
    auto requests = full_requests(*world.model, 8, 60, 12);
    EngineOptions options = world.with_all(
        {.context = {.n_ctx = 1024, .n_seq_max = 5}, .max_batch_tokens = 64, .max_queue = 1000, .n_kept = 0});
    options.store = PrefixStoreOptions{.memory_limit = 1u << 20};
    EngineOptions plain{.context = {.n_ctx = 1024, .n_seq_max = 1}, .max_queue = 1000, .share_prefixes = false};
    plain.adapters = world.adapters;
    const auto expected = alone(*world.model, plain_requests(requests), plain);
    Engine engine(*world.model, options);

    std::mt19937 random(5);
    std::size_t n_hit = 0, n_hurt = 0;
    for (int trial = 0; trial < 32; ++trial) {
        const std::uint64_t n_more = trial < 20 ? 0 : 1 + random() % 60;
        Answers answers;
        std::promise<void> armed;
        auto wait = armed.get_future().share();
        // The first request holds the engine's thread until all others are there.
        engine.submit({.prompt = {Token{5}}, .generation = {.n_predict = 1}},
                      [wait](const EngineEvent&) { wait.wait(); });
        for (std::size_t i = 0; i < requests.size(); ++i)
            engine.submit(requests[i], [&answers, i, listen = answers.sink(i)](const EngineEvent& event) {
                try {
                    listen(event);
                } catch (...) {
                    answers.give_up();
                    throw;
                }
            });
        fail_allocation_at(1 + std::uniform_int_distribution<std::uint64_t>(0, trial % 2 == 0 ? 300 : 3000)(random),
                           n_more);
        armed.set_value();
        answers.wait();
        n_hit += allocation_failed() ? 1 : 0;
        fail_allocation_at(0);
        std::size_t n_other = 0;
        for (std::size_t i = 0; i < requests.size(); ++i) {
            CHECK(answers[i].n_ends <= 1);
            if (answers[i].bits() == expected[i]) continue;
            ++n_other;
            // Its error, or its sink's, which no longer listens then.
            CHECK((answers[i].error || answers[i].n_ends == 0));
            if (answers[i].error) CHECK(answers[i].error->code() == ErrorCode::out_of_memory);
        }
        CHECK((n_other <= 1 || n_more > 0));
        n_hurt += n_other;
    }
    MESSAGE(n_hit << " failed allocations, " << n_hurt << " requests hurt");
    CHECK(n_hit > 8);
    check_whole(engine, requests, expected);
}

TEST_CASE("[V2] engine: an allocation that fails for a round fails nobody, unless somebody is alone in it") {
    const TempFolder folder;
    const auto model = Model::load(TinyModel{}.save(folder.path()));
    const auto requests = mixed_requests(model, 5, 12, 12);
    const EngineOptions options{
        .context = {.n_ctx = 1024, .n_seq_max = 5}, .max_batch_tokens = 64, .max_queue = 100, .n_kept = 0};
    const auto expected = alone(model, requests, options);
    std::size_t n_survived = 0;
    for (std::uint64_t at = 1; at <= 200; at += 3) {
        Engine engine(model, options);  // whose plans and rounds all need memory
        Answers answers;
        std::promise<void> armed;
        auto wait = armed.get_future().share();
        // The first request holds the engine's thread until all others are there.
        engine.submit({.prompt = {Token{5}}, .generation = {.n_predict = 1}},
                      [wait](const EngineEvent&) { wait.wait(); });
        for (std::size_t i = 0; i < requests.size(); ++i)
            engine.submit(requests[i], [&answers, listen = answers.sink(i)](const EngineEvent& event) {
                try {
                    listen(event);
                } catch (...) {
                    answers.give_up();
                    throw;
                }
            });
        fail_allocation_at(at);
        armed.set_value();
        answers.wait();
        const bool has_failed = allocation_failed();
        fail_allocation_at(0);
        CHECK(engine.drain());
        const EngineStats stats = engine.stats();
        if (!has_failed || stats.failed_rounds == 0) continue;
        CAPTURE(at);
        CHECK(stats.failed <= 1);
        CHECK(stats.failed_rounds == 1);
        if (stats.failed == 0) ++n_survived;
        const auto bits = answers.bits();
        std::size_t n_other = 0;
        for (std::size_t i = 0; i < bits.size(); ++i) n_other += bits[i] != expected[i] ? 1 : 0;
        CHECK(n_other == stats.failed);
    }
    MESSAGE(n_survived << " failed rounds that hurt nobody");
    CHECK(n_survived > 2);
}

TEST_CASE("[V2][V11] engine: cancels, pauses, time limits and a small cache at random moments leave the others' bytes "
          "alone") {
    const World world;
    const auto requests = full_requests(*world.model, 40, 90, 30);
    EngineOptions plain{.context = {.n_ctx = 640, .n_seq_max = 1}, .max_queue = 1000, .share_prefixes = false};
    plain.adapters = world.adapters;
    const auto expected = alone(*world.model, plain_requests(requests), plain);
    EngineOptions options = world.with_all({.context = {.n_ctx = 640, .n_seq_max = 6},
                                            .max_batch_tokens = 32,
                                            .max_queue = 1000,
                                            .n_kept = 0,
                                            .slice = std::chrono::milliseconds(1)});
    options.store = PrefixStoreOptions{.memory_limit = 1u << 18};
    Engine engine(*world.model, options);
    Answers answers, bad;
    std::vector<RequestId> ids, known;
    std::mt19937 random(8);
    for (std::size_t i = 0; i < requests.size(); ++i) {
        EngineRequest request{.prompt = random_tokens(10 + static_cast<int>(i) * 13 % 250, 90, i % 6),
                              .sampler = {.logit_bias = {{Token{2}, -1e9f}}, .seed = 1}};
        if (i % 3 == 0) request.speculate = EngineRequest::Speculate::ngram;
        if (i % 5 == 0) request.adapters = {{"red"}};
        if (i % 2 == 0) request.time_limit = std::chrono::milliseconds(1 + random() % 300);
        const auto id = engine.submit(std::move(request), bad.sink(i));
        if (i % 2 == 1) ids.push_back(id);
        known.push_back(engine.submit(requests[i], answers.sink(i)));
        if (random() % 2 == 0) engine.pause(known.back());
    }
    for (const RequestId id : ids) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 6000));
        engine.cancel(id);
        for (int i = 0; i < 4; ++i) {
            const RequestId which = known[random() % known.size()];
            random() % 2 == 0 ? engine.pause(which) : engine.resume(which);
        }
    }
    for (const RequestId id : known) engine.resume(id);
    answers.wait();
    bad.wait();
    CHECK(answers.bits() == expected);
    for (std::size_t i = 0; i < requests.size(); ++i)
        CHECK((bad[i].stop == StopReason::interrupt || bad[i].stop == StopReason::context));
    check_whole(engine, requests, expected);
}
