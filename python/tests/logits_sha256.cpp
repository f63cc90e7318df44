// SPDX-License-Identifier: MIT
// What the tests of other languages compare with: the SHA-256 of the logits of every token of a text.
//     tinfer_logits_sha256 model.gguf "Once upon a time"
#include <tinfer/tinfer.hpp>

#include <iostream>

int main(int argc, char** argv) try {
    if (argc != 3) return std::cerr << "usage: tinfer_logits_sha256 MODEL.gguf TEXT\n", 2;
    const auto model = tinfer::Model::load(argv[1]);
    tinfer::Context context(model, {.n_ctx = 256, .logits_all = true});
    const auto tokens = model.vocab().encode(argv[2]);
    if (context.decode(tokens) != tinfer::DecodeStatus::ok) return 1;
    tinfer::Sha256 hash;
    for (int i = 0; i < context.n_outputs(); ++i) hash.update(std::as_bytes(context.logits(i)));
    std::cout << tinfer::to_hex(hash.finish()) << '\n';
} catch (const tinfer::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
