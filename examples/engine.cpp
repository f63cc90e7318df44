// SPDX-License-Identifier: MIT
// Answers every line of the standard input at once, and prints each answer when it is whole: one engine, one batch.
//
// usage: engine model.gguf [tokens of each answer] < lines.txt
#include <tinfer/tinfer.hpp>

#include <iostream>
#include <map>
#include <mutex>
#include <string>

int main(int argc, char** argv) try {
    if (argc < 2) {
        std::cerr << "usage: engine model.gguf [tokens of each answer] < lines.txt\n";
        return 2;
    }
    const auto model = tinfer::Model::load(argv[1]);
    const std::int64_t n_predict = argc > 2 ? std::stoll(argv[2]) : 32;
    tinfer::Engine engine(model, {.context = {.n_ctx = 4096, .n_seq_max = 8}, .max_queue = 1'000'000});

    std::mutex mutex;  // the events come on the engine's thread
    std::map<tinfer::RequestId, std::string> answers;
    std::string line;
    while (std::getline(std::cin, line)) {
        if (line.empty()) continue;
        engine.submit(
            {.prompt = model.vocab().encode(line), .sampler = {.seed = 42}, .generation = {.n_predict = n_predict}},
            [&, line](const tinfer::EngineEvent& event) {
                const std::lock_guard lock(mutex);
                std::string& answer = answers[event.request];
                answer += event.text;
                if (event.error) std::cerr << line << ": " << event.error->what() << '\n';
                if (event.stop) std::cout << line << answer << "\n\n";
                if (event.ended()) answers.erase(event.request);
            });
    }
    engine.drain();
    const auto stats = engine.stats();
    std::cerr << stats.generated_tokens << " tokens in " << stats.rounds << " rounds, " << stats.busy_s << " s; "
              << stats.cached_tokens << " tokens of prompts shared\n";
} catch (const std::exception& error) {
    std::cerr << "engine: " << error.what() << '\n';
    return 1;
}
