// SPDX-License-Identifier: MIT
// Writes seeds for fuzz_model: a tiny model of every architecture, in a few weight types.
#include <filesystem>

#include "support/tiny_model.hpp"

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    std::filesystem::create_directories(argv[1]);
    for (const char* arch : {"llama", "qwen2", "qwen3", "llama-moe", "qwen2moe", "qwen3moe"})
        for (const auto type : {tinfer::DType::f32, tinfer::DType::q5_1, tinfer::DType::q3_k}) {
            auto tiny = tinfer::test::TinyModel::of(arch, type);
            tiny.n_layer = 1;
            tiny.save(argv[1]);
        }
}
