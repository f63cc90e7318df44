// SPDX-License-Identifier: MIT
// The example of the README: continues a text and counts, per layer, the bytes that every kernel call touched.
//     minimal model.gguf "Once upon a time"
#include <tinfer/tinfer.hpp>

#include <iostream>
#include <map>

struct BytesPerLayer : tinfer::Observer {  // sees every kernel call; steers nothing
    std::map<int, std::uint64_t> bytes;
    void on_events(std::span<const tinfer::KernelEvent> events) override {
        for (const auto& event : events)
            for (const auto& access : event.accesses) bytes[event.step->layer] += access.bytes();
    }
};

int main(int argc, char** argv) try {
    if (argc != 3) return std::cerr << "usage: minimal MODEL.gguf PROMPT\n", 2;
    const auto model = tinfer::Model::load(argv[1]);  // maps the file: nothing is copied
    const auto& vocab = model.vocab();
    tinfer::Context context(model, {.n_ctx = 2048});  // cache and scratch, allocated once, here
    tinfer::Sampler sampler(vocab, {.top_k = 40, .top_p = 0.95f, .temp = 0.8f, .seed = 42});

    const auto traffic = std::make_shared<BytesPerLayer>();
    const auto attached = context.attach(traffic);  // until `attached` leaves its scope

    auto tokens = vocab.encode(argv[2]);  // first the whole prompt, then one token at a time
    for (int n = 0; n < 256 && context.decode(tokens) == tinfer::DecodeStatus::ok; ++n) {
        const auto token = sampler.sample(context.logits(-1));  // -1: the last output of this decode
        if (vocab.is_eog(token)) break;
        std::cout << vocab.piece(token) << std::flush;
        tokens = {token};
    }

    for (const auto& [layer, bytes] : traffic->bytes) std::cerr << "layer " << layer << ": " << bytes << " bytes\n";
} catch (const tinfer::Error& error) {
    // "model.gguf: tensor 'blk.3.attn_q.weight': offset 912 + size 4608 exceeds data section 4096"
    std::cerr << "tinfer: " << error.what() << '\n';
    return 1;
}
