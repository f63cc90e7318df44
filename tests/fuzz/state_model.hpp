// SPDX-License-Identifier: MIT
// The model whose states are fuzzed: the same bytes for the seeds and the target.
#pragma once

#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

namespace tinfer::test {

inline const ContextOptions kStateOptions{.n_ctx = 64, .n_seq_max = 3, .n_threads = 1};

inline Model state_model() {
    const TempFolder folder;
    TinyModel tiny;
    tiny.n_layer = 1;
    tiny.n_embd = 32;
    tiny.n_head = 2;
    tiny.n_head_kv = 1;
    tiny.n_ff = 32;
    tiny.n_vocab = 48;
    return Model::load(tiny.save(folder.path()), {.use_mmap = false});
}

}  // namespace tinfer::test
