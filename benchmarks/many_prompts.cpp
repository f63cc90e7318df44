// SPDX-License-Identifier: MIT
// Tokens per second of an engine that answers the prompts on standard input, one a line, all at once: what
// LLM.generate does from Python (benchmarks/from_python.py), in C++.
#include <charconv>
#include <chrono>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "tinfer/tinfer.hpp"

namespace {

int number(std::string_view text) {
    int value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{}) value = -1;
    return value;
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 5) {
        std::cerr << "usage: many_prompts MODEL.gguf THREADS N_CTX TOKENS <prompts\n";
        return 2;
    }
    const auto model = tinfer::Model::load(argv[1]);
    std::vector<std::string> prompts;
    for (std::string line; std::getline(std::cin, line);) prompts.push_back(line);
    tinfer::Engine engine(
        model, {.context = {.n_ctx = number(argv[3]), .n_seq_max = 16, .n_threads = number(argv[2])}, .n_kept = 0});
    tinfer::EngineRequest request{.sampler = {.top_k = 0, .top_p = 1, .min_p = 0, .temp = 0},
                                  .generation = {.n_predict = number(argv[4])}};
    for (const tinfer::Token token : model.vocab().eog_tokens()) request.sampler.logit_bias.emplace_back(token, -1e9f);

    std::vector<std::string> texts(prompts.size());
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        request.prompt = model.vocab().encode(prompts[i]);
        engine.submit(request, [&text = texts[i]](const tinfer::EngineEvent& event) { text += event.text; });
    }
    engine.drain();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::cout << static_cast<double>(engine.stats().generated_tokens) / seconds.count() << '\n';
} catch (const tinfer::Error& error) {
    std::cerr << "many_prompts: " << error.what() << '\n';
    return 1;
}
