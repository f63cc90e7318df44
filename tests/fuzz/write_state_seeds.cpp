// SPDX-License-Identifier: MIT
// Writes seeds for fuzz_state: states of a whole context and of one sequence, with every section, and a block.
#include <filesystem>
#include <fstream>

#include "runtime/state/block.hpp"
#include "state_model.hpp"
#include "tinfer/state.hpp"

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    using namespace tinfer;
    const std::filesystem::path folder = argv[1];
    std::filesystem::create_directories(folder);
    const Model model = test::state_model();
    Context context(model, test::kStateOptions);
    const auto tokens = test::random_tokens(12, 48, 3);
    if (context.decode(std::span(tokens).first(4)) != DecodeStatus::ok) return 1;
    context.seq_cp(SeqId{0}, SeqId{1});
    Batch batch;
    batch.add(tokens[4], {}, SeqId{1}, true);
    batch.add(tokens[5], {}, SeqId{2}, true);
    if (context.decode(batch) != DecodeStatus::ok) return 1;
    const std::array sampler{std::byte{1}, std::byte{2}};
    save_state_file(context, folder / "context.state", {.tokens = tokens, .sampler = sampler});
    save_state_file(context, folder / "sequence.state", {.seq = SeqId{1}, .tokens = tokens});
    save_state_file(context, folder / "empty.state", {.seq = SeqId{0}});
    runtime::state::BlockKey key;
    key.tokens[3] = Token{7};
    const std::array<std::byte, 40> data{std::byte{5}};
    const auto block = runtime::state::write_block(runtime::state::BlockKind::rows, key, std::nullopt, data);
    std::ofstream(folder / "page.block", std::ios::binary)
        .write(reinterpret_cast<const char*>(block.data()), static_cast<std::streamsize>(block.size()));
    return 0;
}
