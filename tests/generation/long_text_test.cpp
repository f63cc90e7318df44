// SPDX-License-Identifier: MIT
// Texts beyond the context and beyond the trained window, with a model that was made for it: one layer whose head looks
// from a question to the only digit of a text, wherever it stands, for as long as the rotation between the two is one
// that occurs in the window it is made for.
#include <doctest/doctest.h>

#include <limits>

#include "generation/speculation_support.hpp"

namespace tinfer::test {

namespace {

constexpr int kFiller = 3, kQuestion = 4, kDigit = 10, kVocab = 32, kWindow = 64;

/// Keys of digits and queries of questions lie in one direction, so their product is cos(distance / kRate), times 20.
Model passkey_model() {
    constexpr int E = 32, kIsDigit = 0, kIsQuestion = 1, kWhich = 2, kIsFiller = 12, kAnswer = 16;
    constexpr float kRate = kWindow / 1.2f;
    const auto zeros = [] { return std::vector<float>(E * E); };
    const auto at = [](std::vector<float>& m, int row, int column) -> float& {
        return m[static_cast<std::size_t>(row * E + column)];
    };
    GgufWriter w;
    w.kv("general.architecture", "llama").kv("tokenizer.ggml.model", "no_vocab");
    w.kv("llama.block_count", 1u).kv("llama.embedding_length", 32u).kv("llama.context_length", std::uint32_t{kWindow});
    w.kv("llama.feed_forward_length", 32u).kv("llama.attention.head_count", 1u).kv("llama.vocab_size", 32u);
    w.kv("llama.attention.head_count_kv", 1u).kv("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    w.kv("llama.rope.freq_base", 1.0f).kv("llama.rope.scaling.type", "linear");
    w.kv("llama.rope.scaling.factor", kRate);
    auto embd = zeros(), head = zeros(), q = zeros(), k = zeros(), v = zeros(), out = zeros();
    at(embd, kFiller, kIsFiller) = at(embd, kQuestion, kIsQuestion) = 1;
    at(head, kFiller, kIsFiller) = 3;  // behind filling comes filling
    at(head, kFiller, kIsQuestion) = 1;
    at(q, 0, kIsQuestion) = at(k, 0, kIsDigit) = 2.236f;
    for (int d = 0; d < 10; ++d) {
        at(embd, kDigit + d, kIsDigit) = at(embd, kDigit + d, kWhich + d) = 1;
        at(v, d, kWhich + d) = 1;
        at(out, kAnswer + d, d) = 1;
        at(head, kDigit + d, kAnswer + d) = 1;
    }
    const std::vector<float> ones(E, 1.0f);
    w.tensor("token_embd.weight", DType::f32, {E, kVocab}, embd);
    w.tensor("blk.0.attn_norm.weight", DType::f32, {E}, ones);
    w.tensor("blk.0.attn_q.weight", DType::f32, {E, E}, q).tensor("blk.0.attn_k.weight", DType::f32, {E, E}, k);
    w.tensor("blk.0.attn_v.weight", DType::f32, {E, E}, v).tensor("blk.0.attn_output.weight", DType::f32, {E, E}, out);
    w.tensor("blk.0.ffn_norm.weight", DType::f32, {E}, ones);
    for (const char* name : {"blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight"})
        w.tensor(name, DType::f32, {E, E}, zeros());
    w.tensor("output_norm.weight", DType::f32, {E}, ones).tensor("output.weight", DType::f32, {E, kVocab}, head);
    const TempFolder folder;
    w.save(folder / "passkey.gguf");
    return Model::load(folder / "passkey.gguf");
}

/// n tokens of filling with a digit at `at`, and a question behind them: what is the next token?
int answer(const Model& model, int n, int at, int digit, GenerationOptions options) {
    static const Vocab vocab = letters_vocab(kVocab);
    std::vector<Token> text(static_cast<std::size_t>(n), Token{kFiller});
    text[static_cast<std::size_t>(at)] = Token{kDigit + digit};
    text.push_back(Token{kQuestion});
    Context context(model, {.n_ctx = 256, .n_threads = 1});
    Sampler sampler(vocab, {.temp = 0});
    options.n_predict = 1;
    Generation generation(vocab, text, options);
    (void)generation.run(context, sampler);
    return generation.tokens().empty() ? -1 : static_cast<int>(generation.tokens()[0]) - kDigit;
}

}  // namespace

TEST_CASE("[M9] self-extend: a pass-key far beyond the trained window is found with it and not without") {
    const Model model = passkey_model();
    for (const int digit : {0, 7}) {
        CAPTURE(digit);
        for (const int n : {90, 240}) {
            CAPTURE(n);
            CHECK(answer(model, n, n - 50, digit, {}) == digit);  // in the window, anywhere in a text
            CHECK(answer(model, n, 1, digit, {}) != digit);
            for (const SelfExtend& extend : {SelfExtend{8, 16}, SelfExtend{8, 8}})
                for (const int at : {1, 5, n / 2, n - 20, n - 2}) {
                    CAPTURE(extend.group);
                    CAPTURE(at);
                    CHECK(answer(model, n, at, digit, {.extend = extend}) == digit);
                    CHECK(answer(model, n, at, digit, {.prompt_piece = 13, .extend = extend}) == digit);
                }
        }
    }
}

TEST_CASE("[M9] self-extend: positions are those of the formula, however a prompt is cut") {
    const Fixture tiny;
    const Vocab vocab = letters_vocab(128);
    for (const int piece : {0, 1, 5, 64}) {
        CAPTURE(piece);
        GenerationOptions options{.n_predict = 20, .prompt_piece = piece, .extend = SelfExtend{4, 16}};
        Context context(tiny.model, {.n_ctx = 256});
        Sampler sampler(vocab, {.temp = 0});
        Generation generation(vocab, random_tokens(70, 128, 5), options);
        CHECK(generation.run(context, sampler) == StopReason::limit);
        // 89 tokens: six groups of 16 would need 97 + …; each group of 16 at its end loses 12 positions.
        int end = 0, begin = 0;
        for (int i = 0; i < 89; ++i) {
            while (end >= begin + 16) {
                end -= 12;
                begin += 4;
            }
            ++end;
        }
        CHECK(context.seq_pos_max(SeqId{0}) == Pos{end - 1});
        CHECK(context.count(SeqId{0}) == 89);
    }
}

TEST_CASE("[M9] self-extend: guesses change nothing about it; what cannot be divided is refused") {
    const Fixture tiny;
    const Vocab vocab = letters_vocab(128);
    const auto prompt = random_tokens(70, 128, 5);
    const Chooser chooser{"seeded", {.temp = 0.9f, .seed = 7}};
    const GenerationOptions options{.n_predict = 60, .extend = SelfExtend{4, 16}};
    const Outcome plain = generate(tiny.model, vocab, prompt, chooser, {}, {.n_ctx = 256}, options);
    const auto right = [&](std::size_t i) { return i < plain.tokens.size() ? plain.tokens[i] : Token{0}; };
    const SpeculationOptions guesses{.drafter = std::make_shared<Scripted>(70, right), .adapt = false};
    const Outcome outcome =
        generate(tiny.model, vocab, prompt, chooser, guesses, {.n_ctx = 256, .n_outputs = 16}, options);
    check_same_outcome(outcome, plain);
    CHECK(outcome.timings.accepted_n > 30);

    const Model windowed = windowed_model(10);
    Sampler sampler(vocab, {.temp = 0});
    Context ring(windowed, {.n_ctx = 256}), full(windowed, {.n_ctx = 256, .swa_full = true});
    CHECK(code_of([&] { (void)Generation(vocab, prompt, options).run(ring, sampler); }) ==
          ErrorCode::unsupported_operation);
    CHECK(Generation(vocab, prompt, options).run(full, sampler) == StopReason::limit);
    for (const SelfExtend& extend : {SelfExtend{0, 8}, SelfExtend{3, 8}, SelfExtend{4, 0}})
        CHECK(code_of([&] { Generation(vocab, prompt, {.extend = extend}); }) == ErrorCode::bad_parameter);
    CHECK(code_of([&] {
              Generation(vocab, prompt, {.shift = ContextShift{}, .extend = SelfExtend{2, 8}});
          }) == ErrorCode::bad_parameter);
}

TEST_CASE("[M8] context shift: a generation of three windows ends by its limit, and attends to the kept prefix") {
    const Model model = passkey_model();
    const Vocab vocab = letters_vocab(kVocab);
    for (const auto& [keep, is_found] : {std::pair{2, true}, {-1, true}, {1, false}}) {
        CAPTURE(keep);
        Context context(model, {.n_ctx = kWindow});
        Sampler sampler(vocab, {.temp = 0});
        Generation generation(vocab, {Token{kFiller}, Token{kDigit + 7}, Token{kFiller}},
                              {.n_predict = 3 * kWindow, .shift = ContextShift{.keep = keep}});
        CHECK(generation.run(context, sampler) == StopReason::limit);
        CHECK(generation.tokens().size() == 3 * kWindow);
        CHECK(generation.shifts().n >= 4);
        CHECK(generation.shifts().keep == static_cast<std::size_t>(keep == -1 ? 3 : keep));
        CHECK(generation.shifts().dropped + static_cast<std::size_t>(context.count(SeqId{0})) == 3 + 3 * kWindow - 1);
        const std::vector<Token> question{Token{kQuestion}};
        generation.prompt(question);
        while (generation.tokens().empty()) REQUIRE(generation.next(context, sampler));
        CHECK((generation.tokens()[0] == Token{kDigit + 7}) == is_found);
    }
}

TEST_CASE("[M8] context shift: the rows are those of removing and moving by hand; without it a full context ends it") {
    const Vocab vocab = letters_vocab(128);
    const Fixture tiny;
    const Model windowed = windowed_model(10);
    for (const Model* model : {&tiny.model, &windowed}) {
        const auto prompt = random_tokens(20, 128, 5);
        Context context(*model, {.n_ctx = 64}), by_hand(*model, {.n_ctx = 64});
        const SamplerOptions never_ends{
            .logit_bias = {{Token{2}, -std::numeric_limits<float>::infinity()}}, .temp = 0.9f, .seed = 3};
        Sampler sampler(vocab, never_ends), other(vocab, never_ends);
        Generation generation(vocab, prompt, {.n_predict = 192, .shift = ContextShift{.keep = 4, .discard = 7}});
        CHECK(generation.run(context, sampler) == StopReason::limit);
        std::vector<Token> next = prompt, tokens;
        while (tokens.size() < 192) {
            if (by_hand.room(SeqId{0}) == 0) {
                REQUIRE(by_hand.seq_rm(SeqId{0}, Pos{4}, Pos{11}) == RemoveStatus::ok);
                by_hand.seq_add(SeqId{0}, {Pos{11}}, -7);
            }
            REQUIRE(by_hand.decode(next) == DecodeStatus::ok);
            tokens.push_back(other.sample(by_hand));
            next = {tokens.back()};
        }
        CHECK(std::ranges::equal(generation.tokens(), tokens));
        CHECK(bits_of(context.logits()) == bits_of(by_hand.logits()));

        Context full(*model, {.n_ctx = 64});
        Generation without(vocab, prompt);
        CHECK(without.run(full, sampler) == StopReason::context);
        CHECK(without.tokens().size() == 64 - 20 + 1);
    }
}

TEST_CASE("[M8] context shift: with guesses the tokens and rows are the same") {
    const Fixture tiny;
    const Vocab vocab = letters_vocab(128);
    const auto prompt = random_tokens(20, 128, 5);
    const GenerationOptions options{.n_predict = 192, .shift = ContextShift{.keep = 3}};
    for (const Chooser& chooser : choosers()) {
        if (!chooser.grammar.empty()) continue;
        CAPTURE(chooser.name);
        const Outcome plain = generate(tiny.model, vocab, prompt, chooser, {}, {.n_ctx = 64}, options);
        const auto right = [&](std::size_t i) {
            return i % 5 != 4 && i < plain.tokens.size() ? plain.tokens[i] : Token{0};
        };
        const SpeculationOptions guesses{.drafter = std::make_shared<Scripted>(20, right), .adapt = false};
        check_same_outcome(
            generate(tiny.model, vocab, prompt, chooser, guesses, {.n_ctx = 64, .n_outputs = 16}, options), plain);
    }
}

TEST_CASE("[M8] context shift: prompts find room where they can, and where they cannot nothing is dropped") {
    const Fixture tiny;
    const Vocab vocab = letters_vocab(128);
    Sampler sampler(vocab, {.temp = 0});
    Context context(tiny.model, {.n_ctx = 64});
    Generation generation(vocab, random_tokens(40, 128, 5), {.n_predict = 4, .shift = ContextShift{.keep = 8}});
    CHECK(generation.run(context, sampler) == StopReason::limit);
    generation.prompt(random_tokens(40, 128, 6));
    CHECK(generation.run(context, sampler) == StopReason::limit);
    CHECK(generation.shifts().n > 0);
    const int n = context.count(SeqId{0});
    generation.prompt(random_tokens(60, 128, 7));
    CHECK(generation.run(context, sampler) == StopReason::context);
    CHECK(context.count(SeqId{0}) == n);
    // The first prompt may be longer than the context from the start.
    Context other(tiny.model, {.n_ctx = 64});
    Generation too_long(vocab, random_tokens(65, 128, 7), {.shift = ContextShift{}});
    CHECK(too_long.run(other, sampler) == StopReason::context);
    CHECK(too_long.tokens().empty());
    CHECK(code_of([&] { Generation(vocab, {}, {.shift = ContextShift{.keep = -2}}); }) == ErrorCode::bad_parameter);
    CHECK(code_of([&] { Generation(vocab, {}, {.shift = ContextShift{.discard = -1}}); }) == ErrorCode::bad_parameter);
}

TEST_CASE("[M8] context shift and self-extend: where a token that would move is shared, nothing changes") {
    const Fixture tiny;
    const Vocab vocab = letters_vocab(128);
    Sampler sampler(vocab, {.temp = 0});
    Context context(tiny.model, {.n_ctx = 64, .n_seq_max = 2});
    Generation generation(vocab, random_tokens(40, 128, 5), {.n_predict = 100, .shift = ContextShift{.keep = 4}});
    REQUIRE(generation.next(context, sampler).has_value());
    context.seq_cp(SeqId{0}, SeqId{1});
    CHECK(code_of([&] { (void)generation.run(context, sampler); }) == ErrorCode::shared_cell);
    CHECK(context.room(SeqId{0}) == 0);
    CHECK(context.count(SeqId{0}) == 64);
    CHECK(context.seq_pos_max(SeqId{0}) == Pos{63});
    CHECK(generation.shifts().n == 0);
    CHECK(context.seq_rm(SeqId{1}) == RemoveStatus::ok);
    (void)generation.run(context, sampler);  // goes on once nobody shares it
    CHECK(generation.shifts().n > 0);

    Context extended(tiny.model, {.n_ctx = 128, .n_seq_max = 2});
    REQUIRE(extended.decode(random_tokens(24, 128, 6)) == DecodeStatus::ok);
    extended.seq_cp(SeqId{0}, SeqId{1}, Pos{16}, Pos{24});
    Generation grouped(vocab, random_tokens(1, 128, 7), {.n_predict = 4, .extend = SelfExtend{2, 8}});
    CHECK(code_of([&] { (void)grouped.run(extended, sampler); }) == ErrorCode::shared_cell);
    CHECK(extended.count(SeqId{0}) == 24);
    CHECK(extended.seq_rm(SeqId{0}, Pos{0}, Pos{4}) ==
          RemoveStatus::ok);  // four tokens, and not the eight of two groups
    CHECK(extended.count(SeqId{0}) == 20);
}

}  // namespace tinfer::test
