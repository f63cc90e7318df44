// SPDX-License-Identifier: MIT
// The public Sampler: what it adds to the chain is a vocabulary, counters and value semantics.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/golden.hpp"
#include "tinfer/tinfer.hpp"

using namespace tinfer;

TEST_CASE("[S12][golden] sampler: the text of recent tokens equals their detokenization") {
    if (skip_without_golden()) return;
    for (const char* file : {"ggml-vocab-gpt-2.gguf", "ggml-vocab-llama-spm.gguf"}) {
        const auto path = golden_file(std::string("vocabs/") + file);
        if (!path) continue;
        const auto vocab = Vocab::load(*path);
        Sampler sampler(vocab, {.seed = 1});
        const auto tokens = vocab.encode("The quick brown fox — naïve, 12345 times 🦊.", {.add_special = false});
        for (const Token token : tokens) sampler.accept(token);
        for (std::size_t n = 0; n <= tokens.size() && n <= 64; ++n) {
            const std::vector<Token> last(tokens.end() - static_cast<std::ptrdiff_t>(n), tokens.end());
            CHECK(sampler.recent(n) == last);
            CHECK(sampler.recent_text(n) == vocab.decode(last));
        }
    }
}

TEST_CASE("[golden] sampler: a copy is a value with its own state") {
    if (skip_without_golden()) return;
    const auto path = golden_file("vocabs/ggml-vocab-llama-spm.gguf");
    if (!path) return;
    const auto vocab = Vocab::load(*path);
    std::vector<float> logits(vocab.size());
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 97) * 0.1f;
    Sampler sampler(vocab, {.top_k = 0, .top_p = 1.0f, .min_p = 0.0f, .temp = 1.0f, .seed = 3});
    (void)sampler.sample(logits);
    Sampler copy = sampler, assigned(vocab);
    assigned = sampler;
    for (int i = 0; i < 20; ++i) {
        const Token token = sampler.sample(logits);
        CHECK(copy.sample(logits) == token);
        CHECK(assigned.sample(logits) == token);
    }
    CHECK(sampler.samples() == 21);
    CHECK(sampler.seconds() > 0);
    CHECK(sampler.seed() == 3);
}
