// SPDX-License-Identifier: MIT
// The shortest way from a file to a text.
#include <tinfer/tinfer.hpp>

#include <iostream>

int main(int argc, char** argv) try {
    if (argc != 3) return std::cerr << "usage: answer MODEL.gguf PROMPT\n", 2;
    const auto model = tinfer::Model::load(argv[1]);  // maps the file: nothing is copied
    tinfer::Context context(model, {.n_ctx = 2048});
    tinfer::Sampler sampler(model.vocab(), {.temp = 0});
    tinfer::Generation text(model.vocab(), model.vocab().encode(argv[2]), {.n_predict = 32});
    text.run(context, sampler, [](std::string_view piece) { return bool(std::cout << piece << std::flush); });
} catch (const tinfer::Error& error) {
    std::cerr << "answer: " << error.what() << '\n';
    return 1;
}
