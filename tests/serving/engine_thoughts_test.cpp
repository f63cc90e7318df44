// SPDX-License-Identifier: MIT
// A limit of thoughts: at the limit the closing mark is written, and the answer goes on behind it.
#include "serving/full_engine.hpp"
#include "serving/thoughts.hpp"
#include "support/code_of.hpp"
#include "tinfer/chat.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

constexpr std::string_view kClose = "</think>";

ChatTemplate thinking() {
    return ChatTemplate("{{ messages }}<think></think>{% if false %}<tool_call>{\"name\"{% endif %}");
}

AnswerParser opened() { return AnswerParser(thinking(), {.generation_prompt = "<think>\n"}); }

EngineRequest request_of(std::uint32_t seed, int n_predict) {
    return {.prompt = random_tokens(12, 90, seed),
            .sampler = {.temp = 0.8f, .seed = seed},
            .generation = {.n_predict = n_predict}};
}

}  // namespace

TEST_CASE("engine: thoughts end at their limit, with guesses and beside others, too") {
    const World world;
    const Vocab& vocab = world.model->vocab();
    Engine engine(*world.model, {.context = {.n_ctx = 2048, .n_seq_max = 4, .n_threads = 1, .n_threads_batch = 1}});
    for (const std::uint32_t seed : {1u, 2u, 3u}) {
        EngineRequest free = request_of(seed, 60);
        for (const Token token : {Token{2}, Token{3 + '<' - ' '}})  // no end, and no mark by chance
            free.sampler.logit_bias.push_back({token, -60.0f});
        free.n_top = 0;
        const auto ids = [&](const EngineRequest& request) {
            Answers answers;
            engine.submit(request, answers.sink(0));
            answers.wait();
            std::vector<Token> out;
            for (const TokenChoice& choice : answers[0].tokens) out.push_back(choice.token);
            return out;
        };
        const std::vector<Token> thoughts = ids(free);
        for (const std::ptrdiff_t limit : {0, 1, 25}) {
            EngineRequest limited = free;
            limited.thoughts = opened().thoughts_limit(vocab, limit);
            std::vector<Token> expected(thoughts.begin(), thoughts.begin() + limit);
            const auto& mark = limited.thoughts->closings.at(0);
            expected.insert(expected.end(), mark.begin(), mark.end());
            std::vector<Token> answer = ids(limited);
            limited.speculate = EngineRequest::Speculate::ngram;
            CHECK(ids(limited) == answer);
            REQUIRE(answer.size() == 60);
            answer.resize(expected.size());
            CHECK(answer == expected);
        }
    }
}

TEST_CASE("engine: behind the limit of thoughts comes what a schema binds") {
    const World world;
    const Vocab& vocab = world.model->vocab();
    Engine engine(*world.model, {.context = {.n_ctx = 2048, .n_threads = 1, .n_threads_batch = 1}});
    EngineRequest request = request_of(4, 200);
    request.grammar = answer_grammar(thinking(), R"({"type": "boolean"})",
                                     {.generation_prompt = "<think>\n", .schema = {.max_space = 2}});
    request.thoughts = opened().thoughts_limit(vocab, 30, "Enough.");
    const std::string text = engine.ask(request).text;
    AnswerParser parser = opened();
    (void)parser.push(text);
    (void)parser.finish();
    CHECK(parser.whole().reasoning.ends_with("Enough."));
    CHECK((parser.whole().content == "true" || parser.whole().content == "false"));

    for (const int n : {40, 60, 100}) {  // room for the content, marks not counted
        EngineRequest short_one = request;
        short_one.generation.n_predict = n;
        short_one.thoughts = opened().thoughts_limit(vocab, ThoughtsLimit::kNone);
        short_one.thoughts->leave_room(n);
        CHECK(short_one.thoughts->until == n / 2 - 8);
        AnswerParser of_short = opened();
        (void)of_short.push(engine.ask(short_one).text);
        (void)of_short.finish();
        CHECK((of_short.whole().content == "true" || of_short.whole().content == "false"));
    }

    const auto code = [&](ThoughtsLimit limit) {
        request.thoughts = std::move(limit);
        return code_of([&] { (void)engine.ask(request); });
    };
    CHECK(code({.max_tokens = -1, .closings = {{Token{3}}}, .reader = opened().content_reader()}) ==
          ErrorCode::bad_parameter);
    CHECK(code({.max_tokens = 1, .closings = {{}}, .reader = opened().content_reader()}) == ErrorCode::bad_parameter);
    CHECK(code({.max_tokens = 1, .closings = {{Token{3}}}, .reader = {}}) == ErrorCode::bad_parameter);
    CHECK(code({.until = -1, .closings = {{Token{3}}}, .reader = opened().content_reader()}) ==
          ErrorCode::bad_parameter);
    CHECK_FALSE(AnswerParser(ChatTemplate("{{ messages }}")).thoughts_limit(vocab, 1).has_value());
}

TEST_CASE("thoughts: the constraint goes back, is copied and begins again") {
    const World world;
    const Vocab& vocab = world.model->vocab();
    const auto token = [&](char c) { return Token{static_cast<std::int32_t>(3 + c - ' ')}; };
    serving::ThoughtsConstraint constraint(vocab, *opened().thoughts_limit(vocab, 3000), {}, nullptr, false);
    for (int i = 0; i < 3000; ++i) {
        REQUIRE(constraint.forced().empty());
        REQUIRE(constraint.allows(token('y')));
        constraint.accept(token('x'));
    }
    const auto writes_mark = [&](TokenConstraint& one) {
        for (const char c : kClose) {
            const auto mask = one.mask();
            for (std::size_t id = 0; id < vocab.size(); ++id) {
                const bool is_set = (mask[id / 64] >> (id % 64) & 1) != 0;
                if (is_set != (Token{static_cast<std::int32_t>(id)} == token(c))) return false;
            }
            if (one.allows(token('x')) || code_of([&] { one.accept(token('x')); }) != ErrorCode::grammar_violation)
                return false;
            one.accept(token(c));
        }
        return one.forced().empty() && one.allows(token('x'));
    };
    REQUIRE(constraint.forced().size() == kClose.size());
    const auto copy = constraint.clone();
    CHECK(writes_mark(constraint));
    CHECK(writes_mark(*copy));
    copy->accept(token('x'));  // content
    copy->rewind(4);           // inside the mark
    CHECK(copy->forced().size() == 3);
    copy->rewind(900);
    CHECK(copy->forced().empty());
    for (std::size_t i = 0; i < 900 - (kClose.size() - 3); ++i) copy->accept(token('z'));
    CHECK(writes_mark(*copy));
    CHECK(code_of([&] { copy->rewind(100'000); }) == ErrorCode::bad_parameter);
    constraint.reset();
    CHECK(constraint.forced().empty());
    CHECK(constraint.allows(token('y')));
}
