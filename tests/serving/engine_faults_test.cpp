// SPDX-License-Identifier: MIT
// One request cannot hurt another: sinks that throw, cancels at random moments, constraints without candidates,
// answers without end, a cache that is too small — the others get the bytes they get alone.
#include <random>
#include <thread>

#include "serving/serving_support.hpp"
#include "support/temp_folder.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

/// Allows nothing after n tokens, and may throw in place of that.
struct DeadEnd : TokenConstraint {
    DeadEnd(std::size_t n, std::size_t n_words, bool throws) : left(n), bits(n_words, ~0ull), throws_then(throws) {}
    bool allows(Token) override {
        if (left == 0 && throws_then) throw std::runtime_error("the constraint throws");
        return left > 0;
    }
    std::span<const std::uint64_t> mask() override {
        if (left == 0) bits.assign(bits.size(), 0);
        return bits;
    }
    void accept(Token) override { --left; }
    void rewind(std::size_t n) override { left += n; }
    void reset() override {}
    [[nodiscard]] std::unique_ptr<TokenConstraint> clone() const override { return std::make_unique<DeadEnd>(*this); }
    std::size_t left;
    std::vector<std::uint64_t> bits;
    bool throws_then;
};

}  // namespace

TEST_CASE("[V2] engine: faults of some requests leave the others' bytes alone") {
    const TempFolder folder;
    TinyModel tiny;
    tiny.n_ctx = 1024;
    const auto model = Model::load(tiny.save(folder.path()));
    const EngineOptions options{.context = {.n_ctx = 640, .n_seq_max = 6},
                                .max_batch_tokens = 32,
                                .max_queue = 1000,
                                .n_kept = 3,
                                .slice = std::chrono::milliseconds(1)};
    const auto sound = mixed_requests(model, 60, 90, 40);
    const auto expected = alone(model, sound, options);
    const auto n_words = (model.vocab().size() + 63) / 64;

    Engine engine(model, options);
    Answers answers, bad;
    std::mt19937 random(3);
    std::vector<RequestId> to_cancel;
    std::mutex mutex;
    std::atomic<bool> done = false;
    std::thread canceller([&] {
        std::mt19937 own(4);
        while (!done) {
            std::this_thread::sleep_for(std::chrono::microseconds(std::uniform_int_distribution(0, 2000)(own)));
            const std::lock_guard lock(mutex);
            if (to_cancel.empty()) continue;
            const std::size_t i = std::uniform_int_distribution<std::size_t>(0, to_cancel.size() - 1)(own);
            engine.cancel(to_cancel[i]);
            to_cancel.erase(to_cancel.begin() + static_cast<std::ptrdiff_t>(i));
        }
    });
    std::size_t n_bad = 0, n_thrown = 0;
    std::vector<std::size_t> dead_ends;
    for (std::size_t i = 0; i < sound.size(); ++i) {
        EngineRequest request{.prompt = random_tokens(1 + static_cast<int>(i) * 9 % 300, 90, i % 5),
                              .sampler = {.logit_bias = {{Token{2}, -1e9f}}, .seed = 1}};
        switch (i % 4) {
            case 0: {  // without end, until somebody cancels it
                const auto id = engine.submit(std::move(request), bad.sink(n_bad++));
                const std::lock_guard lock(mutex);
                to_cancel.push_back(id);
                break;
            }
            case 1:  // the listener throws
                request.generation.n_predict = std::numeric_limits<std::int64_t>::max();
                engine.submit(std::move(request), [n = i % 3](const EngineEvent& event) mutable {
                    if (n-- == 0 && !event.ended()) throw std::runtime_error("the sink throws");
                });
                ++n_thrown;
                break;
            default:  // nothing may follow
                request.constraint = std::make_shared<DeadEnd>(i % 3, n_words, i % 4 == 3);
                dead_ends.push_back(n_bad);
                engine.submit(std::move(request), bad.sink(n_bad++));
        }
        engine.submit(sound[i], answers.sink(i));
    }
    answers.wait();
    CHECK(answers.bits() == expected);
    bad.wait();
    CHECK(engine.drain());
    done = true;
    canceller.join();
    for (const std::size_t i : dead_ends) {
        REQUIRE(bad[i].error.has_value());
        CHECK((bad[i].error->code() == ErrorCode::no_candidates || bad[i].error->code() == ErrorCode::compute_failed));
        CHECK(bad[i].n_ends == 1);
    }
    const auto stats = engine.stats();
    CHECK(stats.ended == sound.size());
    CHECK(stats.failed == dead_ends.size());
    CHECK(stats.interrupted == n_thrown + n_bad - dead_ends.size());
    CHECK(stats.running == 0);
}

TEST_CASE("[V11] engine: cancels as fast as they come cannot keep others from going on") {
    const TempFolder folder;
    const auto model = Model::load(TinyModel{}.save(folder.path()));
    Engine engine(model, {.context = {.n_ctx = 2048, .n_seq_max = 2}, .slice = std::chrono::milliseconds(1)});
    std::atomic<bool> done = false;
    std::thread restless([&] {
        while (!done) {
            try {
                engine.cancel(engine.submit({.prompt = random_tokens(500, 90, 1), .share_prefix = false}, {}));
            } catch (const Error&) {
                std::this_thread::yield();
            }
        }
    });
    EngineRequest request{.prompt = random_tokens(300, 90, 2), .sampler = {.seed = 1}, .generation = {.n_predict = 50}};
    request.sampler.logit_bias = {{Token{2}, -1e9f}};
    for (;;) {
        try {
            const auto n_generated = engine.ask(request).n_generated;
            CHECK(n_generated == 50);
            break;
        } catch (const Error& error) {
            if (error.code() != ErrorCode::limit_exceeded) throw;  // the queue is full of the restless one's
        }
    }
    done = true;
    restless.join();
}

TEST_CASE("[V2] engine: any number of threads may use it at once") {
    const TempFolder folder;
    const auto model = Model::load(TinyModel{}.save(folder.path()));
    const EngineOptions options{.context = {.n_ctx = 512, .n_seq_max = 3}, .max_queue = 1000};
    const auto requests = mixed_requests(model, 24, 60, 20);
    const auto expected = alone(model, requests, options);
    Engine engine(model, options);
    Answers answers;
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (std::size_t i = t; i < requests.size(); i += 4) {
                engine.submit(requests[i], answers.sink(i));
                (void)engine.stats();
                (void)engine.slots();
            }
        });
    for (auto& thread : threads) thread.join();
    answers.wait();
    CHECK(answers.bits() == expected);
}

TEST_CASE("[V2] engine: a sink may submit and cancel") {
    const TempFolder folder;
    const auto model = Model::load(TinyModel{}.save(folder.path()));
    Engine engine(model, {.context = {.n_ctx = 256, .n_seq_max = 2}});
    Answers answers;
    auto second = answers.sink(1);
    auto first = answers.sink(0);
    engine.submit({.prompt = random_tokens(20, 90, 1), .sampler = {.seed = 1}},
                  [&, first, second](const EngineEvent& event) {
                      if (event.n_generated == 2 && !event.ended()) {
                          engine.submit({.prompt = random_tokens(20, 90, 2), .generation = {.n_predict = 1}}, second);
                          engine.cancel(event.request);
                      }
                      first(event);
                  });
    answers.wait();
    CHECK(answers[0].stop == StopReason::interrupt);
    CHECK(answers[1].stop == StopReason::limit);
}
