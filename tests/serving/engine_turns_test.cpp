// SPDX-License-Identifier: MIT
// Engines that share processors: one computes at a time, none starves, and no bit changes.
#include <atomic>
#include <thread>

#include "serving/full_engine.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

/// Counts engines that compute at once.
struct Inside final : Observer {
    explicit Inside(std::atomic<int>& given, std::atomic<int>& most_given) : n(given), most(most_given) {}
    [[nodiscard]] TraceRequest request() const override { return {.level = TraceLevel::counts}; }
    void on_run_begin(const RunInfo&) override {
        const int now = ++n;
        if (now > most) most = now;
    }
    void on_run_end(const RunResult&) override { --n; }
    std::atomic<int>&n, &most;
};

}  // namespace

TEST_CASE("[V16] engine: engines that take turns never compute at once, and give what they give alone") {
    const World llama, experts("qwen2moe");
    const auto turns = std::make_shared<EngineTurns>();
    std::atomic<int> n = 0, most = 0;
    const auto options = [&](bool together) {
        EngineOptions made{.context = {.n_ctx = 512, .n_seq_max = 3, .n_threads = 1}, .max_queue = 1000};
        if (together) made.turns = turns;
#if TINFER_TRACE
        if (together) made.observers = {std::make_shared<Inside>(n, most)};
#endif
        return made;
    };
    const World* const worlds[]{&llama, &experts};
    std::array<std::vector<EngineRequest>, 2> requests;
    std::array<std::vector<std::string>, 2> expected, found;
    for (std::size_t i = 0; i < 2; ++i) {
        requests[i] = mixed_requests(*worlds[i]->model, 20, 90, 20);
        expected[i] = alone(*worlds[i]->model, requests[i], options(false));
    }
    {
        Engine first(*llama.model, options(true)), second(*experts.model, options(true));
        std::jthread other([&] { found[1] = together(second, requests[1], in_other_order(20, 3)); });
        found[0] = together(first, requests[0], in_other_order(20, 4));
    }
    CHECK(found == expected);
    CHECK(most <= 1);
}

TEST_CASE("[V16] engine: turns go by time, not by rounds; an idle engine holds nobody up and saves nothing") {
    const World small;
    TinyModel tiny;
    tiny.n_layer = 8;
    tiny.n_ctx = 2048;
    with_characters(tiny.writer(), tiny.n_vocab).save(small.folder / "large.gguf");
    const auto large = Model::load(small.folder / "large.gguf");
    const auto turns = std::make_shared<EngineTurns>();
    const EngineOptions options{
        .context = {.n_ctx = 2048, .n_seq_max = 1, .n_threads = 1}, .max_queue = 100, .turns = turns};
    Engine slow(large, options), quick(*small.model, options), idle(*small.model, options);
    // The idle one has computed once, long ago.
    (void)idle.ask({.prompt = {Token{5}}, .generation = {.n_predict = 1}});
    Answers answers;
    const auto endless = [](std::uint32_t seed) {
        EngineRequest request{.prompt = {Token{5}}, .sampler = {.logit_bias = {{Token{2}, -100.0f}}, .seed = seed}};
        request.generation.n_predict = 1500;
        return request;
    };
    const auto a = slow.submit(endless(1), answers.sink(0)), b = quick.submit(endless(2), answers.sink(1));
    const auto begin = std::chrono::steady_clock::now();
    const auto is_over = [&] {
        return slow.stats().rounds >= 300 || quick.stats().rounds >= 1400 ||
               std::chrono::steady_clock::now() - begin > std::chrono::seconds(20);
    };
    while (!is_over()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto of_slow = slow.stats(), of_quick = quick.stats();
    CHECK(idle.ask({.prompt = {Token{5}}, .generation = {.n_predict = 1}}).stop == StopReason::limit);
    slow.cancel(a);
    quick.cancel(b);
    answers.wait();
    CHECK(of_quick.rounds > of_slow.rounds);
    CHECK(of_slow.busy_s < 2 * of_quick.busy_s);
    CHECK(of_quick.busy_s < 2 * of_slow.busy_s);
}
