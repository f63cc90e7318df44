// SPDX-License-Identifier: MIT
// A real model, the one that scripts/quickstart asks: it speaks English, and its quantized products cost next to
// nothing against the same weights exactly dequantized to F32.
#include <doctest/doctest.h>

#include "support/real_model.hpp"

namespace tinfer::test {

namespace {

constexpr RealModel kSmolLM2{"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"};

}  // namespace

TEST_CASE("[K2][model] smollm2: greedy text is English and answers the question") {
    if (kSmolLM2.skip()) return;
    const auto model = Model::load(kSmolLM2.path());
    const auto prompt = model.vocab().encode(
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n", {.parse_special = true});
    const auto [text, ended] = greedy(model, prompt, 40);
    CAPTURE(text);
    CHECK(ended);
    CHECK(text.find("Paris") != std::string::npos);
}

TEST_CASE("[A1][model][slow] smollm2: perplexity within 0.5 % of the same file exactly dequantized to F32") {
    if (kSmolLM2.skip()) return;
    const auto [quantized, exact] = perplexity_against_dequantized(kSmolLM2.path());
    CHECK(quantized / exact == doctest::Approx(1.0).epsilon(0.005));
    CHECK(quantized < 30);
}

}  // namespace tinfer::test
