// SPDX-License-Identifier: MIT
// Writes a model file to measure with, in seconds, from nothing.
#include <chrono>
#include <cstdio>
#include <stdexcept>

#include "expert_choices.hpp"
#include "random_model.hpp"
#include "support.hpp"

namespace tinfer::bench {

namespace {

constexpr std::string_view kUsage =
    "usage: generate_model --out FILE [--shape 1.1b|110m|135m|moe|moe-dense|moe64|moe64-small|tiny|tiny-moe] "
    "[--mix q4_k_m|q8_0|f16|…] [--seed 1] [--head]\n"
    "                      [--choices uniform|skewed|drifting]\n"
    "Writes a llama model of seeded random weights and a toy vocabulary, and decodes "
    "sixteen tokens to see that it lives. --choices: which experts the tokens of a mixture choose: all alike; a fifth "
    "of "
    "them for half of the picks; 40 % of those of the token before, where tokens follow each other in the vocabulary. "
    "--head: an EAGLE-3 draft head for that model instead.\n";

void generate(Options& options) {
    const bool smoke = options.flag("smoke");
    const std::string mix = options.text("mix", "q4_k_m"), shape = options.text("shape", smoke ? "tiny" : "1.1b");
    const std::filesystem::path out = options.text("out", smoke ? "generate_model.smoke.gguf" : "");
    const double seed = options.number("seed", 1);
    const bool is_head = options.flag("head");
    const Choices choices = choices_named(options.text("choices", ""));
    options.finish();
    if (out.empty()) throw std::runtime_error("--out FILE is missing; see --help");

    if (is_head) return write_random_head(out, shape_named(shape), mix, static_cast<std::uint64_t>(seed));

    const auto begin = std::chrono::steady_clock::now();
    write_random_model(out, shape_named(shape), mix, static_cast<std::uint64_t>(seed), choices);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double deviation = check_model(out);
    std::fprintf(stderr, "%s: %s of %s, %.1f MB in %.1f s, logits deviate by %.2f\n", out.string().c_str(),
                 shape.c_str(), mix.c_str(), static_cast<double>(std::filesystem::file_size(out)) / 1e6, seconds,
                 deviation);
    if (smoke) std::filesystem::remove(out);
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("generate_model", [&] {
        tinfer::bench::Options options(argc, argv, tinfer::bench::kUsage);
        tinfer::bench::generate(options);
    });
}
