// SPDX-License-Identifier: MIT
// Draft heads in an engine: answers that are drafted together have the bytes of each alone without a head, whoever
// comes, goes, is cancelled or continues a prefix of another.
#include <atomic>
#include <chrono>
#include <thread>

#include "generation/head_support.hpp"
#include "serving/serving_support.hpp"

namespace tinfer {

namespace {

using namespace test;

std::vector<EngineRequest> requests_for(const HeadCase& with, std::size_t n) {
    const int n_vocab = with.model.info().n_vocab;
    const auto common = random_tokens(70, n_vocab, 3);
    std::vector<EngineRequest> out;
    for (std::size_t i = 0; i < n; ++i) {
        const auto k = static_cast<int>(i);
        EngineRequest request{.prompt = random_tokens(4 + 9 * k, n_vocab, 50 + i),
                              .sampler = {.temp = i % 2 == 0 ? 0.0f : 0.8f, .seed = static_cast<std::uint32_t>(i + 1)},
                              .generation = {.n_predict = 10 + 5 * k}};
        if (i % 3 == 2) request.prompt.insert(request.prompt.begin(), common.begin(), common.end());
        if (i % 4 == 1) request.sampler.penalty_repeat = 1.3f;
        if (i % 4 == 3) request.speculate = EngineRequest::Speculate::ngram;
        request.generation.speculation.n_max = 1 + k % 4;
        request.generation.speculation.adapt = i % 5 == 4;
        out.push_back(std::move(request));
    }
    return out;
}

}  // namespace

TEST_CASE("[J4][V2] engine: answers that a head drafts together are those of each alone without one [golden]") {
    for_each_head(false, [&](const HeadCase& with) {
        const auto requests = requests_for(with, 6);
        EngineOptions options{.context = {.n_ctx = 1024, .n_seq_max = 4, .n_threads = 1}, .n_kept = 2};
        const auto expected = alone(with.model, requests, options);
        options.context.draft_head = with.head;
        options.store = PrefixStoreOptions{.checkpoint_every = 64};
        Engine engine(with.model, options);
        CHECK(together(engine, requests, {0, 1, 2, 3, 4, 5}) == expected);
        CHECK(together(engine, requests, {5, 3, 1, 4, 2, 0}) == expected);  // prompts are there already
        CHECK(engine.stats().drafted_tokens > 0);
        CHECK(engine.stats().failed == 0);
    });
}

TEST_CASE(
    "[J4][V11] engine: a cancel in the middle of rounds that a head drafts for leaves the other answers [golden]") {
    for_each_head(false, [&](const HeadCase& with) {
        auto requests = requests_for(with, 4);
        EngineOptions options{.context = {.n_ctx = 1024, .n_seq_max = 4, .n_threads = 1}};
        const auto expected = alone(with.model, requests, options);
        options.context.draft_head = with.head;
        Engine engine(with.model, options);
        requests.front().generation.n_predict = 400;
        Answers answers;
        std::atomic<int> n_events = 0;
        auto sink = answers.sink(0);
        const auto id = engine.submit(requests[0], [&, sink](const EngineEvent& event) {
            sink(event);
            ++n_events;
        });
        for (std::size_t i = 1; i < requests.size(); ++i) engine.submit(requests[i], answers.sink(i));
        // Its pieces have no text, so there may be no event of them.
        while (n_events == 0 && engine.stats().rounds < 6) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        engine.cancel(id);
        answers.wait();
        CHECK(answers[0].n_ends == 1);
        for (std::size_t i = 1; i < requests.size(); ++i) CHECK(answers[i].bits() == expected[i]);
    });
}

}  // namespace tinfer
