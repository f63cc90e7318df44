// SPDX-License-Identifier: MIT
// Vectors per sequence and calls without causality: texts beside each other equal each alone, cuts change nothing,
// nothing of a bidirectional call is remembered, and every misuse is told by name.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <functional>
#include <numeric>

#include "support/golden.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

constexpr std::array kKinds{Pooling::mean, Pooling::cls, Pooling::last};

Model tiny(
    const std::string& arch, const std::function<void(GgufWriter&)>& change = [](GgufWriter&) {}) {
    const TempFolder folder;
    GgufWriter w = TinyModel::of(arch).writer();
    change(w);
    w.save(folder.path() / "tiny.gguf");
    return Model::load(folder.path() / "tiny.gguf");
}

std::vector<std::vector<Token>> texts(const Model& model) {
    std::vector<std::vector<Token>> out;
    for (const int n : {17, 1, 40, 6, 33})
        out.push_back(random_tokens(n, model.info().n_vocab, static_cast<std::uint64_t>(n)));
    return out;
}

using Bits = std::vector<std::vector<std::uint32_t>>;

// All texts in one call, one sequence each, their tokens one text after the other or in turns.
Bits together(const Model& model, const std::vector<std::vector<Token>>& all, ContextOptions options, bool in_turns) {
    options.n_ctx = 128;
    options.n_seq_max = 8;
    Context context(model, options);
    Batch batch;
    std::size_t longest = 0;
    for (const auto& text : all) longest = std::max(longest, text.size());
    const auto add = [&](std::size_t s, std::size_t i) {
        if (i < all[s].size()) batch.add(all[s][i], Pos{static_cast<int>(i)}, SeqId{static_cast<int>(s)}, false);
    };
    if (in_turns)
        for (std::size_t i = 0; i < longest; ++i)
            for (std::size_t s = 0; s < all.size(); ++s) add(s, i);
    else
        for (std::size_t s = 0; s < all.size(); ++s)
            for (std::size_t i = 0; i < all[s].size(); ++i) add(s, i);
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    Bits out;
    for (std::size_t s = 0; s < all.size(); ++s) out.push_back(bits_of(context.pooled(SeqId{static_cast<int>(s)})));
    return out;
}

Bits alone(const Model& model, const std::vector<std::vector<Token>>& all, ContextOptions options) {
    options.n_ctx = 128;
    Context context(model, options);
    Bits out;
    for (const auto& text : all) {
        context.clear();
        REQUIRE(context.decode(text) == DecodeStatus::ok);
        out.push_back(bits_of(context.pooled()));
    }
    return out;
}

void check_neighbours(const Model& model) {
    const auto all = texts(model);
    for (const Pooling pooling : kKinds) {
        CAPTURE(to_string(pooling));
        const Bits expected = alone(model, all, {.pooling = pooling});
        for (const Isa isa : available_isas())
            for (const bool in_turns : {false, true})
                CHECK(together(model, all, {.n_threads = 2, .isa = isa, .pooling = pooling}, in_turns) == expected);
        if (!model.info().causal) continue;
        for (const int n_ubatch : {1, 7, 64})  // sums go on from one micro-batch to the next
            CHECK(together(model, all, {.n_ubatch = n_ubatch, .fuse = n_ubatch != 7, .pooling = pooling},
                           n_ubatch != 64) == expected);
    }
}

std::string refusal(const std::function<void()>& what, ErrorCode code) {
    try {
        what();
    } catch (const Error& error) {
        CHECK(error.code() == code);
        return error.what();
    }
    return "nothing was refused";
}

bool says(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("pooling: several texts in one call equal each alone, bit for bit, for decoders however they are cut") {
    check_neighbours(tiny("qwen3"));
    check_neighbours(
        tiny("qwen2", [](GgufWriter& w) { w.kv("qwen2.attention.causal", false).kv("qwen2.pooling_type", 1u); }));
}

TEST_CASE("[golden] pooling: several texts in one call equal each alone for every encoder") {
    if (skip_without_golden()) return;
    for (const GoldenModel& golden : golden_models()) {
        if (!golden.encoder) continue;
        CAPTURE(golden.name);
        check_neighbours(Model::load(golden.file));
    }
}

TEST_CASE("[E3][B11] pooling: the mean is the mean of the rows, first and last are rows") {
    const Model model = tiny("qwen3");
    const auto tokens = random_tokens(29, 128, 3);
    Context rows(model,
                 {.n_ctx = 64, .n_outputs = 64, .embeddings = true, .pooling = Pooling::none, .logits_all = true});
    REQUIRE(rows.decode(tokens) == DecodeStatus::ok);
    REQUIRE(rows.n_outputs() == 29);
    std::vector<float> sum(64, 0.0f);
    for (int t = 0; t < 29; ++t)
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += rows.embedding(t)[i];
    for (float& value : sum) value /= 29.0f;
    const auto pooled = [&](Pooling pooling) {
        Context context(model, {.n_ctx = 64, .n_ubatch = 10, .pooling = pooling});
        REQUIRE(context.decode(tokens) == DecodeStatus::ok);
        CHECK(context.n_outputs() == 0);
        return bits_of(context.pooled());
    };
    CHECK(pooled(Pooling::mean) == bits_of(sum));
    CHECK(pooled(Pooling::cls) == bits_of(rows.embedding(0)));
    CHECK(pooled(Pooling::last) == bits_of(rows.embedding(-1)));
    CHECK(rows.logits(-1).size() == 128);  // both, where nothing is pooled
}

TEST_CASE("[E3] pooling: the kind comes from the file, and an option overrides it") {
    for (const std::uint32_t type : {0u, 1u, 2u, 3u}) {
        const Model model = tiny("qwen3", [&](GgufWriter& w) { w.kv("qwen3.pooling_type", type); });
        constexpr std::array expected{Pooling::none, Pooling::mean, Pooling::cls, Pooling::last};
        CHECK(model.info().pooling == expected[type]);
        const Context plain(model, {.n_ctx = 64}), embedding(model, {.n_ctx = 64, .embeddings = true});
        CHECK(plain.options().pooling == Pooling::none);  // nobody asked for embeddings
        CHECK(embedding.options().pooling == expected[type]);
        const Context chosen(model, {.n_ctx = 64, .pooling = Pooling::last});
        CHECK(chosen.options().pooling == Pooling::last);
        CHECK(chosen.options().embeddings);
        CHECK(chosen.memory().outputs == plan(model, {.n_ctx = 64, .pooling = Pooling::last}).outputs);
    }
}

TEST_CASE("pooling: a reranker's scores are a softmax over its classes from the last token") {
    const Model model = tiny("qwen3", [](GgufWriter& w) {
        std::vector<float> rows(2 * 64);
        for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = std::sin(static_cast<float>(i));
        w.tensor("cls.output.weight", DType::f32, {64, 2}, rows).kv("qwen3.pooling_type", 4u);
    });
    CHECK(model.info().n_class == 2);
    const auto tokens = random_tokens(20, 128, 8);
    Context last(model, {.n_ctx = 64, .pooling = Pooling::last}),
        rank(model, {.n_ctx = 64, .n_ubatch = 6, .embeddings = true});
    REQUIRE(last.decode(tokens) == DecodeStatus::ok);
    REQUIRE(rank.decode(tokens) == DecodeStatus::ok);
    double z[2] = {0, 0};
    for (std::size_t i = 0; i < 128; ++i)
        z[i / 64] += static_cast<double>(last.pooled()[i % 64]) * std::sin(static_cast<double>(static_cast<float>(i)));
    REQUIRE(rank.pooled().size() == 2);
    CHECK(std::abs(rank.pooled()[0] - 1.0 / (1.0 + std::exp(z[1] - z[0]))) < 1e-5);
    CHECK(std::abs(rank.pooled()[0] + rank.pooled()[1] - 1.0f) < 1e-6f);
}

TEST_CASE("a bidirectional call sees all of its tokens and leaves nothing behind") {
    const Model model = tiny("llama", [](GgufWriter& w) { w.kv("llama.attention.causal", false); });
    Context context(model, {.n_ctx = 64, .logits_all = true});
    CHECK(context.options().attention == AttentionKind::bidirectional);
    auto tokens = random_tokens(20, 128, 9);
    REQUIRE(context.encode(tokens) == DecodeStatus::ok);
    const auto first = bits_of(context.result("result_output"));
    CHECK(context.used() == 0);
    CHECK_FALSE(context.seq_pos_max(SeqId{0}).has_value());
    REQUIRE(context.decode(tokens) == DecodeStatus::ok);  // the same again: no history
    CHECK(bits_of(context.result("result_output")) == first);
    tokens.back() = Token{static_cast<int>(tokens.back()) ^ 1};
    REQUIRE(context.encode(tokens) == DecodeStatus::ok);
    CHECK(bits_of(std::span(context.result("result_output")).first(128)) !=
          std::vector(first.begin(), first.begin() + 128));  // the first sees the last

    Context causal(model, {.n_ctx = 64, .attention = AttentionKind::causal});  // it has a head: both ways work
    REQUIRE(causal.decode(tokens) == DecodeStatus::ok);
    CHECK(causal.used() == 20);
}

TEST_CASE("pooling and bidirectional calls: misuse is refused by name") {
    const Model model = tiny("qwen3");
    const auto tokens = random_tokens(20, 128, 9);
    Context causal(model, {.n_ctx = 64});
    CHECK(says(refusal([&] { (void)causal.encode(tokens); }, ErrorCode::unsupported_operation), "attention is causal"));
    CHECK(says(refusal([&] { (void)causal.pooled(); }, ErrorCode::no_output), "does not pool"));
    CHECK(says(
        refusal([&] { Context context(model, {.n_ctx = 64, .pooling = Pooling::rank}); }, ErrorCode::bad_parameter),
        "no classifier"));

    Context both(model, {.n_ctx = 64,
                         .n_seq_max = 2,
                         .n_ubatch = 16,
                         .pooling = Pooling::mean,
                         .attention = AttentionKind::bidirectional});
    CHECK(says(refusal([&] { (void)both.decode(tokens); }, ErrorCode::invalid_batch),
               "non-causal attention needs n_ubatch >= 20"));
    Batch coupled;
    coupled.add(Token{1}, Pos{0}, std::array{SeqId{0}, SeqId{1}}, false);
    CHECK(says(refusal([&] { (void)both.decode(coupled); }, ErrorCode::invalid_batch), "one sequence per token"));
    REQUIRE(both.decode(std::span(tokens).first(16)) == DecodeStatus::ok);
    CHECK(both.pooled(SeqId{0}).size() == 64);
    CHECK(says(refusal([&] { (void)both.pooled(SeqId{1}); }, ErrorCode::no_output), "sequence 1 had no tokens"));
    CHECK(says(refusal([&] { (void)both.pooled(SeqId{2}); }, ErrorCode::bad_sequence), "outside 0..1"));
    CHECK(says(refusal([&] { (void)both.logits(); }, ErrorCode::no_output), "pooling is on"));

    Context cls(model, {.n_ctx = 64, .pooling = Pooling::cls});
    REQUIRE(cls.decode(std::span(tokens).first(3)) == DecodeStatus::ok);
    CHECK(says(refusal([&] { (void)cls.decode(std::span(tokens).subspan(3)); }, ErrorCode::invalid_batch),
               "cls pooling: first token of sequence 0 not in batch"));
}

TEST_CASE("normalize: p-norms, the largest value, nothing at all, and zeros") {
    const auto normalized = [](std::vector<float> x, double p) {
        normalize(x, p);
        return x;
    };
    CHECK(normalized({3, -4}, 2) == std::vector{0.6f, -0.8f});
    CHECK(normalized({3, -4}, 1) == std::vector{3.0f / 7, -4.0f / 7});
    CHECK(normalized({3, -4}, 0) == std::vector{24570.0f, -32760.0f});
    CHECK(normalized({3, -4}, -1) == std::vector{3.0f, -4.0f});
    CHECK(normalized({0, 0}, 2) == std::vector{0.0f, 0.0f});
    CHECK(normalized({3e30f, -4e30f}, 2)[1] == doctest::Approx(-0.8));  // no square overflows
    const auto cubic = normalized({1, 2}, 3);
    CHECK(cubic[1] / cubic[0] == doctest::Approx(2.0));
    CHECK(cubic[1] == doctest::Approx(2.0 / std::cbrt(9.0)));
    CHECK(says(refusal([&] { (void)normalized({1}, 0.5); }, ErrorCode::bad_parameter), "0.5"));
}
