// SPDX-License-Identifier: MIT
// Writes seeds for fuzz_model: a tiny model of every architecture that needs no golden data, some in a few weight
// types.
#include <filesystem>

#include "support/family_model.hpp"
#include "support/jina_model.hpp"
#include "support/t5_model.hpp"
#include "support/tiny_model.hpp"

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    using namespace tinfer::test;
    const std::filesystem::path folder = argv[1];
    std::filesystem::create_directories(folder);
    for (const char* arch : {"llama", "qwen2", "qwen3", "llama-moe", "qwen2moe", "qwen3moe"})
        for (const auto type : {tinfer::DType::f32, tinfer::DType::q5_1, tinfer::DType::q3_k}) {
            auto tiny = TinyModel::of(arch, type);
            tiny.n_layer = 1;
            tiny.save(folder);
        }
    int n = 0;  // several of one architecture differ in what they have
    for (const Family& family : small_families())
        if (family.n_layer <= 4) family.writer().save(folder / (family.arch + "-" + std::to_string(n++) + ".gguf"));
    SmallJina(false, true, true, 3).file.save(folder / "jina.gguf");
    SmallT5({.gated = false}).file.save(folder / "t5.gguf");
    SmallT5({.decoder = false}).file.save(folder / "t5encoder.gguf");
    latent_model(tinfer::DType::q8_0, true).save(folder / "latent.gguf");
}
