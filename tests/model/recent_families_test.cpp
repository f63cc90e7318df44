// SPDX-License-Identifier: MIT
// What the golden cases of recent architectures cannot show: keys whose value is not looked at, names of tensors that a
// model leaves alone, text out of masked places, and blocks behind the model.
#include <doctest/doctest.h>

#include "gguf/file.hpp"
#include "model/model.hpp"
#include "support/code_of.hpp"
#include "support/gguf_copy.hpp"
#include "support/golden.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::test {

namespace {

struct Bound {
    model::HParams hp;
    std::string log;
};

Bound bound(const GgufWriter& w) {
    Bound out;
    const auto bytes = w.bytes();
    ModelOptions options;
    options.log = [&](LogLevel, std::string_view text) { out.log += std::string(text) + "\n"; };
    out.hp = model::bind_model(gguf::File::open_memory(bytes, "recent.gguf", options), options).hp;
    return out;
}

std::optional<GgufWriter> golden_copy(const std::string& name) {
    if (skip_without_golden()) return std::nullopt;
    const auto path = golden_model_file(name, {});
    return path ? std::optional(gguf_copy(*path)) : std::nullopt;
}

}  // namespace

TEST_CASE("recent families: tensors that a model leaves alone are named, with the reason") {
    GgufWriter w = TinyModel::of("llama").writer();
    for (const char* const name : {"v.patch.weight", "mm.0.weight", "a.conv.weight", "blk.0.attn_rot_embd"})
        w.tensor(name, DType::f32, {4}, std::vector<float>(4));
    const std::string log = bound(w).log;
    CAPTURE(log);
    for (const char* const text :
         {"tensor 'v.patch.weight' is unused: for images", "tensor 'mm.0.weight' is unused: for images",
          "tensor 'a.conv.weight' is unused: for sound", "tensor 'blk.0.attn_rot_embd' is unused: "})
        CHECK(log.find(text) != std::string::npos);
}

TEST_CASE("[golden] recent families: SmallThinker's window is 4096 whatever size the file gives") {
    auto w = golden_copy("smallthinker");
    if (!w) return;
    w->set("smallthinker.attention.sliding_window", GgufValue{100u});
    CHECK(bound(*w).hp.windows.window.size == 4096);
    w->erase("smallthinker.attention.sliding_window");
    const auto plain = bound(*w).hp;
    CHECK(!plain.has_windowed_layers());
    CHECK(plain.rotates(0));
}

TEST_CASE("[golden] recent families: blocks that only draft are not run, and arrays count them") {
    auto w = golden_copy("step35");
    if (!w) return;
    w->set("step35.nextn_predict_layers", GgufValue{1u});
    const Bound model = bound(*w);
    CHECK(model.hp.n_layer == 4);
    CHECK(model.hp.is_windowed(3));
    CHECK(!model.hp.is_windowed(0));
    CHECK(model.log.find("tensor 'blk.4.attn_q.weight' is unused: of a block that only drafts tokens") !=
          std::string::npos);
}

TEST_CASE("[golden] recent families: text out of masked places is computed as a whole, and not generated") {
    if (skip_without_golden()) return;
    const auto path = golden_model_file("llada");
    if (!path) return;
    const auto model = Model::load(*path);
    CHECK(code_of([&] { Context(model, {.n_ctx = 64, .attention = AttentionKind::causal}); }) ==
          ErrorCode::bad_parameter);
    Context context(model, {.n_ctx = 64});
    CHECK(context.options().attention == AttentionKind::bidirectional);
    Generation generation(model.vocab(), {Token{1}, Token{2}}, {.n_predict = 2});
    Sampler sampler(model.vocab(), {.temp = 0});
    CHECK(code_of([&] { (void)generation.run(context, sampler, [](std::string_view) { return true; }); }) ==
          ErrorCode::unsupported_operation);
}

TEST_CASE("[golden] recent families: what a thread needs to choose keys does not grow with the number of sequences") {
    if (skip_without_golden()) return;
    for (const char* const name : {"deepseek32", "minimax-m3", "qwen4exp", "deepseek4"}) {
        const auto path = golden_model_file(name);
        if (!path) continue;
        CAPTURE(name);
        const auto model = Model::load(*path);
        const auto per_thread = [&](int n_seq_max) {
            const auto compute = [&](int n_threads) {
                return plan(model, {.n_ctx = 131072, .n_seq_max = n_seq_max, .n_threads = n_threads}).compute;
            };
            return (compute(3) - compute(1)) / 2;
        };
        // at most four numbers for each of 131072 tokens, and for a page more per sequence
        CHECK(per_thread(256) <= 16 * (131072 + 64 * 256));
        CHECK(per_thread(256) < per_thread(1) + 300'000);
    }
}

TEST_CASE(
    "[golden] recent families: LongRoPE's factors are chosen by the context, which one sequence may take as a whole") {
    if (skip_without_golden()) return;
    const auto path = golden_model_file("phi3-longrope-long");  // 64 positions at first
    if (!path) return;
    const auto model = Model::load(*path);
    const auto tokens = random_tokens(100, 200, 4);
    const auto last = [&](int n_ctx, int n_seq_max) {
        Context context(model, {.n_ctx = n_ctx, .n_seq_max = n_seq_max});
        REQUIRE(context.decode(std::span(tokens).first(60)) == DecodeStatus::ok);
        const auto early = bits_of(context.logits());
        if (n_ctx <= 64) return early;
        REQUIRE(context.decode(std::span(tokens).subspan(60)) == DecodeStatus::ok);
        auto all = bits_of(context.logits());
        all.insert(all.end(), early.begin(), early.end());
        return all;
    };
    const auto whole = last(256, 1);
    CHECK(last(256, 4) == whole);
    CHECK(last(128, 16) == whole);
    CHECK(last(64, 1) != std::vector(whole.end() - model.info().n_vocab, whole.end()));  // of the short ones
}

TEST_CASE(
    "[golden] recent families: an indexer that chooses everything changes what full attention gives by rounding") {
    if (skip_without_golden()) return;
    const auto path = golden_model_file("deepseek32");
    if (!path) return;
    const auto tokens = random_tokens(40, 100, 3);
    const auto few = Model::load(*path),
               all = Model::load(*path, {.overrides = {{"deepseek32.attention.indexer.top_k", std::int64_t{64}}}});
    const auto narrow = logits_of(few, tokens, {}), wide = logits_of(all, tokens, {});
    const std::size_t width = static_cast<std::size_t>(few.info().n_vocab);
    CHECK(std::equal(narrow.begin(), narrow.begin() + static_cast<std::ptrdiff_t>(12 * width), wide.begin()));
    CHECK(!std::equal(narrow.end() - static_cast<std::ptrdiff_t>(width), narrow.end(),
                      wide.end() - static_cast<std::ptrdiff_t>(width)));
}

}  // namespace tinfer::test
