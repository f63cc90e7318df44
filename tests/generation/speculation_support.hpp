// SPDX-License-Identifier: MIT
// Generations beside each other: what a sampler saw, drew and left behind, with guesses and without.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/context_support.hpp"
#include "support/family_model.hpp"
#include "support/golden.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::test {

/// Letters, digits and marks, then pairs of letters: enough for grammars, and as many tokens as a model has.
inline Vocab letters_vocab(int n_vocab) {
    const TempFolder folder;
    std::vector<std::string> texts{"<unk>", "<s>", "</s>"};
    std::vector<std::int32_t> types{2, 3, 3};
    for (const char c : std::string("abcdefghijklmnopqrstuvwxyz0123456789,:{}[]\".")) texts.emplace_back(1, c);
    for (char a = 'a'; a <= 'z' && static_cast<int>(texts.size()) < n_vocab; ++a)
        for (char b = 'a'; b <= 'z' && static_cast<int>(texts.size()) < n_vocab; ++b) texts.push_back({a, b});
    while (static_cast<int>(texts.size()) < n_vocab) texts.push_back("t" + std::to_string(texts.size()) + ".");
    types.resize(texts.size(), 1);
    GgufWriter writer;
    writer.kv("general.architecture", "llama").kv("tokenizer.ggml.model", "llama");
    writer.array("tokenizer.ggml.tokens", texts);
    writer.array("tokenizer.ggml.scores", std::vector<float>(texts.size()));
    writer.array("tokenizer.ggml.token_type", types);
    writer.kv("tokenizer.ggml.bos_token_id", 1u).kv("tokenizer.ggml.eos_token_id", 2u);
    writer.kv("tokenizer.ggml.add_space_prefix", false);
    writer.save(folder / "vocab.gguf");
    return Vocab::load(folder / "vocab.gguf");
}

/// The first link of a chain: takes in every row before another link has changed it.
class RowHash final : public SamplerLink {
public:
    explicit RowHash(std::shared_ptr<Sha256> hash) : hash_(std::move(hash)) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "row_hash"; }
    void apply(CandidateArray& candidates) override {
        for (const Candidate& candidate : candidates.data) {
            hash_->update(std::as_bytes(std::span(&candidate.id, 1)));
            hash_->update(std::as_bytes(std::span(&candidate.logit, 1)));
        }
    }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<RowHash>(*this); }

private:
    std::shared_ptr<Sha256> hash_;
};

/// How a chain is made, and what constrains it.
struct Chooser {
    std::string name;
    SamplerOptions options;
    std::string grammar{};
};
inline std::vector<Chooser> choosers() {
    const std::string objects = R"(root ::= "{" pair ("," pair)* "}"
pair ::= "\"name\":" ("\"" [a-z]+ "\"" | [0-9]+))";
    return {
        {"greedy", {.temp = 0}},
        {"seeded", {.temp = 0.9f, .seed = 7}},
        {"penalties", {.penalty_repeat = 1.4f, .penalty_freq = 0.2f, .dry_multiplier = 0.8f, .temp = 0.7f, .seed = 11}},
        {"mirostat", {.mirostat = 2, .seed = 5}},
        {"xtc", {.xtc_probability = 0.5f, .xtc_threshold = 0.05f, .temp = 1.2f, .seed = 3}},
        {"grammar", {.temp = 0.8f, .seed = 9}, objects},
        {"greedy grammar", {.temp = 0}, objects},
    };
}

/// A drafter made of a function of how many tokens have been drawn and how many are asked for.
class Scripted final : public Drafter {
public:
    using Guess = std::function<Token(std::size_t place)>;
    Scripted(std::size_t n_prompt, Guess guess) : n_prompt_(n_prompt), guess_(std::move(guess)) {}
    Draft draft(std::span<const Token> text, std::span<Token> out) override {
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = guess_(text.size() - n_prompt_ + i);
        return {out.size(), 3};
    }
    [[nodiscard]] std::unique_ptr<Drafter> clone() const override { return std::make_unique<Scripted>(*this); }

private:
    std::size_t n_prompt_;
    Guess guess_;
};

struct Outcome {
    std::vector<Token> tokens, pending;
    std::string text, rows;
    std::optional<StopReason> stop;
    std::vector<std::uint32_t> next;  ///< bits of the row behind what the sequence has in the end
    Timings timings;
    int n_cached = 0;
};

/// Everything but the time is the same.
inline void check_same_outcome(const Outcome& outcome, const Outcome& plain) {
    CHECK(outcome.tokens == plain.tokens);
    CHECK(outcome.text == plain.text);
    CHECK(outcome.rows == plain.rows);
    CHECK(outcome.stop == plain.stop);
    CHECK(outcome.pending == plain.pending);
    CHECK(outcome.n_cached == plain.n_cached);
    CHECK(outcome.next == plain.next);
    CHECK(outcome.timings.generation_n == plain.timings.generation_n);
}

inline Outcome generate(const Model& model, const Vocab& vocab, std::span<const Token> prompt, const Chooser& chooser,
                        SpeculationOptions speculation, ContextOptions context_options,
                        GenerationOptions options = {.n_predict = 24}, std::shared_ptr<Observer> observer = nullptr) {
    context_options.n_threads = 1;  // bits do not depend on it
    Context context(model, std::move(context_options));
    std::optional<Attachment> attached;
    if (observer != nullptr) attached.emplace(context.attach(std::move(observer)));
    Sampler sampler(vocab, chooser.options);
    const auto hash = std::make_shared<Sha256>();
    sampler.insert(0, std::make_unique<RowHash>(hash));
    if (!chooser.grammar.empty()) sampler.constrain(Grammar::parse(chooser.grammar).constraint(vocab));
    options.speculation = std::move(speculation);
    Generation generation(vocab, {prompt.begin(), prompt.end()}, options);
    Outcome outcome;
    outcome.stop = generation.run(context, sampler);
    outcome.tokens.assign(generation.tokens().begin(), generation.tokens().end());
    outcome.pending.assign(generation.pending().begin(), generation.pending().end());
    outcome.text = generation.text();
    outcome.rows = to_hex(hash->finish());
    outcome.timings = generation.timings();
    outcome.n_cached = context.count(SeqId{0});
    if (outcome.pending.empty() || context.room(SeqId{0}) == 0) return outcome;
    REQUIRE(context.decode(outcome.pending) == DecodeStatus::ok);
    outcome.next = bits_of(context.logits());
    return outcome;
}

/// One model for each way of remembering: our own, and golden ones where they are.
inline void for_each_memory(const std::function<void(const Model&)>& fn) {
    const TempFolder folder;
    for (const char* arch : {"llama", "qwen3moe"}) {
        CAPTURE(arch);
        fn(Model::load(TinyModel::of(arch).save(folder.path())));
    }
    fn(windowed_model(10));
    for (const Family& family : small_families()) {
        if (family.arch != "rwkv6qwen2") continue;
        CAPTURE(family.arch);
        family.writer(DType::f32).save(folder / "family.gguf");
        fn(Model::load(folder / "family.gguf"));
        break;
    }
    constexpr std::string_view kGolden[] = {"llama",       "gemma3",     "qwen3moe",      "deepseek2-lite", "mamba2",
                                            "rwkv7",       "jamba",      "lfm2",          "qwen3next",      "qwen4exp",
                                            "kimi-linear", "minimax-01", "graniteswitch", "deepseek4"};
    if (!golden_folder()) return;
    std::size_t n_golden = 0;
    for (const GoldenModel& golden : golden_models()) {
        if (std::ranges::find(kGolden, golden.name) == std::end(kGolden)) continue;
        CAPTURE(golden.name);
        fn(Model::load(golden.file));
        ++n_golden;
    }
    expect_cases(n_golden, std::size(kGolden), "golden models, of every kind of memory");
}

}  // namespace tinfer::test
