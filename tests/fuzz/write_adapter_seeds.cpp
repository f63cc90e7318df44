// SPDX-License-Identifier: MIT
// Writes seeds for fuzz_adapter: adapters of its model in a few types, and a control vector.
#include <filesystem>
#include <string>

#include "support/adapter_files.hpp"
#include "support/tiny_model.hpp"

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    using namespace tinfer::test;
    const std::filesystem::path folder = argv[1];
    std::filesystem::create_directories(folder);
    TinyModel tiny;
    tiny.n_embd = tiny.n_ff = 32;
    tiny.n_vocab = 16;
    const GgufWriter model = tiny.writer();
    int n = 0;
    for (const auto type : {tinfer::DType::f32, tinfer::DType::f16, tinfer::DType::q8_0})
        lora_for(model, {.names = {"blk.0.attn_q.weight", "token_embd.weight", "output.weight"},
                         .rank = type == tinfer::DType::q8_0 ? 32 : 2,
                         .type = type})
            .save(folder / ("lora-" + std::to_string(n++) + ".gguf"));
    control_vector(32, 1, 1, 1).save(folder / "control.gguf");
}
