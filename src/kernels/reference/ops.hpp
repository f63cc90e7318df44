// SPDX-License-Identifier: MIT
// The reference kernels apart from the products (reference/mul_mat.hpp): plain loops that define, operation by
// operation, the bits every other table must return (numerics rule 1). The order of operations is written at each
// function. Operand slots: kernels/ops.hpp.
#pragma once

#include <cstdint>

#include "kernels/kernel.hpp"

namespace tinfer::kernels::ref {

RunFn rms_norm, layer_norm, l2_norm, rms_norm_quantize, softmax, sum_rows, sinkhorn;  // norm.cpp
RunFn add, mul, div, scale, copy, concat;                                             // elementwise.cpp
RunFn silu, gelu, relu, tanh, sigmoid, clamp, exp, softplus, xielu, signed_sqrt;
RunFn silu_mul, silu_mul_quantize;
RunFn rope_table, rope, log_temperature;                          // rope.cpp
RunFn hadamard;                                                   // hadamard.cpp
RunFn relative_bias;                                              // relative_bias.cpp
RunFn kv_write, rope_kv_write, key_shift, kv_copy_page, kv_move;  // cache.cpp
RunFn segment_sum;                                                // pooling.cpp
RunFn attention;                                                  // attention.cpp
RunFn select_keys, sparse_attention, latest_mark;                 // sparse_attention.cpp
RunFn compress_keys, compressed_attention, ngram_rows;            // compressed.cpp
RunFn causal_conv, token_shift, selective_scan;                   // recurrent.cpp
RunFn wkv6, wkv7, delta_rule, decay_rule;
RunFn top_k, moe_weights, moe_sum, keep_groups, divide_ids, add_id;  // moe.cpp

/// Pair i of a head, x and the result being of head_dim floats: the one place that rotates (rope, rope_kv_write).
/// table = {magnitude·cos, magnitude·sin} of each pair.
struct Rotated {
    float a, c;
};
[[nodiscard]] Rotated rotate(float a, float c, const float* table, std::int64_t pair) noexcept;

/// y = H·x of a block of n = 2^k values, y may be x: the one place that does (hadamard, key_shift).
void hadamard_block(const float* x, std::int64_t n, float* y) noexcept;
/// The two elements that make up pair i of n_rot dimensions.
struct Pair {
    std::int64_t a, c;
};
[[nodiscard]] constexpr Pair pair_of(const RopeParams& rope, std::int64_t i) noexcept {
    return rope.neox != 0 ? Pair{i, i + rope.n_rot / 2} : Pair{2 * i, 2 * i + 1};
}

}  // namespace tinfer::kernels::ref
