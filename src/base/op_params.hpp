// SPDX-License-Identifier: MIT
// The attributes of an operation, shared by graph nodes (which carry them), the verifier (which checks them) and
// kernels (which obey them). One plain struct: every field is four bytes wide, so that it can be hashed and compared as
// bytes.
#pragma once

#include <cstdint>

namespace tinfer {

/// RoPE, spec notation: pair i of `n_rot` dimensions is rotated by p · freq_scale · freq_base^(-2i/n_rot)
/// (arXiv:2104.09864), with YaRN's mix (arXiv:2309.00071) where ext_factor ≠ 0. `magnitude` multiplies cos and sin and
/// is final.
struct RopeParams {
    std::int32_t n_rot = 0;
    std::int32_t neox = 0;  ///< 1: pairs (i, i + n_rot/2); 0: pairs (2i, 2i+1)
    float freq_base = 10000.0f;
    float freq_scale = 1.0f;
    float ext_factor = 0.0f;
    float magnitude = 1.0f;
    float beta_fast = 32.0f, beta_slow = 1.0f;
    std::int32_t n_ctx_orig = 0;
    /// Numbers of pairs whose angle follows time, height, width and none of them; all 0: every pair follows the
    /// position. Text has one position for the first three; pairs of the fourth are not rotated.
    std::int32_t sections[4] = {0, 0, 0, 0};
    std::int32_t interleaved = 0;  ///< 1: sections take turns pair by pair (Qwen3-VL); 0: one section after another
    std::int32_t offset = 0;       ///< rope_table: added to every position
    std::int32_t backward = 0;     ///< rope_table: 1: rotates by the negative angle
};

/// Attention and cache rows: head counts, sizes and score transforms.
struct AttentionParams {
    std::int32_t n_head = 0, n_head_kv = 0;
    std::int32_t head_dim_k = 0, head_dim_v = 0;
    float scale = 1.0f;
    float softcap = 0.0f;   ///< 0 = none: score = c · tanh(score / c)
    float max_bias = 0.0f;  ///< ALiBi; 0 = none
};

struct OpParams {
    float eps = 0.0f;               ///< rms_norm, layer_norm, l2_norm
    std::int32_t eps_is_floor = 0;  ///< l2_norm: of the norm, instead of an addend under the root
    float scale = 1.0f;             ///< scale; moe_weights
    float low = 0.0f, high = 0.0f;  ///< clamp; signed_sqrt: least absolute value (low)
    std::int32_t k = 0;             ///< top_k; keep_groups: groups that stay; select_keys: tokens or blocks chosen;
                                    ///< sinkhorn: rounds; ngram_rows: longest n-gram
    std::int32_t block = 1;  ///< select_keys: positions that are chosen together; compress_keys: tokens of a group;
                             ///< hadamard: values of a block; key_shift: the same of stored keys, 1: there is none
    std::int32_t local = 0;  ///< select_keys: newest blocks that come first
    /// select_keys: a block's score is that of its last token; an unfinished block has none.
    std::int32_t whole_blocks = 0;
    std::int32_t last_only = 0;     ///< select_keys: the last token of each chosen block alone is listed
    std::int32_t overlap = 0;       ///< compress_keys: a group also reads the group before it
    std::int32_t dilation = 1;      ///< causal_conv: distance of the tokens that it sees
    std::int32_t modulo_heads = 0;  ///< delta_rule: value head h reads key head h mod Hk
    std::int32_t n_group = 0;       ///< keep_groups
    std::int32_t normalize = 0;     ///< moe_weights: divide by the sum of the chosen gate values
    std::int32_t is_v = 0;          ///< kv_write: the rows go into a V cache (row layout), not a K cache
    std::int32_t first = 0;         ///< key_shift: first element of a head that is rotated; log_temperature: p0;
                                    ///< ngram_rows: id that ends a text
    std::int32_t max_distance = 0;  ///< relative_bias: positions from which on all share a bucket
    std::int32_t both_sides = 0;    ///< relative_bias: keys after the query have buckets of their own
    RopeParams rope{};
    AttentionParams attention{};
};
static_assert(sizeof(OpParams) % 4 == 0);

}  // namespace tinfer
