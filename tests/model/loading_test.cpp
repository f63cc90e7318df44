// SPDX-License-Identifier: MIT
// Loading as a caller sees it: mapped or read, one file or shards, with progress, cancelling and overrides; and a model
// that several threads share.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "metadata_support.hpp"
#include "support/alloc_counter.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

constexpr const char* kExamples[] = {"llama", "qwen2", "qwen3", "llama-moe", "qwen2moe", "qwen3moe"};

std::vector<std::uint32_t> logit_bits(const Model& model, int n = 12,
                                      const ContextOptions& options = {.n_ctx = 64, .n_threads = 1}) {
    return bits_of(logits_of(model, random_tokens(n, model.info().n_vocab, 11), options));
}

/// SHA-256 over the bytes of every tensor.
std::array<std::uint8_t, 32> weights_hash(const Model& model) {
    std::vector<std::byte> all;
    for (const TensorInfo& tensor : model.file().tensors()) {
        const auto* bytes = static_cast<const std::byte*>(tensor.address);
        all.insert(all.end(), bytes, bytes + tensor.bytes);
    }
    return sha256(all);
}

template <class Fn>
std::pair<std::optional<ErrorCode>, std::string> outcome(Fn&& fn) {
    try {
        fn();
        return {};
    } catch (const Error& error) {
        return {error.code(), error.what()};
    }
}

/// The tensors of `whole` dealt out over `count` shards, metadata in the first.
std::vector<GgufWriter> cut(const GgufWriter& whole, std::size_t count) {
    std::vector<GgufWriter> shards(count);
    shards[0] = whole;
    auto tensors = shards[0].tensors();
    shards[0].tensors().clear();
    for (std::size_t i = 0; i < tensors.size(); ++i) shards[i * count / tensors.size()].tensors().push_back(tensors[i]);
    for (std::size_t i = 0; i < count; ++i)
        shards[i]
            .kv("split.no", static_cast<std::uint16_t>(i))
            .kv("split.count", static_cast<std::uint16_t>(count))
            .kv("split.tensors.count", static_cast<std::int32_t>(tensors.size()));
    return shards;
}

std::string shard_name(std::size_t i, std::size_t count) {
    char name[64];
    std::snprintf(name, sizeof name, "tiny-%05zu-of-%05zu.gguf", i + 1, count);
    return name;
}

}  // namespace

TEST_CASE("[L1] the first thing a program does may be a load: no call prepares the library") {
    const TempFolder folder;
    const auto path = TinyModel::of("llama").save(folder.path());
    const auto first = logit_bits(Model::load(path));
    CHECK(first == logit_bits(Model::load(path)));
    CHECK(std::ranges::any_of(first, [&](std::uint32_t bits) { return bits != first[0]; }));
}

TEST_CASE("[L1] a hundred times two models made and destroyed leave nothing behind") {
    const TempFolder folder;
    const auto one = TinyModel::of("llama", DType::f32).save(folder.path()),
               two = TinyModel::of("qwen3moe").save(folder.path());
    const auto round = [&] {
        const auto a = Model::load(one), b = Model::load(two, {.use_mmap = false});
        Context on_a(a, {.n_ctx = 64, .n_threads = 1}), on_b(b, {.n_ctx = 64, .n_threads = 1});
        const std::vector<Token> tokens{Token{1}, Token{2}};
        return on_a.decode(tokens) == DecodeStatus::ok && on_b.decode(tokens) == DecodeStatus::ok;
    };
    REQUIRE(round());  // the standard library's own tables are made once
    const AllocationScope scope;
    bool all = true;
    for (int i = 0; i < 100; ++i) all = round() && all;
    const std::int64_t left = scope.live();
    CHECK(all);
    CHECK(left == 0);
}

TEST_CASE("[L3] mapped and read models give the same bits") {
    const TempFolder folder;
    for (const char* arch : kExamples)
        for (const DType type : {DType::f32, DType::bf16, DType::q4_k, DType::q8_0}) {
            CAPTURE(arch);
            CAPTURE(to_string(type));
            const auto path = TinyModel::of(arch, type).save(folder.path());
            const auto mapped = Model::load(path), read = Model::load(path, {.use_mmap = false});
            CHECK(weights_hash(mapped) == weights_hash(read));
            CHECK(logit_bits(mapped, 3) == logit_bits(read, 3));
        }
}

TEST_CASE("[L7] a model cut in shards loads from the first and gives the same logits") {
    const TempFolder folder;
    for (const char* arch : {"llama", "qwen2moe"}) {
        const TinyModel tiny = TinyModel::of(arch);
        const auto expected = logit_bits(Model::load(tiny.save(folder.path())));
        for (const std::size_t count : {2u, 3u, 7u}) {
            CAPTURE(arch);
            CAPTURE(count);
            const auto shards = cut(tiny.writer(), count);
            for (std::size_t i = 0; i < count; ++i) shards[i].save(folder / shard_name(i, count));
            for (const bool use_mmap : {true, false}) {
                const auto model = Model::load(folder / shard_name(0, count), {.use_mmap = use_mmap});
                CHECK(model.file().paths().size() == count);
                CHECK(logit_bits(model) == expected);
            }
        }
    }
}

TEST_CASE("[L7] a missing shard is named") {
    const TempFolder folder;
    const auto shards = cut(TinyModel::of("llama").writer(), 3);
    shards[0].save(folder / shard_name(0, 3));
    shards[2].save(folder / shard_name(2, 3));
    const auto [code, text] = outcome([&] { (void)Model::load(folder / shard_name(0, 3)); });
    CHECK((code == ErrorCode::io_error || code == ErrorCode::bad_split));
    CHECK(mentions(text, shard_name(1, 3)));
}

TEST_CASE("[L8] shards of any name load when they are given in order") {
    const TempFolder folder;
    const TinyModel tiny = TinyModel::of("qwen3");
    const auto expected = logit_bits(Model::load(tiny.save(folder.path())));
    const auto shards = cut(tiny.writer(), 3);
    const std::vector<std::filesystem::path> paths{folder / "z", folder / "a.bin", folder / "m.gguf"};
    for (std::size_t i = 0; i < 3; ++i) shards[i].save(paths[i]);
    CHECK(logit_bits(Model::load(paths)) == expected);
    const std::vector<std::filesystem::path> swapped{paths[1], paths[0], paths[2]}, two{paths[0], paths[1]};
    CHECK(outcome([&] { (void)Model::load(swapped); }).first == ErrorCode::bad_split);
    CHECK(outcome([&] { (void)Model::load(two); }).first == ErrorCode::bad_split);
}

TEST_CASE("[L19] progress rises from 0 to 1, and stopping it ends the load with nothing kept") {
    const TempFolder folder;
    const auto path = TinyModel::of("llama", DType::f16).save(folder.path());
    for (const bool use_mmap : {true, false}) {
        CAPTURE(use_mmap);
        std::vector<double> seen;
        seen.reserve(100'000);
        ModelOptions options{.use_mmap = use_mmap, .progress = [&](double fraction) {
                                 seen.push_back(fraction);
                                 return true;
                             }};
        (void)Model::load(path, options);
        REQUIRE(seen.size() >= 2);
        CHECK(seen.front() == 0.0);
        CHECK(seen.back() == 1.0);
        CHECK(std::ranges::is_sorted(seen));
        for (std::size_t stop = 1; stop <= seen.size(); ++stop) {
            std::size_t calls = 0;
            options.progress = [&](double) { return ++calls < stop; };
            const AllocationScope scope;
            std::optional<ErrorCode> code;
            try {
                (void)Model::load(path, options);
            } catch (const Error& error) {
                code = error.code();
            }
            const std::int64_t left = scope.live();
            CHECK(code == ErrorCode::cancelled);
            CHECK(calls == stop);
            CHECK(left == 0);
        }
    }
}

TEST_CASE("[L17] an override changes what the model says and what it computes") {
    const TempFolder folder;
    TinyModel tiny = TinyModel::of("llama");
    const auto path = tiny.save(folder.path());
    const auto plain = logit_bits(Model::load(path));

    const auto rebased = Model::load(path, {.overrides = {{"llama.rope.freq_base", 500.0}}});
    CHECK(rebased.info().rope_freq_base == 500.0f);
    CHECK(rebased.file().metadata_value("llama.rope.freq_base") == "500");
    CHECK(logit_bits(rebased) != plain);

    const auto looser = Model::load(path, {.overrides = {{"llama.attention.layer_norm_rms_epsilon", 0.5}}});
    CHECK(looser.info().rms_eps == 0.5f);
    CHECK(logit_bits(looser) != plain);

    const auto named = Model::load(
        path, {.overrides = {{"general.name", std::string("another")}, {"llama.context_length", std::int64_t{77}}}});
    CHECK(named.info().name == "another");
    CHECK(named.info().n_ctx_train == 77);
    CHECK(logit_bits(named) == plain);

    // The same value as a key of the file: the override is the file's value in every respect.
    GgufWriter w = tiny.writer();
    w.kv("llama.rope.freq_base", 500.0f).save(folder / "rebased.gguf");
    CHECK(logit_bits(Model::load(folder / "rebased.gguf")) == logit_bits(rebased));
    // … and wins over it.
    CHECK(logit_bits(Model::load(folder / "rebased.gguf", {.overrides = {{"llama.rope.freq_base", 10000.0}}})) ==
          plain);
}

TEST_CASE("[L17] an override of the wrong type is an error that names it, an unused one a warning") {
    const TempFolder folder;
    const auto path = TinyModel::of("qwen3moe").save(folder.path());
    const std::vector<MetadataOverride> wrong{{"qwen3moe.block_count", 2.0},
                                              {"qwen3moe.block_count", std::string("2")},
                                              {"qwen3moe.block_count", true},
                                              {"qwen3moe.attention.layer_norm_rms_epsilon", std::int64_t{1}},
                                              {"qwen3moe.rope.freq_base", std::string("1e4")},
                                              {"qwen3moe.expert_weights_norm", std::int64_t{1}},
                                              {"qwen3moe.rope.scaling.type", 1.0},
                                              {"general.architecture", std::int64_t{3}}};
    for (const MetadataOverride& item : wrong) {
        CAPTURE(item.key);
        const auto [code, text] = outcome([&] { (void)Model::load(path, {.overrides = {item}}); });
        CHECK(code == ErrorCode::bad_override);
        CHECK(mentions(text, item.key));
    }
    CHECK(outcome([&] {
              (void)Model::load(path, {.overrides = {{"qwen3moe.block_count", std::int64_t{3}}}});
          }).first == ErrorCode::missing_tensor);
    CHECK(outcome([&] {
              (void)Model::load(path, {.overrides = {{"qwen3moe.block_count", std::int64_t{-1}}}});
          }).first == ErrorCode::bad_key);
    std::string warnings;
    const ModelOptions options{.overrides = {{"nobody.asks", true}},
                               .log = [&](LogLevel, std::string_view text) { warnings += text; }};
    (void)Model::load(path, options);
    CHECK(mentions(warnings, "nobody.asks"));
}

TEST_CASE(
    "[L23][B8] contexts in threads on one model give the tokens of one after the other, and leave its bytes alone") {
    const TempFolder folder;
    constexpr int n_contexts = 5, n_tokens = 12;
    for (const char* arch : {"llama", "qwen2moe"}) {
        const auto model = Model::load(TinyModel::of(arch).save(folder.path()));
        const auto before = weights_hash(model);
        const auto generate = [&](int which) {
            Context context(model, {.n_ctx = 64, .n_ubatch = 8, .n_threads = 1 + which % 2});
            Sampler sampler(model.vocab(),
                            {.temp = which % 3 == 0 ? 0.0f : 1.0f, .seed = static_cast<std::uint32_t>(which)});
            std::vector<Token> tokens =
                                   random_tokens(5 + which, model.info().n_vocab, static_cast<std::uint64_t>(which)),
                               out;
            while (out.size() < n_tokens) {
                if (context.decode(tokens) != DecodeStatus::ok) return std::vector<Token>{};
                out.push_back(sampler.sample(context));
                tokens = {out.back()};
            }
            return out;
        };
        std::vector<std::vector<Token>> alone(n_contexts), together(n_contexts);
        for (int i = 0; i < n_contexts; ++i) alone[static_cast<std::size_t>(i)] = generate(i);
        std::vector<std::thread> threads;
        for (int i = 0; i < n_contexts; ++i)
            threads.emplace_back([&, i] { together[static_cast<std::size_t>(i)] = generate(i); });
        for (std::thread& thread : threads) thread.join();
        CAPTURE(arch);
        for (std::size_t i = 0; i < n_contexts; ++i) {
            CHECK(static_cast<int>(alone[i].size()) == n_tokens);
            CHECK(together[i] == alone[i]);
        }
        CHECK(alone[1] != alone[2]);
        CHECK(weights_hash(model) == before);
    }
}

TEST_CASE("rows of an embedding beyond the vocabulary are said at load and never offered") {
    const TempFolder folder;
    const GgufWriter text = small_bpe();
    text.save(folder / "vocab.gguf");
    const std::size_t n_tokens = Vocab::load(folder / "vocab.gguf").size();
    const auto save = [&](std::size_t n_rows) {
        TinyModel tiny = TinyModel::of("llama");
        tiny.n_vocab = static_cast<int>(n_rows);
        GgufWriter w = tiny.writer();
        w.take(text)
            .set("general.architecture", GgufValue{tiny.arch})
            .set("llama.vocab_size", GgufValue{static_cast<std::uint32_t>(n_rows)});
        const auto path = folder / (std::to_string(n_rows) + ".gguf");
        w.save(path);
        return path;
    };
    std::vector<std::string> said;
    const ModelOptions options{.log = [&](LogLevel, std::string_view line) { said.emplace_back(line); }};
    (void)Model::load(save(n_tokens), options);
    CHECK(said.empty());
    const auto model = Model::load(save(n_tokens + 7), options);
    REQUIRE(said.size() == 1);
    CHECK(said[0].find(std::to_string(n_tokens + 7) + " tokens") != std::string::npos);
    CHECK(said[0].find("has " + std::to_string(n_tokens)) != std::string::npos);

    Context context(model, {.n_ctx = 64, .n_threads = 1});
    REQUIRE(context.decode(std::vector{Token{1}}) == DecodeStatus::ok);
    const auto logits = context.logits(-1);
    REQUIRE(logits.size() == n_tokens + 7);  // what the model computes stays as it is
    std::vector<float> row(logits.begin(), logits.end());
    std::fill(row.begin() + static_cast<std::ptrdiff_t>(n_tokens), row.end(), 1000.0f);
    for (const float temp : {0.0f, 1.0f})
        for (const int top_k : {0, 1, 40}) {
            Sampler sampler(model.vocab(), {.top_k = top_k, .temp = temp, .seed = 1});
            for (int i = 0; i < 20; ++i) {
                CHECK(static_cast<std::size_t>(sampler.sample(row)) < n_tokens);
                for (const Candidate& candidate : sampler.probs(1000))
                    CHECK(static_cast<std::size_t>(candidate.id) < n_tokens);
                CHECK(static_cast<std::size_t>(sampler.sample(context)) < n_tokens);
            }
            CHECK(sampler.recent_text(20).size() > 0);
        }
#if TINFER_TRACE  // observers see the draw, and change nothing about it
    std::vector<Token> expected, watched;
    for (auto* tokens : {&expected, &watched}) {
        Attachment attached;
        if (tokens == &watched) attached = context.attach(std::make_shared<Observer>());
        for (std::uint32_t seed = 0; seed < 100; ++seed)
            tokens->push_back(
                Sampler(model.vocab(), {.top_k = 0, .top_p = 1, .min_p = 0, .temp = 2, .seed = seed}).sample(context));
    }
    CHECK(watched == expected);
#endif
    row[n_tokens] = std::numeric_limits<float>::quiet_NaN();  // nor is their value looked at
    CHECK(static_cast<std::size_t>(Sampler(model.vocab(), {.seed = 1}).sample(row)) < n_tokens);
}

TEST_CASE("a context keeps its model alive") {
    const TempFolder folder;
    std::optional<Context> context;
    std::vector<float> expected;
    {
        const auto model = Model::load(TinyModel::of("llama").save(folder.path()));
        context.emplace(model, ContextOptions{.n_ctx = 64, .n_threads = 1});
        expected = logits_of(model, std::vector{Token{3}}, {.n_threads = 1});
    }
    REQUIRE(context->decode(std::vector{Token{3}}) == DecodeStatus::ok);
    CHECK(std::ranges::equal(bits_of(context->logits()), bits_of(expected)));
}

}  // namespace tinfer::test
