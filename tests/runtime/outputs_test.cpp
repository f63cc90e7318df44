// SPDX-License-Identifier: MIT
// What can be read after a decode, and that nothing can where it did not succeed: no vector of the one before, no empty
// span. Values that are not finite are errors that name them.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>

#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

ErrorCode thrown_by(const std::function<void()>& fn, std::string_view text = {}) {
    try {
        fn();
    } catch (const Error& error) {
        CHECK_MESSAGE(std::string_view(error.what()).find(text) != std::string_view::npos, error.what());
        return error.code();
    }
    FAIL("nothing was thrown");
    return ErrorCode::io_error;
}

Model tiny(const std::function<void(GgufWriter&)>& change = [](GgufWriter&) {}) {
    const TempFolder folder;
    GgufWriter writer = TinyModel{}.writer();
    change(writer);
    writer.save(folder / "tiny.gguf");
    return Model::load(folder / "tiny.gguf");
}

struct Throws : Observer {
    bool now = false;
    void on_run_begin(const RunInfo&) override {
        if (now) throw std::runtime_error("boom");
    }
};

/// Every reader of a context refuses.
void check_nothing_to_read(const Context& context) {
    CHECK(context.n_outputs() == 0);
    CHECK(thrown_by([&] { (void)context.result("attn_out-0"); }) == ErrorCode::no_output);
    CHECK(thrown_by([&] { (void)context.result("result_output"); }) == ErrorCode::no_output);
    CHECK(thrown_by([&] { (void)context.result("result_norm"); }) == ErrorCode::no_output);
    CHECK(thrown_by([&] { (void)context.logits(); }) == ErrorCode::no_output);
    CHECK(thrown_by([&] { (void)context.embedding(); }) == ErrorCode::no_output);
    CHECK(thrown_by([&] { (void)context.pooled(); }) == ErrorCode::no_output);
    CHECK(thrown_by([&] { (void)context.output_index(0); }) == ErrorCode::no_output);
}

/// After each way a decode can fail, and after clear(), and while a slice is pending, there is nothing; after a decode
/// there is.
void check_validity(ContextOptions options, const std::function<void(const Context&)>& read) {
    const auto model = tiny();
    bool cancels = false;
    options.n_ctx = 64;
    options.n_ubatch = 8;
    options.n_seq_max = 2;
    options.keep = {"attn_out-0"};
    options.cancel = [&] { return cancels; };
    Context context(model, options);
    const auto observer = std::make_shared<Throws>();
    const auto attached = context.attach(observer);
    const auto tokens = random_tokens(20, 128, 5);
    const auto reset = [&] {
        context.clear();
        REQUIRE(context.decode(tokens) == DecodeStatus::ok);
        read(context);
    };
    check_nothing_to_read(context);
    reset();
    CHECK(thrown_by([&] { (void)context.decode({Token{999}}); }) == ErrorCode::invalid_batch);
    check_nothing_to_read(context);
    reset();
    Batch second;  // of another sequence: that of the last decode must not be taken for it
    second.add(Token{1}, Pos{3}, SeqId{1}, true);
    second.add(Token{1}, Pos{9}, SeqId{1}, true);
    CHECK(thrown_by([&] { (void)context.decode(second); }) == ErrorCode::invalid_batch);
    check_nothing_to_read(context);
    reset();
    if (!options.logits_all) {  // else it asks for more outputs than there are
        CHECK(context.decode(random_tokens(60, 128, 6)) == DecodeStatus::no_room);
        check_nothing_to_read(context);
        reset();
    }
    cancels = true;
    CHECK(context.decode(tokens) == DecodeStatus::cancelled);
    check_nothing_to_read(context);
    cancels = false;
    reset();
    observer->now = true;
    CHECK(thrown_by([&] { (void)context.decode(tokens); }) == ErrorCode::compute_failed);
    check_nothing_to_read(context);
    observer->now = false;
    reset();
    context.begin(tokens);
    check_nothing_to_read(context);
    for (StepStatus status = StepStatus::pending; status == StepStatus::pending; check_nothing_to_read(context)) {
        status = context.step(std::chrono::nanoseconds(0));
        if (status == StepStatus::ok) break;
    }
    read(context);
    reset();
    context.begin(tokens);
    REQUIRE(context.step(std::chrono::nanoseconds(0)) == StepStatus::pending);
    context.abandon();
    check_nothing_to_read(context);
    reset();
    context.clear();
    check_nothing_to_read(context);
}

float nan_at(GgufWriter& writer, std::string_view name, std::size_t i) {
    auto& data = writer.tensor(name).data;
    const float bad = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(data.data() + i * sizeof(float), &bad, sizeof(float));
    return bad;
}

}  // namespace

TEST_CASE("outputs: logits, embeddings and kept values are those of the last decode or not there") {
    check_validity({.n_outputs = 20, .embeddings = true, .pooling = Pooling::none, .logits_all = true},
                   [](const Context& context) {
                       CHECK(context.n_outputs() == 20);
                       CHECK(context.logits(0).size() == 128);
                       CHECK(context.embedding(19).size() == 64);
                       CHECK(context.result("attn_out-0").size() == 20 * 64);
                       CHECK(context.result("result_output").size() == 20 * 128);
                       CHECK(context.result("result_norm").size() == 20 * 64);
                       CHECK(context.output_index(3) == 3);
                   });
}

TEST_CASE("outputs: vectors of sequences are those of the last decode or not there") {
    for (const Pooling pooling : {Pooling::mean, Pooling::last}) {  // cls needs the first token in every call
        CAPTURE(pooling);
        check_validity({.pooling = pooling}, [](const Context& context) {
            CHECK(context.pooled(SeqId{0}).size() == 64);
            CHECK(thrown_by([&] { (void)context.pooled(SeqId{1}); }, "sequence 1 had no tokens") ==
                  ErrorCode::no_output);
            CHECK(thrown_by([&] { (void)context.result("result_output"); }) == ErrorCode::no_output);
        });
    }
}

TEST_CASE("outputs: a vector with NaN or infinity is an error that names sequence and value, others are given") {
    const auto model = tiny([](GgufWriter& writer) { nan_at(writer, "token_embd.weight", 5 * 64 + 7); });  // of token 5
    for (const Pooling pooling : {Pooling::mean, Pooling::cls, Pooling::last}) {
        Context context(model, {.n_ctx = 64, .n_seq_max = 3, .pooling = pooling});
        Batch batch;
        batch.add_sequence(std::array{Token{1}, Token{2}}, SeqId{0});
        batch.add_sequence(std::array{Token{5}, Token{5}}, SeqId{1});
        batch.add_sequence(std::array{Token{3}}, SeqId{2});
        REQUIRE(context.decode(batch) == DecodeStatus::ok);
        CHECK(std::isfinite(context.pooled(SeqId{0})[0]));
        CHECK(std::isfinite(context.pooled(SeqId{2})[0]));
        CHECK(thrown_by([&] { (void)context.pooled(SeqId{1}); },
                        "vector of sequence 1 (tensor 'result_pooled'): value 0 of 64 is ") == ErrorCode::non_finite);
    }
    Context context(model,
                    {.n_ctx = 64, .n_outputs = 2, .embeddings = true, .pooling = Pooling::none, .logits_all = true});
    REQUIRE(context.decode({Token{1}, Token{5}}) == DecodeStatus::ok);
    CHECK(context.embedding(0).size() == 64);
    CHECK(thrown_by([&] { (void)context.embedding(1); }, "(tensor 'result_norm')") == ErrorCode::non_finite);
    CHECK(std::isnan(context.result("result_norm")[64]));  // raw
    Sampler sampler(model.vocab(), {.temp = 0});
    CHECK(thrown_by([&] { (void)sampler.sample(context); }) == ErrorCode::non_finite_logits);
    CHECK(thrown_by([&] { (void)log_prob(context.logits(), Token{3}); }, "logit of token 0") ==
          ErrorCode::non_finite_logits);
    CHECK(std::isfinite(log_prob(context.logits(0), Token{3})));
}

TEST_CASE("normalize: a value that is not finite is an error, and the vector stays as it is") {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()})
        for (const double p : {0.0, 1.0, 2.0, 3.5}) {
            std::vector<float> x{3.0f, 4.0f, bad};
            CHECK(thrown_by([&] { normalize(x, p); }, "value 2 of 3") == ErrorCode::non_finite);
            CHECK(x[0] == 3.0f);
        }
    std::vector<float> untouched{std::numeric_limits<float>::infinity()};
    CHECK_NOTHROW(normalize(untouched, -1));
}

TEST_CASE("outputs: a kept value of few numbers per token has them all, and no more, however the batch is cut") {
    const test::TempFolder folder;
    test::TinyModel example = test::TinyModel::of("qwen2moe");
    example.n_expert = 6, example.n_expert_used = 3;
    const auto model = Model::load(example.save(folder.path()));
    const auto tokens = random_tokens(61, 128, 5);
    const std::map<std::string, std::size_t> widths{
        {"ffn_moe_logits-0", 6}, {"ffn_moe_weights-0", 3}, {"shexp_gate-0", 1}, {"ffn_moe_gate-0", 0}};
    std::map<std::string, std::vector<std::uint32_t>> whole;
    for (const int n_ubatch : {64, 1, 2, 5, 16}) {
        CAPTURE(n_ubatch);
        ContextOptions options{.n_ctx = 64, .n_ubatch = n_ubatch, .n_threads = 1};
        for (const auto& [name, width] : widths) options.keep.push_back(name);
        Context context(model, options);
        REQUIRE(context.decode(tokens) == DecodeStatus::ok);
        for (const auto& [name, width] : widths) {
            CAPTURE(name);
            const auto bits = test::bits_of(context.result(name));
            if (width > 0) CHECK(bits.size() == width * tokens.size());
            if (n_ubatch == 64) whole[name] = bits;
            CHECK(bits == whole[name]);
        }
    }
}

TEST_CASE("log_prob: ln softmax by the formula, finite or an error") {
    const std::vector<float> logits{1.5f, -2.0f, 0.0f, 80.0f, -1000.0f, -std::numeric_limits<float>::infinity()};
    double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x) - 80);
    for (int t = 0; t < 5; ++t)
        CHECK(log_prob(logits, Token{t}) ==
              doctest::Approx(logits[static_cast<std::size_t>(t)] - 80 - std::log(sum)).epsilon(1e-14));
    CHECK(log_prob(std::array{3.0f}, Token{0}) == 0.0);
    CHECK(thrown_by([&] { (void)log_prob(logits, Token{5}); }, "token 5 is -inf") == ErrorCode::non_finite_logits);
    CHECK(thrown_by([&] { (void)log_prob(logits, Token{6}); }, "token 6 of a row of 6") ==
          ErrorCode::index_out_of_range);
    CHECK(thrown_by([&] { (void)log_prob(logits, Token{-1}); }) == ErrorCode::index_out_of_range);
    CHECK(thrown_by([&] { (void)log_prob({}, Token{0}); }) == ErrorCode::index_out_of_range);
    const std::vector<float> infinite{0.0f, std::numeric_limits<float>::infinity()};
    CHECK(thrown_by([&] { (void)log_prob(infinite, Token{0}); }, "token 1 is inf") == ErrorCode::non_finite_logits);
}
