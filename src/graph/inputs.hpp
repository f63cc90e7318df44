// SPDX-License-Identifier: MIT
// What the graphs of a context read besides weights and caches. Families name an input when they build a graph, the
// runtime knows its memory; observers see its role.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tinfer::graph {

enum class Input : std::uint8_t {
    tokens,           ///< i32 {T}: ids
    embeddings,       ///< f32 {n_embd, T}: rows in place of ids
    hidden,           ///< f32 {n, T}: of a part of a model, what the layers before have left
    states,           ///< f32 {n_state, T}: of a draft head, what its target has computed
    positions,        ///< i32 {T}; of a key shift: by how many positions
    marks,            ///< f32 {1, 1, T}: number of the adapter that a token switches to
    ngram_ids,        ///< i32 {T}
    ngram_constants,  ///< i32 {2, n}: 64 bits each
    kv_slots,         ///< i32 {T}: where K and V of each token go
    kv_table,         ///< i32 {4, entries}: pages of sequences (kernels/ops.hpp)
    kv_seqs,          ///< i32 {2, sequences}
    kv_spans,         ///< i32 {4, T}: what each token sees
    kv_spans_window,  ///< the same in layers with a window
    kv_slots_window,  ///< where layers with a window have a pool of their own: slots, table and page copies there
    kv_table_window,
    kv_pairs_window,
    kv_positions,  ///< i32 {slots}: of the token in each slot
    cross_table,   ///< cross-attention: table and sequences of the encoder's K and V, and what each token sees
    cross_seqs,
    cross_spans,
    kv_pairs,         ///< i32 {2, n_seq_max}: pages that are copied
    kv_moves,         ///< i32 {3, n}: slots that are moved
    kv_moves_window,  ///< the same in the pool of windows
    state_rows,       ///< i32 {2, T}: rows of recurrent states
    out_rows,         ///< i32 {n_outputs}: rows of the micro-batch that are outputs
    types,            ///< i32 {T}: zeros
    pool_rows,        ///< i32 {n_outputs}: the sequence of each row that is pooled
    pool_sums,        ///< f32 {n_embd, n_seq_max}: sums of the runs before
    pool_counts,      ///< f32 {1, n_seq_max}
    count_
};
inline constexpr std::size_t kInputs = static_cast<std::size_t>(Input::count_);

/// The role of its value.
[[nodiscard]] std::string_view to_string(Input input) noexcept;

}  // namespace tinfer::graph
