// SPDX-License-Identifier: MIT
// Eight continuations of one prompt at once: the prompt is computed once and shared, then each batch holds one token of
// every sequence. Each gets the bits that it would get alone.
#include <tinfer/tinfer.hpp>

#include <iostream>

int main(int argc, char** argv) try {
    if (argc != 3) return std::cerr << "usage: eight_sequences MODEL.gguf PROMPT\n", 2;
    constexpr int kSequences = 8;
    const auto model = tinfer::Model::load(argv[1]);
    const auto& vocab = model.vocab();
    tinfer::Context context(model, {.n_ctx = 2048, .n_seq_max = kSequences});

    const auto prompt = vocab.encode(argv[2]);
    if (context.decode(prompt) != tinfer::DecodeStatus::ok)
        throw tinfer::Error(tinfer::ErrorCode::no_room, "the prompt is longer than the context");
    for (int s = 1; s < kSequences; ++s) context.seq_cp(tinfer::SeqId{0}, tinfer::SeqId{s});  // shares, copies nothing

    std::vector<tinfer::Sampler> samplers;  // a generator and a history for each
    std::vector<tinfer::Generation> stories;
    for (int s = 0; s < kSequences; ++s) {
        samplers.emplace_back(vocab, tinfer::SamplerOptions{.temp = 1.0f, .seed = 100u + s});
        stories.emplace_back(vocab, std::vector<tinfer::Token>{}, tinfer::GenerationOptions{.n_predict = 24});
        for (const tinfer::Token token : prompt) samplers[s].accept(token);  // what penalties look back on
        stories[s].accept(samplers[s].sample(context.logits(-1)));
    }

    tinfer::Batch batch;
    for (;;) {
        batch.clear();
        std::vector<int> rows;  // whose output is which
        for (int s = 0; s < kSequences; ++s) {
            if (stories[s].stop()) continue;
            batch.add(stories[s].pending().back(), tinfer::SeqId{s}, true);
            rows.push_back(s);
        }
        if (rows.empty() || context.decode(batch) != tinfer::DecodeStatus::ok) break;
        for (int row = 0; row < static_cast<int>(rows.size()); ++row)
            stories[rows[row]].accept(samplers[rows[row]].sample(context.logits(row)));
    }
    for (const auto& story : stories) std::cout << argv[2] << story.text() << "\n---\n";
} catch (const tinfer::Error& error) {
    std::cerr << "eight_sequences: " << error.what() << '\n';
    return 1;
}
