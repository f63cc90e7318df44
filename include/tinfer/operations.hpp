// SPDX-License-Identifier: MIT
// What a kernel can compute and how it touches its operands: the words that graph, kernels and observers share.
//
//     std::cout << to_string(tinfer::Op::mul_mat) << '\n';   // "mul_mat"
//     const tinfer::AccessRange row{.offset = 4096, .length = 512};
//     std::cout << "bytes " << row.offset << " to " << row.offset + row.length << '\n';
#pragma once

#include <cstdint>
#include <string_view>

#include "tinfer/export.hpp"

namespace tinfer {

/// Operations of graph nodes and, from rms_norm_quantize on, of fused steps.
// clang-format off
enum class Op : std::uint16_t {
    none, input, alias,          ///< no step: graph inputs, weights, views
    get_rows,                    ///< rows of a (quantized) matrix by index, as f32: embedding lookup, output selection
    rms_norm,                    ///< y = w · x / sqrt(mean(x²) + eps), per row; w optional
    layer_norm,                  ///< y = w · (x − mean) / sqrt(var + eps) + b, per row; w and b optional
    quantize,                    ///< f32 row → x8_32 or x8_256
    mul_mat,                     ///< y[n,t] = ⟨W[n], x[t]⟩
    mul_mat_id,                  ///< the same with one of X stacked matrices per row, chosen by index: experts
    mul_mat_heads,               ///< y[:,h,t] = W[h] x[:,h,t]: a matrix of its own for every head
    l2_norm,                     ///< y = x / sqrt(Σ x² + eps), or x / max(sqrt(Σ x²), eps), per row
    add, mul, div, scale,
    silu, gelu, relu, tanh, sigmoid, clamp,   ///< gelu in its tanh form
    exp, softplus,
    xielu,                       ///< ap·z² + b·z above 0, an·(exp(min(z, eps)) − 1 − z) + b·z else
    signed_sqrt,                 ///< sign(x) · sqrt(max(|x|, low))
    sinkhorn,                    ///< matrices made nearly doubly stochastic: rows and columns divided by their sums in turn
    softmax,
    sum_rows,                    ///< y = Σ x, per row
    copy,
    concat,                      ///< rows of a, then rows of b
    rope_table,                  ///< cos and sin of every (position, pair)
    rope,                        ///< rotates pairs of each head by the table
    hadamard,                    ///< y = H·x of every block of a row, H orthogonal and its own inverse (Walsh-Hadamard)
    relative_bias,               ///< what each head adds to the score of a key so many positions ahead, by buckets (T5)
    kv_write,                    ///< rows of K or V into slots of the cache
    select_keys,                 ///< which slots a query attends to: those an indexer ranks best (sparse attention)
    sparse_attention,            ///< attention over the slots of such a choice
    compressed_attention,        ///< attention over the newest tokens, and over one entry for each group of older ones
    latest_mark,                 ///< the mark (a number) of the newest visible token that has one
    attention,                   ///< online softmax over the visible slots of each query's sequence
    causal_conv,                 ///< per channel, over a token and those before it: y = Σ_j K[j]·x[t−n+1+j] + b
    compress_keys,               ///< one entry for every group of tokens: their mean, or weighted by a softmax over them
    ngram_rows,                  ///< rows of tables for a token and those before it, by hashes of their ids
    token_shift,                 ///< the token before minus the token: y = x[t−1] − x[t]
    selective_scan,              ///< h ← h·exp(Δ·a) + Δ·x·B, y = ⟨h, C⟩ + D·x (Mamba)
    wkv6, wkv7,                  ///< the recurrences of RWKV-6 and RWKV-7
    delta_rule,                  ///< S ← γS + k ⊗ β(v − γSᵀk), y = Sᵀq (gated delta net)
    decay_rule,                  ///< S ← λS + k ⊗ v, y = Sᵀq, λ fixed for each head (lightning attention)
    top_k,                       ///< indices of the k largest, descending, ties by lower index
    moe_weights,                 ///< gate values of the chosen experts, normalized and scaled
    moe_sum,                     ///< weighted sum of expert outputs in the router's order
    keep_groups,                 ///< scores of the best groups of experts, −inf for the others
    divide_ids,                  ///< floor(id / n)
    add_id,                      ///< adds the bias of the chosen expert to each row
    log_temperature,             ///< 1 + c · ln(1 + floor((p + p0) / n)) of every position p
    segment_sum,                 ///< adds each row to the sum of its segment: pooling
    key_shift,                   ///< rotates keys inside the cache by a difference of positions
    kv_copy_page,                ///< whole pages inside the cache: copy on write
    kv_move,                     ///< slots inside the cache: compaction
    // fused steps
    rms_norm_quantize, silu_mul, silu_mul_quantize, mul_mat_add, rope_kv_write,
    count_
};
// clang-format on

/// "mul_mat" for Op::mul_mat.
[[nodiscard]] TINFER_API std::string_view to_string(Op op) noexcept;

/// What a kernel does with an operand.
enum class AccessMode : std::uint8_t { read = 1, write = 2, read_write = 3 };
[[nodiscard]] TINFER_API std::string_view to_string(AccessMode mode) noexcept;

/// `count` pieces of `length` bytes, `stride` apart, from `offset` inside the tensor. Sorted, disjoint, merged.
struct AccessRange {
    std::uint64_t offset = 0, length = 0, stride = 0;
    std::uint32_t count = 1;
    std::uint32_t tag = 0;     ///< token id, expert id, sequence, … (what the operand is indexed by)
    std::uint32_t weight = 0;  ///< how often
    bool padding = false;      ///< loaded along with its neighbours, not used: slots of a K group that no query sees
    bool operator==(const AccessRange&) const = default;
};

}  // namespace tinfer
