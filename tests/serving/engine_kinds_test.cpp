// SPDX-License-Identifier: MIT
// Vectors of texts and scores of rerankers from an engine: those of a context of one's own, bit for bit.
#include "serving/serving_support.hpp"
#include "support/code_of.hpp"
#include "support/golden.hpp"
#include "support/t5_model.hpp"
#include "support/temp_folder.hpp"
#include "tokenizer/vocab_support.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

std::vector<float> plain_vector(const Model& model, ContextOptions options, std::span<const Token> tokens) {
    options.n_seq_max = 1;
    Context context(model, std::move(options));
    Batch batch;
    batch.add_sequence(tokens, SeqId{0});
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    const auto vector = context.pooled();
    return {vector.begin(), vector.end()};
}

void check_vectors(const Model& model, Pooling pooling, int most) {
    const EngineOptions options{.context = {.n_ctx = 256, .n_seq_max = 4, .pooling = pooling}, .max_queue = 100};
    Engine engine(model, options);
    Answers answers;
    std::vector<std::vector<Token>> texts;
    for (int i = 0; i < 20; ++i) texts.push_back(random_tokens(3 + i * 7 % most, 90, static_cast<std::uint64_t>(i)));
    for (std::size_t i = 0; i < texts.size(); ++i)
        engine.submit({.kind = EngineRequest::Kind::embed, .prompt = texts[i]}, answers.sink(i));
    answers.wait();
    for (std::size_t i = 0; i < texts.size(); ++i) {
        CHECK(answers[i].stop == StopReason::limit);
        CHECK(bits_of(answers[i].vector) == bits_of(plain_vector(model, options.context, texts[i])));
    }
    CHECK(engine.stats().rounds < texts.size());  // several texts a call
    CHECK(code_of([&] { engine.submit({.prompt = texts[0]}, {}); }) == ErrorCode::unsupported_operation);
    CHECK(code_of([&] { engine.submit({.kind = EngineRequest::Kind::rank, .prompt = texts[0]}, {}); }) ==
          ErrorCode::unsupported_operation);
}

}  // namespace

TEST_CASE("engine: vectors of texts are those of a context, with decoders") {
    for (const char* arch : {"llama", "qwen2moe"}) {
        CAPTURE(arch);
        const TempFolder folder;
        const auto model = Model::load(TinyModel::of(arch).save(folder.path()));
        for (const Pooling pooling : {Pooling::mean, Pooling::last}) check_vectors(model, pooling, 90);
    }
}

TEST_CASE("[golden] engine: vectors of texts are those of a context, with encoders") {
    for (const char* name : {"bert", "gemma-embedding", "eurobert"}) {
        const auto file = golden_model_file(name);
        if (!file) continue;
        CAPTURE(name);
        check_vectors(Model::load(*file), Pooling::mean, 40);
    }
}

TEST_CASE("engine: a model with an encoder in front of its decoder is refused by name") {
    const TempFolder folder;
    const auto path = folder / "t5.gguf";
    SmallT5({}).file.save(path);
    CHECK(code_of([&] { Engine(Model::load(path)); }) == ErrorCode::unsupported_operation);
}

TEST_CASE("[golden] engine: a model that fills masked places is refused by name") {
    if (skip_without_golden()) return;
    if (const auto file = golden_model_file("llada"))
        CHECK(code_of([&] { Engine(Model::load(*file)); }) == ErrorCode::unsupported_operation);
}

TEST_CASE("rows of logits beyond the vocabulary are none of the most probable tokens, of answers and of comparisons") {
    const TempFolder folder;
    const GgufWriter text = small_bpe();
    text.save(folder / "vocab.gguf");
    const std::size_t n_tokens = Vocab::load(folder / "vocab.gguf").size();
    TinyModel tiny = TinyModel::of("llama");
    tiny.n_vocab = static_cast<int>(n_tokens) + 100;
    GgufWriter writer = tiny.writer();
    writer.take(text)
        .set("general.architecture", GgufValue{tiny.arch})
        .set("llama.vocab_size", GgufValue{static_cast<std::uint32_t>(tiny.n_vocab)});
    writer.save(folder / "padded.gguf");
    const auto model = Model::load(folder / "padded.gguf");
    const auto id_of = [](Token token) { return static_cast<std::size_t>(token); };

    EngineRequest request{.prompt = random_tokens(8, 90, 1), .sampler = {.temp = 0}, .generation = {.n_predict = 8}};
    request.n_top = 100;
    request.score_prompt = true;
    request.receipt = TINFER_TRACE != 0;
    const EngineOptions options{.context = {.n_ctx = 64, .n_seq_max = 1}};
    Engine engine(model, options);
    const EngineEvent answer = engine.ask(request);
    REQUIRE(answer.prompt.size() == 8);
    for (const auto* choices : {&answer.prompt, &answer.tokens})
        for (const TokenChoice& choice : *choices)
            for (const auto& [token, log_prob] : choice.top) CHECK(id_of(token) < n_tokens);
    CHECK(answer.prompt[1].top.size() == 100);

    Context alone(model, {.n_ctx = 64});
    const ScoreText text_to_score{.prompt = {}, .text = request.prompt};
    for (const Score& scored : score(alone, std::span(&text_to_score, 1), {.n_top = 100}))
        for (const TokenScore& token : scored.tokens)
            for (const auto& [other, log_prob] : token.top) CHECK(id_of(other) < n_tokens);

    if (!request.receipt) return;
    REQUIRE(answer.receipt != nullptr);
    Context a(model, answer.receipt->context_options()), b(model, answer.receipt->context_options());
    for (const ComparedToken& token : compare(*answer.receipt, a, b, 100).tokens) {
        CHECK(token.a.rank == 1);  // the best of the vocabulary
        for (const auto& [other, p] : token.a.top) CHECK(id_of(other) < n_tokens);
    }
}
