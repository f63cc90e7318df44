// SPDX-License-Identifier: MIT
// Search by meaning: one vector for each line of standard input, then the lines that are nearest to a question.
#include <tinfer/tinfer.hpp>

#include <algorithm>
#include <iostream>
#include <numeric>

int main(int argc, char** argv) try {
    if (argc != 3) return std::cerr << "usage: search MODEL.gguf QUESTION < LINES\n", 2;
    const auto model = tinfer::Model::load(argv[1]);  // an embedding model, or any other: its mean is taken then
    const auto pooling =
        model.info().pooling == tinfer::Pooling::none ? tinfer::Pooling::mean : tinfer::Pooling::from_model;
    tinfer::Context context(model, {.n_ctx = 512, .pooling = pooling});

    const auto vector_of = [&](const std::string& text) {
        context.clear();
        const auto tokens = model.vocab().encode(text);
        if (context.decode(tokens) != tinfer::DecodeStatus::ok) throw std::runtime_error("too long: " + text);
        const auto pooled = context.pooled();
        std::vector<float> vector(pooled.begin(), pooled.end());  // the span is valid until the next decode
        tinfer::normalize(vector);                                // so that a dot product is the cosine
        return vector;
    };

    std::vector<std::pair<float, std::string>> found;
    const auto question = vector_of(argv[2]);
    for (std::string line; std::getline(std::cin, line);) {
        if (line.empty()) continue;
        const auto vector = vector_of(line);
        found.emplace_back(std::inner_product(vector.begin(), vector.end(), question.begin(), 0.0f), line);
    }
    std::ranges::sort(found, std::greater{});
    for (const auto& [cosine, line] : found) std::cout << cosine << "  " << line << '\n';
} catch (const std::exception& error) {
    std::cerr << "search: " << error.what() << '\n';
    return 1;
}
