// SPDX-License-Identifier: MIT
// Gemma 3 in real life: 270 million weights in four block formats (Q4_K, Q5_0, Q6_K, Q8_0), a vocabulary of 262144
// tokens, windows in five layers of six. It completes English, and its quantized products cost next to nothing.
#include <doctest/doctest.h>

#include "support/real_model.hpp"

namespace tinfer::test {

namespace {

constexpr RealModel kGemma3{"gemma3", "gemma-3-270m-q4_k_m.gguf"};

}  // namespace

TEST_CASE("[model] gemma3: greedy text is English and goes on as the prompt asks") {
    if (kGemma3.skip()) return;
    const auto model = Model::load(kGemma3.path());
    struct Expected {
        const char *prompt, *begins, *has;
    };
    for (const auto& [prompt, begins, has] :
         {Expected{"The sun rises in the", " east,", "the stars in the sky"},
          Expected{"Water is made of hydrogen and", " oxygen.", "Water is a liquid at room temperature."},
          Expected{"Once upon a time there was a", " girl named", "she loved to dance"}}) {
        const std::string text = greedy(model, model.vocab().encode(prompt), 40).text;
        CAPTURE(text);
        CHECK(text.starts_with(begins));
        CHECK(text.find(has) != std::string::npos);
    }
}

TEST_CASE("[model] gemma3: layers without a window quote what the windows of 512 tokens no longer see") {
    if (kGemma3.skip()) return;
    const auto model = Model::load(kGemma3.path());
    const auto tokens = model.vocab().encode(prose() + "\nThe oldest of the three, whose name was");
    CHECK(tokens.size() > 512 + 300);  // the sentence stands in the first 300
    const std::string text = greedy(model, tokens, 12).text;
    CAPTURE(text);
    CHECK(text.starts_with(" Martin, remembered a night when the fog was so thick"));
}

TEST_CASE("[model][slow] gemma3: perplexity within 0.5 % of the same file exactly dequantized to F32") {
    if (kGemma3.skip()) return;
    const auto [quantized, exact] = perplexity_against_dequantized(kGemma3.path());
    CHECK(quantized / exact == doctest::Approx(1.0).epsilon(0.005));
    CHECK(quantized < 30);
}

}  // namespace tinfer::test
