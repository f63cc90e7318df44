// SPDX-License-Identifier: MIT
// How soon an engine hands out a token and ends a request, counted in what it computes until then: a clock would say
// how busy the machine is.
#include <atomic>
#include <functional>
#include <thread>

#include "serving/serving_support.hpp"
#include "support/temp_folder.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

/// Calls the hook at the end of every step, with the number of its run and of the step in it, both from 1. A step takes
/// longer than a slice of 1 ms, so every slice ends behind it.
class SlowSteps final : public Observer {
public:
    explicit SlowSteps(std::function<void(int, int)> hook) : hook_(std::move(hook)) {}
    [[nodiscard]] TraceRequest request() const override {
        return {.level = TraceLevel::steps, .delivery = Delivery::immediate};
    }
    void on_run_begin(const RunInfo&) override {
        ++run_;
        step_ = 0;
    }
    void on_step_end(const KernelEvent&, const StepValues&) override {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        hook_(run_, ++step_);
    }

private:
    std::function<void(int, int)> hook_;
    int run_ = 0, step_ = 0;
};

/// Keeps how many tokens had been told when each run began.
class ToldTokens final : public Observer {
public:
    void on_run_begin(const RunInfo&) override { at_begin.push_back(n_told); }
    std::size_t n_told = 0;
    std::vector<std::size_t> at_begin;
};

}  // namespace

TEST_CASE("[V11] engine: of a request that is cancelled no further step is begun, in the prompt and in the answer") {
    const TempFolder folder;
    const Model model = Model::load(TinyModel{}.save(folder.path()));
    const EngineRequest other{
        .prompt = random_tokens(40, 90, 2), .sampler = {.seed = 5}, .generation = {.n_predict = 6}};
    const EngineOptions plain{.context = {.n_ctx = 512, .n_seq_max = 2, .n_threads = 1}};
    const auto expected = alone(model, {other}, plain);
    for (const int run_of_cancel : {1, 2, 6}) {  // a prompt of two rounds, then an answer
        CAPTURE(run_of_cancel);
        std::atomic<Engine*> made = nullptr;
        std::atomic<std::uint64_t> victim = 0;
        std::atomic<bool> is_over = false, is_cancelled = false;
        int n_after = 0, longest_run = 0;
        const auto steps = std::make_shared<SlowSteps>([&](int run, int step) {
            while (victim == 0) std::this_thread::yield();
            longest_run = std::max(longest_run, step);
            if (is_cancelled && !is_over) ++n_after;
            if (run != run_of_cancel || step != 4 || is_cancelled) return;
            is_cancelled = true;
            made.load()->cancel(RequestId{victim.load()});
        });
        EngineOptions options = plain;
        options.max_batch_tokens = 64;
        options.slice = std::chrono::milliseconds(1);
        options.observers = {steps};
        Answers answers;
        Engine engine(model, options);
        made = &engine;
        auto sink = answers.sink(1);
        const EngineRequest asked{.prompt = random_tokens(100, 90, 1),
                                  .sampler = {.logit_bias = {{Token{2}, -1e9f}}, .seed = 1},
                                  .generation = {.n_predict = 40}};
        victim = static_cast<std::uint64_t>(engine.submit(asked, [&, sink](const EngineEvent& event) {
            if (event.ended()) is_over = true;
            sink(event);
        }));
        engine.submit(other, answers.sink(0));
        answers.wait();
        CHECK(is_cancelled);
        CHECK(longest_run > 20);  // so many would be left
        CHECK(n_after == 0);
        CHECK(answers[1].stop == StopReason::interrupt);
        CHECK((answers[1].n_generated == 0) == (run_of_cancel < 3));
        CHECK(std::vector{answers[0].bits()} == expected);
    }
    // What a client that has gone costs at most: a slice, and the server's look at its connections.
    CHECK(EngineOptions{}.slice <= std::chrono::milliseconds(10));
}

TEST_CASE("[V3] engine: every token is told before the next one is computed") {
    const TempFolder folder;
    const Model model = Model::load(TinyModel{}.save(folder.path()));
    const auto told = std::make_shared<ToldTokens>();
    Answers answers;
    Engine engine(model, {.context = {.n_ctx = 256, .n_seq_max = 2, .n_threads = 1}, .observers = {told}});
    auto sink = answers.sink(0);
    std::size_t n_events = 0;
    const EngineRequest request{.prompt = random_tokens(20, 90, 1),
                                .sampler = {.logit_bias = {{Token{2}, -1e9f}}, .seed = 1},
                                .generation = {.n_predict = 24}};
    engine.submit(request, [&, sink](const EngineEvent& event) {
        CHECK(event.n_generated <= told->n_told + 1);
        n_events += event.n_generated > told->n_told ? 1 : 0;
        told->n_told = event.n_generated;
        sink(event);
    });
    answers.wait();
    CHECK(answers[0].n_generated == 24);
    CHECK(n_events == 24);
    std::vector<std::size_t> expected(24);  // one run for each token, the first of the prompt
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = i;
    CHECK(told->at_begin == expected);
}
