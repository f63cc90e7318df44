// SPDX-License-Identifier: MIT
// Text by masked diffusion, as in LLaDA, Dream and RND1: every pass runs the whole sequence, and fills the masked
// positions with the most confident predictions.
//     masked model.gguf "The capital of France is" 16 8      (16 tokens in 8 passes)
#include <tinfer/tinfer.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iostream>
#include <vector>

namespace {

struct Guess {
    std::size_t place;
    tinfer::Token token;
    float probability;
};

Guess best(std::size_t place, std::span<const float> logits) {
    const auto top = std::ranges::max_element(logits);
    double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x - *top));
    return {place, tinfer::Token{static_cast<int>(top - logits.begin())}, static_cast<float>(1.0 / sum)};
}

std::size_t number(const char* text) {
    std::size_t out = 0;
    std::from_chars(text, text + std::strlen(text), out);
    return out;
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 5) return std::cerr << "usage: masked MODEL.gguf PROMPT PLACES PASSES\n", 2;
    const auto model = tinfer::Model::load(argv[1]);
    const auto& vocab = model.vocab();
    const auto mask = vocab.special(tinfer::Special::mask);
    const std::size_t n_new = number(argv[3]), n_pass = number(argv[4]);
    if (!mask || n_new == 0 || n_pass == 0) {
        std::cerr << "masked: needs a vocabulary with a mask token, and numbers above 0\n";
        return 1;
    }
    // In some models the logits of a position are at the previous one.
    const bool shifted = model.file().metadata_value("diffusion.shift_logits").value_or("true") == "true";

    auto tokens = vocab.encode(argv[2]);
    const std::size_t n_prompt = tokens.size();
    tokens.insert(tokens.end(), n_new, *mask);
    const int n_ctx = static_cast<int>(tokens.size());
    tinfer::Context context(model, {.n_ctx = n_ctx,
                                    .n_batch = n_ctx,
                                    .n_ubatch = n_ctx,
                                    .attention = tinfer::AttentionKind::bidirectional,
                                    .logits_all = true});

    for (std::size_t pass = 0; pass < n_pass; ++pass) {
        tinfer::Batch batch;  // nothing is kept: every pass starts from scratch
        for (const auto token : tokens) batch.add(token, std::nullopt, tinfer::SeqId{0}, true);
        if (context.decode(batch) != tinfer::DecodeStatus::ok)
            throw tinfer::Error(tinfer::ErrorCode::no_room, "the sequence is longer than the context");
        std::vector<Guess> open;
        for (std::size_t place = n_prompt; place < tokens.size(); ++place)
            if (tokens[place] == *mask)
                open.push_back(best(place, context.logits(static_cast<int>(shifted && place > 0 ? place - 1 : place))));
        std::ranges::sort(open, std::greater(), &Guess::probability);
        const std::size_t n_fill = (open.size() + n_pass - pass - 1) / (n_pass - pass);
        for (std::size_t i = 0; i < n_fill; ++i) tokens[open[i].place] = open[i].token;
    }
    std::cout << vocab.decode(std::span(tokens).subspan(n_prompt)) << '\n';
} catch (const tinfer::Error& error) {
    std::cerr << "masked: " << error.what() << '\n';
    return 1;
}
