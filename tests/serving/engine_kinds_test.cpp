// SPDX-License-Identifier: MIT
// Vectors of texts and scores of rerankers from an engine: those of a context of one's own, bit for bit.
#include "serving/serving_support.hpp"
#include "support/code_of.hpp"
#include "support/golden.hpp"
#include "support/temp_folder.hpp"

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

TEST_CASE("[golden] engine: models that it cannot serve are refused by name") {
    if (const auto file = golden_model_file("t5"))
        CHECK(code_of([&] { Engine(Model::load(*file)); }) == ErrorCode::unsupported_operation);
    if (const auto file = golden_model_file("llada"))
        CHECK(code_of([&] { Engine(Model::load(*file)); }) == ErrorCode::unsupported_operation);
}
