// SPDX-License-Identifier: MIT
// Writes seeds for fuzz_receipt: receipts of tiny models, one with every member that a receipt may have.
#include <filesystem>
#include <fstream>

#include "support/tiny_model.hpp"
#include "tinfer/generation.hpp"
#include "tinfer/receipt.hpp"

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    using namespace tinfer;
    const std::filesystem::path folder = argv[1];
    std::filesystem::create_directories(folder);
    auto tiny = test::TinyModel::of("llama");
    tiny.n_layer = 1;
    const auto path = tiny.save(folder);
    const Model model = Model::load(path, {.use_mmap = false});
    std::filesystem::remove(path);
    const ContextOptions options{.n_ctx = 64, .n_threads = 1};
    Context context(model, options);
    Sampler sampler(model.vocab(), {.temp = 1, .seed = 1});
    ReceiptRecorder recorder(context, options);
    std::vector<Token> tokens{Token{1}, Token{5}};
    for (int i = 0; i < 4; ++i) {
        if (context.decode(tokens) != DecodeStatus::ok) return 1;
        tokens = {sampler.sample(context.logits())};
        recorder.add(context.logits(), tokens[0]);
    }
    Receipt receipt = recorder.receipt({}, sampler);
    receipt.prompt = {Token{1}, Token{5}};
    std::ofstream(folder / "plain.json") << receipt.json();
    receipt.add_hashes(model);
    receipt.nodes.resize(std::min<std::size_t>(receipt.nodes.size(), 4));
    receipt.encoded = {Token{3}};
    receipt.stops = {"end", "\n"};
    receipt.overrides = {{"a", std::int64_t{1}}, {"b", 1.5}, {"c", true}, {"d", std::string("x")}};
    receipt.options.rope_freq_base = 10000.0f;
    receipt.options.rope_scaling = RopeScaling::yarn;
    receipt.options.yarn_orig_ctx = 64;
    std::ofstream(folder / "all.json") << receipt.json();
    return 0;
}
