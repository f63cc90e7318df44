// SPDX-License-Identifier: MIT
// A draft model: who may draft for whom, what it proposes, and that nothing but the time depends on it.
#include <doctest/doctest.h>

#include "generation/speculation_support.hpp"

namespace tinfer::test {

namespace {

Model with_vocab(GgufWriter writer, const std::vector<std::string>& texts, std::uint32_t eos = 2) {
    const TempFolder folder;
    writer.set("tokenizer.ggml.model", GgufValue{std::string("llama")});
    writer.array("tokenizer.ggml.tokens", texts);
    writer.array("tokenizer.ggml.scores", std::vector<float>(texts.size()));
    writer.array("tokenizer.ggml.token_type", std::vector<std::int32_t>(texts.size(), 1));
    writer.kv("tokenizer.ggml.bos_token_id", 1u).kv("tokenizer.ggml.eos_token_id", eos);
    writer.save(folder / "model.gguf");
    return Model::load(folder / "model.gguf");
}

std::vector<std::string> texts(int n) {
    std::vector<std::string> list;
    for (int i = 0; i < n; ++i) list.push_back("t" + std::to_string(i) + ".");
    return list;
}

}  // namespace

TEST_CASE("draft model: proposes its most probable tokens, whatever text it is shown next") {
    for_each_memory([](const Model& model) {
        const int n_vocab = model.info().n_vocab;
        const auto drafter = model_drafter(model, model, {.context = {.n_ctx = 64}, .p_min = 0});
        auto text = random_tokens(10, n_vocab, 1);
        for (int round = 0; round < 12; ++round) {
            CAPTURE(round);
            std::vector<Token> out(5), expected;
            const Draft draft = drafter->draft(text, out);
            REQUIRE(draft.n == 5);
            Context context(model, {.n_ctx = 128});
            std::vector<Token> next = text;
            for (int i = 0; i < 5; ++i) {
                REQUIRE(context.decode(next) == DecodeStatus::ok);
                const auto row = context.logits();
                next = {Token{static_cast<std::int32_t>(std::ranges::max_element(row) - row.begin())}};
                expected.push_back(next[0]);
            }
            CHECK(out == expected);
            // A part of it was right; now and then the text is another one altogether.
            text.insert(text.end(), out.begin(), out.begin() + round % 4);
            text.push_back(Token{round % n_vocab});
            if (round % 5 == 4) text = random_tokens(7 + round, n_vocab, static_cast<std::uint64_t>(round));
        }
    });
}

TEST_CASE("[J2] draft model: tokens and rows are those of plain steps; a draft by the model itself is right") {
    for_each_memory([](const Model& model) {
        const int n_vocab = model.info().n_vocab;
        const Vocab vocab = letters_vocab(n_vocab);
        const auto prompt = random_tokens(12, n_vocab, 3);
        for (const Chooser& chooser : choosers()) {
            CAPTURE(chooser.name);
            const Outcome plain = generate(model, vocab, prompt, chooser, {}, {.n_ctx = 256});
            const SpeculationOptions guesses{.drafter =
                                                 model_drafter(model, model, {.context = {.n_ctx = 64}, .p_min = 0}),
                                             .forced = false,
                                             .adapt = false};
            const Outcome outcome = generate(model, vocab, prompt, chooser, guesses, {.n_ctx = 256, .n_outputs = 5});
            check_same_outcome(outcome, plain);
            if (chooser.name == "greedy" && plain.stop == StopReason::limit)
                CHECK(outcome.timings.accepted_n == outcome.timings.drafted_n);
        }
    });
}

TEST_CASE("draft model: a text longer than its context is followed by its end") {
    const Fixture tiny;
    const auto drafter = model_drafter(tiny.model, tiny.model, {.context = {.n_ctx = 64}, .p_min = 0});
    std::vector<Token> text = random_tokens(60, 128, 2), out(4);
    for (int i = 0; i < 30; ++i) {
        const Draft draft = drafter->draft(text, out);
        CHECK(draft.n == 4);
        text.insert(text.end(), out.begin(), out.end());
    }
    // Nothing to say without a text, and where nothing is probable.
    CHECK(drafter->draft({}, out).n == 0);
    CHECK(model_drafter(tiny.model, tiny.model, {.p_min = 1})->draft(text, out).n == 0);
    CHECK(drafter->clone()->draft(text, out).n == 4);
}

TEST_CASE("draft model: rows of its embedding beyond the vocabulary are not proposed") {
    const TinyModel tiny;
    GgufWriter writer = tiny.writer();
    writer.set(tiny.arch + ".vocab_size", GgufValue{static_cast<std::uint32_t>(tiny.n_vocab)});
    const int n_tokens = tiny.n_vocab / 2;
    const Model model = with_vocab(writer, texts(n_tokens));
    REQUIRE(model.info().n_vocab == tiny.n_vocab);
    const auto drafter = model_drafter(model, model, {.context = {.n_ctx = 64}, .p_min = 0});
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
        std::vector<Token> out(5);
        REQUIRE(drafter->draft(random_tokens(10, n_tokens, seed), out).n == 5);
        for (const Token token : out) CHECK(token < Token{n_tokens});
    }
}

TEST_CASE("draft model: another vocabulary is refused, naming where it differs") {
    const GgufWriter writer = TinyModel{}.writer();
    auto other = texts(128);
    const Model target = with_vocab(writer, other);
    CHECK_NOTHROW((void)model_drafter(target, with_vocab(writer, other)));
    other[3] = "early.";  // special tokens may have other names
    CHECK_NOTHROW((void)model_drafter(target, with_vocab(writer, other)));
    other[77] = "late.";
    const auto message = [&](const Model& draft) -> std::string {
        try {
            (void)model_drafter(target, draft);
        } catch (const Error& error) {
            CHECK(error.code() == ErrorCode::bad_parameter);
            return error.what();
        }
        return {};
    };
    CHECK(message(with_vocab(writer, other)).find("at token 77: 'late.', the target's is 't77.'") != std::string::npos);
    CHECK(message(with_vocab(writer, texts(128), 5)).find("in EOS") != std::string::npos);
    CHECK(message(Model::load(TinyModel{}.save(TempFolder().path()))).find("in kind") != std::string::npos);
    CHECK(code_of([&] { (void)model_drafter(target, target, {.p_min = 1.5f}); }) == ErrorCode::bad_parameter);
}

}  // namespace tinfer::test
