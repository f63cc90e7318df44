// SPDX-License-Identifier: MIT
// Writes seeds for fuzz_trace_reader: recordings of tiny models, one with everything that a trace may hold.
#include <filesystem>

#include "support/tiny_model.hpp"
#include "tinfer/trace.hpp"

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    using namespace tinfer;
    const std::filesystem::path folder = argv[1];
    std::filesystem::create_directories(folder);
    for (const char* arch : {"llama", "qwen3moe"})
        for (const bool all : {false, true}) {
            auto tiny = test::TinyModel::of(arch);
            tiny.n_layer = 1;
            const auto path = tiny.save(folder);
            const Model model = Model::load(path);
            std::filesystem::remove(path);
            Context context(model, {.n_ctx = 64, .n_threads = 2});
            const auto name = std::string(arch) + (all ? "-all" : "") + ".tntrace";
            const auto file = std::make_shared<TraceFile>(
                folder / name, TraceFileOptions{.level = all ? TraceLevel::threads : TraceLevel::steps,
                                                .extras = {all, all, all, false, all},
                                                .overwrite = true});
            {
                const auto attached = context.attach(file);
                for (int i = 0; i < 2; ++i)
                    if (context.decode({Token{1}, Token{2}}) != DecodeStatus::ok) return 1;
                context.mark("half");
                if (context.decode({Token{1}}) != DecodeStatus::ok) return 1;
            }
            file->close();
        }
    return 0;
}
