// SPDX-License-Identifier: MIT
// Requests that wait for slow readers: they change no byte, neither theirs nor those of others, and hold nobody up.
#include <array>
#include <atomic>
#include <thread>

#include "serving/serving_support.hpp"
#include "support/alloc_counter.hpp"
#include "support/temp_folder.hpp"

using namespace tinfer;
using namespace tinfer::test;
using namespace std::chrono_literals;

namespace {

struct PauseFixture {
    TempFolder folder;
    Model model = Model::load(TinyModel{}.save(folder.path()));
};

EngineRequest request_of(std::uint32_t seed, int n_predict) {
    EngineRequest request{.prompt = random_tokens(20, 90, seed), .sampler = {.seed = seed}, .n_top = 1};
    request.generation.n_predict = n_predict;
    return request;
}

/// Pauses its request when it has so many tokens.
EventSink pausing(Engine& engine, EventSink inner, std::size_t n_tokens, std::atomic<std::size_t>& n_generated) {
    return [&engine, inner = std::move(inner), n_tokens, &n_generated](const EngineEvent& event) {
        n_generated = event.n_generated;
        if (event.n_generated == n_tokens && !event.ended()) engine.pause(event.request);
        inner(event);
    };
}

void wait_for(const std::atomic<std::size_t>& value, std::size_t wanted) {
    for (int i = 0; i < 2000 && value != wanted; ++i) std::this_thread::sleep_for(5ms);
    REQUIRE(value == wanted);
}

}  // namespace

TEST_CASE("[V2] engine: a paused request computes nothing until it is resumed, and others go on") {
    const PauseFixture f;
    const EngineOptions options{.context = {.n_ctx = 512, .n_seq_max = 2}};
    const std::vector<EngineRequest> requests{request_of(1, 60), request_of(2, 100)};
    const auto expected = alone(f.model, requests, options);
    Engine engine(f.model, options);
    Answers answers;
    std::atomic<std::size_t> n_generated = 0;
    const auto id = engine.submit(requests[0], pausing(engine, answers.sink(0), 3, n_generated));
    wait_for(n_generated, 3);
    Answers others;
    engine.submit(requests[1], others.sink(1));
    others.wait();
    CHECK(n_generated == 3);
    CHECK(others.bits()[0] == expected[1]);
    std::this_thread::sleep_for(30ms);  // alone, too
    const auto rounds = engine.stats().rounds;
    std::this_thread::sleep_for(30ms);
    CHECK(engine.stats().rounds == rounds);
    REQUIRE(engine.slots().size() == 1);
    CHECK(engine.slots()[0].n_generated == 3);
    engine.resume(id);
    answers.wait();
    CHECK(answers.bits()[0] == expected[0]);
    CHECK(answers[0].n_pushed_back == 0);
    engine.pause(id);  // it has ended
    engine.resume(RequestId{1000});
}

TEST_CASE("[N3] engine: a paused request is cancelled where there is no memory at all") {
    const PauseFixture f;
    const auto requests = std::vector{request_of(1, 60), request_of(2, 60)};
    const EngineOptions options{.context = {.n_ctx = 512, .n_seq_max = 2}};
    const auto expected = alone(f.model, requests, options);
    Engine engine(f.model, options);
    Answers answers;
    std::atomic<std::size_t> n_generated = 0, n_of_other = 0, n_ends = 0;
    const auto id = engine.submit(requests[0], pausing(engine, answers.sink(0), 3, n_generated));
    const auto other = engine.submit(
        requests[1], pausing(
                         engine, [&](const EngineEvent& event) { n_ends += event.ended(); }, 5, n_of_other));
    wait_for(n_generated, 3);
    wait_for(n_of_other, 5);
    fail_allocation_at(1, 1'000'000);
    engine.pause(id);
    engine.cancel(other);
    fail_allocation_at(0);
    wait_for(n_ends, 1);
    engine.resume(id);
    answers.wait();
    CHECK(answers.bits()[0] == expected[0]);
}

TEST_CASE("[V2] engine: a request that stays paused gives its place to others, and takes up where it was") {
    const PauseFixture f;
    const EngineOptions options{.context = {.n_ctx = 128, .n_seq_max = 1}};
    const std::vector<EngineRequest> requests{request_of(1, 60), request_of(2, 100)};
    const auto expected = alone(f.model, requests, options);
    Engine engine(f.model, options);
    Answers answers;
    std::atomic<std::size_t> n_generated = 0;
    const auto id = engine.submit(requests[0], pausing(engine, answers.sink(0), 7, n_generated));
    wait_for(n_generated, 7);
    Answers others;
    engine.submit(requests[1], others.sink(1));  // and its cache: both together do not fit
    others.wait();
    CHECK(others.bits()[0] == expected[1]);
    CHECK(n_generated == 7);
    engine.resume(id);
    answers.wait();
    CHECK(answers.bits()[0] == expected[0]);
    CHECK(answers[0].n_pushed_back == 1);
}

TEST_CASE("[V11] engine: paused requests can be cancelled, pass their time limit, and end with the engine") {
    const PauseFixture f;
    Answers answers;
    std::array<std::atomic<std::size_t>, 3> n_generated{};
    {
        Engine engine(f.model, {.context = {.n_ctx = 1024, .n_seq_max = 3}});
        std::vector<RequestId> ids;
        for (std::uint32_t i = 0; i < 3; ++i) {
            EngineRequest request = request_of(1 + i, 200);
            if (i == 1) request.time_limit = 1s;
            ids.push_back(engine.submit(request, pausing(engine, answers.sink(i), 2, n_generated[i])));
        }
        for (const auto& n : n_generated) wait_for(n, 2);
        engine.cancel(ids[0]);
        for (int i = 0; i < 2000 && engine.stats().interrupted < 2; ++i) std::this_thread::sleep_for(5ms);
        CHECK(engine.stats().interrupted == 2);
    }
    answers.wait();
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(answers[i].stop == StopReason::interrupt);
        CHECK(answers[i].timed_out == (i == 1));
        CHECK(answers[i].n_generated == 2);
    }
}
