// SPDX-License-Identifier: MIT
// Grammars whose masks take long: other requests go on meanwhile, and the answers are what they are alone.
#include <chrono>
#include <thread>

#include "grammar/constraint.hpp"
#include "serving/full_engine.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

/// Hundreds of alternatives that can stand at many places of themselves at once.
Grammar ambiguous(int n = 400) {
    std::string text = "root ::= ";
    for (int i = 0; i < n; ++i) {
        if (i > 0) text += " | ";
        text += "(([a-z ]* [";
        text += static_cast<char>('a' + i % 26);
        text += static_cast<char>('a' + (i * 7 + 1 + i / 26) % 26);
        text += "] [a-z ]{" + std::to_string(40 + i) + "})*)";
    }
    return Grammar::parse(text);
}

/// A request whose every token needs a mask: what it would draw without one is not allowed.
EngineRequest constrained(const World& world, const Grammar& grammar, std::uint32_t seed) {
    EngineRequest request{
        .prompt = random_tokens(12, 90, seed), .sampler = {.temp = 0.8f, .seed = seed}, .generation = {.n_predict = 5}};
    request.grammar = grammar;
    request.sampler.logit_bias.push_back({world.model->vocab().encode("!", {.add_special = false}).back(), 60.0f});
    return request;
}

EngineOptions small_engine() {
    return {.context = {.n_ctx = 2048, .n_seq_max = 4, .n_threads = 1, .n_threads_batch = 1}};
}

}  // namespace

TEST_CASE("engine: masks that take long stall no other request, and change no answer") {
    const World world;
    const Grammar grammar = ambiguous(), other = ambiguous(401);
    {  // more than the engine's thread spends on one
        const auto constraint = grammar.constraint(world.model->vocab());
        auto* const sliced = dynamic_cast<grammar::SlicedConstraint*>(constraint.get());
        REQUIRE(sliced != nullptr);
        REQUIRE_FALSE(sliced->prepare(20'000));
    }
    const std::vector<EngineRequest> slow{constrained(world, grammar, 1), constrained(world, grammar, 2),
                                          constrained(world, other, 3)};
    EngineRequest neighbour{
        .prompt = random_tokens(12, 90, 9), .sampler = {.seed = 9}, .generation = {.n_predict = 1000}};
    neighbour.sampler.logit_bias.push_back({Token{2}, -60.0f});  // no end before that
    std::vector<std::string> expected;
    for (const EngineRequest& request : slow) {  // with whole masks, and no engine
        Context context(*world.model, {.n_ctx = 2048, .n_threads = 1});
        Sampler sampler(world.model->vocab(), request.sampler);
        sampler.constrain(request.grammar->constraint(world.model->vocab()));
        Generation generation(world.model->vocab(), request.prompt, request.generation);
        generation.run(context, sampler);
        expected.push_back(generation.text());
    }

    Engine engine(*world.model, small_engine());
    const auto quiet = engine.memory().fixed;
    std::size_t n_neighbour = 0, n_before = 0;
    std::uint64_t most = 0;
    std::mutex mutex;
    Answers answers;
    const auto counted = answers.sink(3);
    engine.submit(neighbour, [&](const EngineEvent& event) {
        {
            const std::lock_guard lock(mutex);
            n_neighbour += event.tokens.size();
        }
        counted(event);
    });
    for (std::size_t i = 0; i < slow.size(); ++i) {
        auto sink = answers.sink(i);
        engine.submit(slow[i], [&, i, sink](const EngineEvent& event) {
            {
                const std::lock_guard lock(mutex);
                if (i == 0 && event.ended()) n_before = n_neighbour;
                most = std::max(most, engine.memory().fixed);
            }
            sink(event);
        });
    }
    answers.wait();
    for (std::size_t i = 0; i < slow.size(); ++i) {
        CHECK(!answers[i].error);
        CHECK(answers[i].text == expected[i]);
        CHECK(answers[i].n_generated == 5);
    }
    CHECK(answers[3].n_generated == 1000);
    CHECK(n_before > 50);           // beside five tokens that need masks; one each, if it waited for them
    CHECK(most > quiet + 100'000);  // the grammars and what matching them remembers
    for (int i = 0; i < 200 && engine.memory().fixed != quiet; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(engine.memory().fixed == quiet);
}

TEST_CASE("engine: a request that waits for its mask can be cancelled, pass its time limit, and be pushed back") {
    const World world;
    const Grammar grammar = ambiguous();
    {
        Engine engine(*world.model, small_engine());
        Answers answers;
        const auto first = engine.submit(constrained(world, grammar, 1), answers.sink(0));
        EngineRequest hurried = constrained(world, grammar, 2);
        hurried.time_limit = std::chrono::milliseconds(1);
        engine.submit(hurried, answers.sink(1));
        engine.cancel(first);
        answers.wait();
        CHECK(answers[0].stop == StopReason::interrupt);
        CHECK(answers[1].timed_out);
    }
    {  // the end of an engine
        Answers answers;
        {
            Engine engine(*world.model, small_engine());
            engine.submit(constrained(world, grammar, 1), answers.sink(0));
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        answers.wait();
        CHECK(answers[0].n_ends == 1);
    }
    // A cache in which not all fit: the youngest are pushed back while they wait, too.
    EngineOptions narrow = small_engine();
    narrow.context.n_ctx = 160;
    std::vector<EngineRequest> requests;
    for (std::uint32_t i = 0; i < 3; ++i) requests.push_back(constrained(world, grammar, 1 + i));
    requests.push_back({.prompt = random_tokens(60, 90, 9), .sampler = {.seed = 9}, .generation = {.n_predict = 90}});
    const auto expected = alone(*world.model, requests, narrow);
    Engine engine(*world.model, narrow);
    CHECK(together(engine, requests, {3, 0, 1, 2}) == expected);
    CHECK(together(engine, requests, {0, 1, 2, 3}) == expected);
}

TEST_CASE("engine: a mask that takes more steps than it may ends its own request alone") {
    const World world;
    std::string text = "root ::= ";
    for (int i = 0; i < 400; ++i)
        text += std::string(i > 0 ? " | " : "") + "([a-z]* [a-m] [a-z]{" + std::to_string(300 + i) + "})*";
    GrammarOptions bounds;
    bounds.max_steps = 60'000;
    Engine engine(*world.model, small_engine());
    Answers answers;
    EngineRequest request = constrained(world, Grammar::parse(text, bounds), 1);
    engine.submit(request, answers.sink(0));
    engine.submit({.prompt = random_tokens(12, 90, 9), .sampler = {.seed = 9}, .generation = {.n_predict = 20}},
                  answers.sink(1));
    answers.wait();
    REQUIRE(answers[0].error);
    CHECK(answers[0].error->code() == ErrorCode::limit_exceeded);
    CHECK(std::string_view(answers[0].error->what()).starts_with("grammar: matching takes more than 60000 steps"));
    CHECK(answers[1].n_generated == 20);
}
