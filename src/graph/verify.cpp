// SPDX-License-Identifier: MIT
// The verifier: a table with one row per op that says what is legal, and the rules every node and value obeys. Slots
// and letters are those of kernels/ops.hpp; kernels rely on these rules and check nothing.
#include <algorithm>
#include <cmath>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "graph/plan.hpp"
#include "graph/rules.hpp"
#include "graph/text.hpp"

namespace tinfer::graph {

namespace {

using Extents = std::array<std::int64_t, 4>;

// A node with its operands looked up. Slot 0 is the result, slot i the i-th input.
struct Site {
    const Node& node;
    std::span<const Value> values;

    [[nodiscard]] bool has(std::uint32_t slot) const noexcept {
        return slot <= node.n_inputs && node.inputs[slot - 1] != kNone;
    }
    [[nodiscard]] const Value& operator[](std::uint32_t slot) const noexcept {
        return values[slot == 0 ? node.output : node.inputs[slot - 1]];
    }
    [[nodiscard]] const OpParams& params() const noexcept { return node.params; }
};

bool is_shape(const Value& v, std::int64_t n0, std::int64_t n1 = 1, std::int64_t n2 = 1) noexcept {
    return v.ne == Extents{n0, n1, n2, 1};
}
bool is_f32(const Value& v) noexcept { return v.type == DType::f32 && v.nb[0] == 4; }
bool is_i32(const Value& v) noexcept { return v.type == DType::i32 && v.nb[0] == 4; }
bool is_cache(const Value& v) noexcept {
    return v.tensor_class == TensorClass::cache_k || v.tensor_class == TensorClass::cache_v;
}
bool is_state(const Value& v, std::int64_t size) noexcept {
    return v.tensor_class == TensorClass::recurrent && is_f32(v) && v.ne[0] == size && !v.is_view;
}
bool is_gapless(const Value& v) noexcept { return v.nb == contiguous_strides(v.type, v.ne); }

// The activations that weights of this type multiply with; none for types without a product.
DType partner(const Value& w) noexcept {
    const DTypeInfo* info = find_dtype(w.type);
    return info == nullptr ? DType::none : info->activation;
}

#define TINFER_RULE(condition, text)                                                                                   \
    if (!(condition)) return text

const char* get_rows_rule(const Site& s) noexcept {
    TINFER_RULE(partner(s[1]) != DType::none, "the matrix has a type that cannot be unpacked");
    TINFER_RULE(s[1].ne[2] == 1 && s[1].ne[3] == 1, "the matrix must be {n,N}");
    TINFER_RULE(is_i32(s[2]) && is_shape(s[2], s[2].ne[0]), "ids must be i32 {T}");
    TINFER_RULE(is_f32(s[0]) && is_shape(s[0], s[1].ne[0], s[2].ne[0]), "result must be f32 {n,T}");
    return nullptr;
}

// {n}, or {n,H}: one row per head.
bool is_per_row(const Value& weight, const Value& x) noexcept {
    return is_f32(weight) && (is_shape(weight, x.ne[0]) || is_shape(weight, x.ne[0], x.ne[1]));
}

const char* norm_rule(const Site& s) noexcept {
    TINFER_RULE(is_f32(s[1]), "x must be f32");
    TINFER_RULE(!s.has(2) || is_per_row(s[2], s[1]), "weight must be f32 with one value per element of a row");
    TINFER_RULE(!s.has(3) || is_per_row(s[3], s[1]), "bias must be f32 with one value per element of a row");
    TINFER_RULE(s.params().eps >= 0.0f && std::isfinite(s.params().eps), "eps must be finite and not negative");
    TINFER_RULE(is_f32(s[0]) && s[0].ne == s[1].ne, "result must be f32 like x");
    return nullptr;
}

const char* quantize_rule(const Site& s) noexcept {
    TINFER_RULE(is_f32(s[1]), "x must be f32");
    TINFER_RULE(is_activation(s[0].type), "result must be x8_32 or x8_256");
    TINFER_RULE(s[1].ne[0] % find_dtype(s[0].type)->block_elems == 0, "rows are no whole number of blocks");
    TINFER_RULE(s[0].ne == s[1].ne && s[1].ne[3] == 1, "result must have the shape of x, {K,R1,R2}");
    return nullptr;
}

const char* mul_mat_rule(const Site& s) noexcept {
    TINFER_RULE(partner(s[1]) != DType::none, "W has a type without a product");
    TINFER_RULE(s[1].ne[2] == 1 && s[1].ne[3] == 1, "W must be {K,N}");
    TINFER_RULE(s[2].ne[0] == s[1].ne[0], "inner extents differ");
    TINFER_RULE(s[2].ne[2] == 1 && s[2].ne[3] == 1, "x must be {K,T}");
    TINFER_RULE(s[2].type == partner(s[1]), "x has not the type that W multiplies with");
    TINFER_RULE(is_f32(s[0]) && is_shape(s[0], s[1].ne[1], s[2].ne[1]), "result must be f32 {N,T}");
    return nullptr;
}

const char* mul_mat_id_rule(const Site& s) noexcept {
    TINFER_RULE(partner(s[1]) != DType::none, "W has a type without a product");
    TINFER_RULE(s[1].ne[3] == 1, "W must be {K,N,X}");
    TINFER_RULE(s[2].ne[0] == s[1].ne[0], "inner extents differ");
    TINFER_RULE(is_i32(s[3]) && is_shape(s[3], s[3].ne[0], s[3].ne[1]), "ids must be i32 {k,T}");
    TINFER_RULE(s[3].ne[0] <= s[1].ne[2], "more ids per token than experts");
    TINFER_RULE((s[2].ne[1] == 1 || s[2].ne[1] == s[3].ne[0]) && s[2].ne[2] == s[3].ne[1] && s[2].ne[3] == 1,
                "x must be {K,1,T} or {K,k,T}");
    TINFER_RULE(s[2].type == partner(s[1]), "x has not the type that W multiplies with");
    TINFER_RULE(is_f32(s[0]) && is_shape(s[0], s[1].ne[1], s[3].ne[0], s[3].ne[1]), "result must be f32 {N,k,T}");
    return nullptr;
}

const char* mul_mat_heads_rule(const Site& s) noexcept {
    TINFER_RULE(partner(s[1]) != DType::none, "W has a type without a product");
    TINFER_RULE(s[1].ne[3] == 1, "W must be {K,N,H}");
    TINFER_RULE(s[2].ne[0] == s[1].ne[0], "inner extents differ");
    TINFER_RULE(s[2].ne[1] == s[1].ne[2] && s[2].ne[3] == 1, "x must be {K,H,T}");
    TINFER_RULE(s[2].type == partner(s[1]), "x has not the type that W multiplies with");
    TINFER_RULE(is_f32(s[0]) && is_shape(s[0], s[1].ne[1], s[2].ne[1], s[2].ne[2]), "result must be f32 {N,H,T}");
    return nullptr;
}

const char* broadcast_rule(const Site& s) noexcept {
    const Extents &a = s[1].ne, &b = s[2].ne;
    TINFER_RULE(is_f32(s[1]) && is_f32(s[2]), "a and b must be f32");
    TINFER_RULE(a == b || is_shape(s[2], a[0]) || is_shape(s[2], 1) || b == (Extents{1, a[1], a[2], a[3]}),
                "b must be like a, {n}, {1}, or {1,…}");
    TINFER_RULE(is_f32(s[0]) && s[0].ne == a, "result must be f32 like a");
    return nullptr;
}

const char* elementwise_rule(const Site& s) noexcept {
    TINFER_RULE(is_f32(s[1]), "x must be f32");
    TINFER_RULE(is_f32(s[0]) && s[0].ne == s[1].ne, "result must be f32 like x");
    return nullptr;
}

const char* l2_norm_rule(const Site& s) noexcept {
    TINFER_RULE(s.params().eps > 0.0f && std::isfinite(s.params().eps), "eps must be finite and above 0");
    return elementwise_rule(s);
}

const char* clamp_rule(const Site& s) noexcept {
    TINFER_RULE(s.params().low <= s.params().high, "low must not exceed high");
    return elementwise_rule(s);
}

const char* concat_rule(const Site& s) noexcept {
    const Extents &a = s[1].ne, &b = s[2].ne;
    TINFER_RULE(is_f32(s[1]) && is_f32(s[2]), "a and b must be f32");
    TINFER_RULE(a[3] == 1 && b[3] == 1 && b[2] == a[2] && (b[1] == a[1] || b[1] == 1), "b must be {m,H,T} or {m,1,T}");
    TINFER_RULE(is_f32(s[0]) && is_shape(s[0], a[0] + b[0], a[1], a[2]), "result must be f32 {n+m,H,T}");
    return nullptr;
}

const char* softmax_rule(const Site& s) noexcept {
    TINFER_RULE(s[1].ne[2] == 1 && s[1].ne[3] == 1, "x must be {n,T}");
    return elementwise_rule(s);
}

const char* sum_rows_rule(const Site& s) noexcept {
    TINFER_RULE(is_f32(s[1]), "x must be f32");
    TINFER_RULE(is_f32(s[0]) && s[0].ne == (Extents{1, s[1].ne[1], s[1].ne[2], s[1].ne[3]}),
                "result must be f32 {1,…}");
    return nullptr;
}

const char* copy_rule(const Site& s) noexcept {
    TINFER_RULE(is_float(s[1].type), "x must be f32, f16 or bf16");
    TINFER_RULE(is_f32(s[0]) && s[0].ne == s[1].ne, "result must be f32 of x's shape");
    TINFER_RULE(is_gapless(s[0]), "result must be contiguous");
    return nullptr;
}

const char* rope_table_rule(const Site& s) noexcept {
    const RopeParams& rope = s.params().rope;
    TINFER_RULE(is_i32(s[1]) && is_shape(s[1], s[1].ne[0]), "positions must be i32 {T}");
    TINFER_RULE(rope.n_rot > 0 && rope.n_rot % 2 == 0, "n_rot must be even and positive");
    TINFER_RULE(rope.freq_base > 0.0f && std::isfinite(rope.freq_base), "freq_base must be positive");
    TINFER_RULE(!s.has(2) || (is_f32(s[2]) && s[2].ne[0] >= rope.n_rot / 2), "factors must be f32 with n_rot/2 values");
    TINFER_RULE(is_f32(s[0]) && is_shape(s[0], rope.n_rot, s[1].ne[0]), "result must be f32 {n_rot,T}");
    return nullptr;
}

const char* rope_rule(const Site& s) noexcept {
    TINFER_RULE(is_f32(s[1]) && s[1].ne[3] == 1, "x must be f32 {d,H,T}");
    TINFER_RULE(is_f32(s[2]) && is_shape(s[2], s.params().rope.n_rot, s[1].ne[2]), "the table must be f32 {n_rot,T}");
    TINFER_RULE(s.params().rope.n_rot <= s[1].ne[0], "n_rot exceeds the head");
    TINFER_RULE(is_f32(s[0]) && s[0].ne == s[1].ne, "result must be f32 like x");
    return nullptr;
}

const char* relative_bias_rule(const Site& s) noexcept {
    const std::int64_t farthest = s.params().max_distance, n_bucket = s[1].ne[1],
                       n_side = s.params().both_sides != 0 ? n_bucket / 2 : n_bucket;
    TINFER_RULE(is_f32(s[1]) && is_shape(s[1], s[1].ne[0], n_bucket), "table must be f32 {H,buckets}");
    TINFER_RULE(n_side >= 2 && n_side / 2 < farthest,
                "a side must have at least 2 buckets, and fewer than 2·max_distance");
    TINFER_RULE(is_f32(s[0]) && is_shape(s[0], 2 * farthest + 1, s[1].ne[0]), "result must be f32 {2D+1,H}");
    return nullptr;
}

const char* kv_write_rule(const Site& s) noexcept {
    const AttentionParams& a = s.params().attention;
    const std::int64_t d = s.params().is_v != 0 ? a.head_dim_v : a.head_dim_k;
    TINFER_RULE(s[0].tensor_class == (s.params().is_v != 0 ? TensorClass::cache_v : TensorClass::cache_k),
                "the cache is of the other kind");
    TINFER_RULE(is_f32(s[1]) && is_shape(s[1], d, a.n_head_kv, s[1].ne[2]), "rows must be f32 {head_dim,n_head_kv,T}");
    TINFER_RULE(s[0].ne[0] == d * a.n_head_kv, "a cache row must hold head_dim · n_head_kv values");
    TINFER_RULE(is_i32(s[2]) && is_shape(s[2], s[1].ne[2]), "cells must be i32 {T}");
    return nullptr;
}

const char* attention_rule(const Site& s) noexcept {
    const AttentionParams& a = s.params().attention;
    TINFER_RULE(a.n_head > 0 && a.n_head_kv > 0 && a.n_head % a.n_head_kv == 0,
                "n_head must be a multiple of n_head_kv");
    TINFER_RULE(is_f32(s[1]) && is_shape(s[1], a.head_dim_k, a.n_head, s[1].ne[2]),
                "q must be f32 {head_dim_k,n_head,T}");
    TINFER_RULE(s[2].tensor_class == TensorClass::cache_k && s[2].ne[0] == std::int64_t{a.head_dim_k} * a.n_head_kv,
                "keys must be a K cache of n_head_kv heads");
    TINFER_RULE(s[3].tensor_class == TensorClass::cache_v && s[3].ne[0] == std::int64_t{a.head_dim_v} * a.n_head_kv,
                "values must be a V cache of n_head_kv heads");
    TINFER_RULE(is_i32(s[4]) && is_shape(s[4], 4, s[4].ne[1]), "kv_table must be i32 {4,entries}");
    TINFER_RULE(is_i32(s[5]) && is_shape(s[5], 2, s[5].ne[1]), "kv_seqs must be i32 {2,sequences}");
    TINFER_RULE(is_i32(s[6]) && is_shape(s[6], 4, s[1].ne[2]), "kv_spans must be i32 {4,T}");
    TINFER_RULE(!s.has(7) || (is_f32(s[7]) && is_shape(s[7], a.n_head)), "sinks must be f32 {n_head}");
    TINFER_RULE(a.max_bias == 0.0f || s.has(8), "ALiBi needs kv_positions");
    TINFER_RULE(!s.has(9) || s.has(8), "a bias by distance needs kv_positions");
    TINFER_RULE(!s.has(9) ||
                    (is_f32(s[9]) && is_gapless(s[9]) && is_shape(s[9], s[9].ne[0], a.n_head) && s[9].ne[0] % 2 == 1),
                "the bias must be f32 {2D+1,n_head}");
    TINFER_RULE(!s.has(8) || (is_i32(s[8]) && is_shape(s[8], s[2].ne[1])), "kv_positions must be i32 {cells}");
    TINFER_RULE(is_f32(s[0]) && is_shape(s[0], std::int64_t{a.head_dim_v} * a.n_head, s[1].ne[2]),
                "result must be f32 {head_dim_v·n_head,T}");
    return nullptr;
}

// The state behind the operands of a recurrent op, in slots `slot` and `slot` + 1.
const char* state_rule(const Site& s, std::uint32_t slot, std::int64_t size, std::int64_t n_tokens) noexcept {
    TINFER_RULE(is_state(s[slot], size), "a state's rows have another size");
    TINFER_RULE(is_i32(s[slot + 1]) && is_shape(s[slot + 1], 2, n_tokens), "state_rows must be i32 {2,T}");
    return nullptr;
}

const char* causal_conv_rule(const Site& s) noexcept {
    const std::int64_t n_channels = s[1].ne[0], n = s[2].ne[0];
    TINFER_RULE(is_f32(s[1]) && is_shape(s[1], n_channels, s[1].ne[1]), "x must be f32 {C,T}");
    TINFER_RULE(is_f32(s[2]) && is_shape(s[2], n, n_channels) && n >= 2,
                "weight must be f32 {n,C} with n of at least 2");
    TINFER_RULE(!s.has(3) || (is_f32(s[3]) && is_shape(s[3], n_channels)), "bias must be f32 {C}");
    TINFER_RULE(is_f32(s[0]) && s[0].ne == s[1].ne, "result must be f32 like x");
    return state_rule(s, 4, (n - 1) * n_channels, s[1].ne[1]);
}

const char* token_shift_rule(const Site& s) noexcept {
    TINFER_RULE(is_f32(s[1]) && is_shape(s[1], s[1].ne[0], s[1].ne[1]), "x must be f32 {E,T}");
    TINFER_RULE(is_f32(s[0]) && s[0].ne == s[1].ne, "result must be f32 like x");
    return state_rule(s, 2, s[1].ne[0], s[1].ne[1]);
}

const char* selective_scan_rule(const Site& s) noexcept {
    const std::int64_t n_head = s[1].ne[1], n_tokens = s[1].ne[2], n = s[4].ne[0], n_group = s[4].ne[1];
    TINFER_RULE(is_f32(s[1]) && s[1].ne[3] == 1, "x must be f32 {P,H,T}");
    TINFER_RULE(is_f32(s[2]) && is_shape(s[2], n_head, n_tokens), "dt must be f32 {H,T}");
    TINFER_RULE(is_f32(s[3]) && (is_shape(s[3], n, n_head) || is_shape(s[3], 1, n_head)),
                "a must be f32 {N,H} or {1,H}");
    TINFER_RULE(is_f32(s[4]) && is_shape(s[4], n, n_group, n_tokens), "B must be f32 {N,G,T}");
    TINFER_RULE(is_f32(s[5]) && s[5].ne == s[4].ne, "C must be f32 like B");
    TINFER_RULE(n_head % n_group == 0, "H must be a multiple of G");
    TINFER_RULE(is_f32(s[6]) && is_shape(s[6], n_head), "D must be f32 {H}");
    TINFER_RULE(is_f32(s[0]) && s[0].ne == s[1].ne, "result must be f32 like x");
    return state_rule(s, 7, n * s[1].ne[0] * n_head, n_tokens);
}

const char* wkv6_rule(const Site& s) noexcept {
    const std::int64_t size = s[1].ne[0], n_head = s[1].ne[1], n_tokens = s[1].ne[2];
    for (std::uint32_t slot = 0; slot <= 4; ++slot)
        TINFER_RULE(is_f32(s[slot]) && is_shape(s[slot], size, n_head, n_tokens),
                    "r, k, v, w and the result must be f32 {S,H,T}");
    TINFER_RULE(is_f32(s[5]) && is_shape(s[5], size, n_head), "first must be f32 {S,H}");
    return state_rule(s, 6, size * size * n_head, n_tokens);
}

const char* wkv7_rule(const Site& s) noexcept {
    const std::int64_t size = s[1].ne[0], n_head = s[1].ne[1], n_tokens = s[1].ne[2];
    for (std::uint32_t slot = 0; slot <= 6; ++slot)
        TINFER_RULE(is_f32(s[slot]) && is_shape(s[slot], size, n_head, n_tokens),
                    "all but the state must be f32 {S,H,T}");
    return state_rule(s, 7, size * size * n_head, n_tokens);
}

const char* delta_rule_rule(const Site& s) noexcept {
    const std::int64_t size = s[3].ne[0], n_head = s[3].ne[1], n_tokens = s[3].ne[2], n_key_head = s[1].ne[1];
    TINFER_RULE(is_f32(s[1]) && is_shape(s[1], size, n_key_head, n_tokens), "q must be f32 {S,Hk,T}");
    TINFER_RULE(is_f32(s[2]) && s[2].ne == s[1].ne, "k must be f32 like q");
    TINFER_RULE(is_f32(s[3]) && is_shape(s[3], size, n_head, n_tokens), "v must be f32 {S,H,T}");
    TINFER_RULE(n_head % n_key_head == 0, "H must be a multiple of Hk");
    for (const std::uint32_t slot : {4u, 5u})
        TINFER_RULE(is_f32(s[slot]) && is_shape(s[slot], n_head, n_tokens), "gamma and beta must be f32 {H,T}");
    TINFER_RULE(is_f32(s[0]) && s[0].ne == s[3].ne, "result must be f32 like v");
    return state_rule(s, 6, size * size * n_head, n_tokens);
}

const char* top_k_rule(const Site& s) noexcept {
    TINFER_RULE(is_f32(s[1]) && is_shape(s[1], s[1].ne[0], s[1].ne[1]), "x must be f32 {X,T}");
    TINFER_RULE(s.params().k > 0 && s.params().k <= s[1].ne[0], "k must lie in 1 … X");
    TINFER_RULE(is_i32(s[0]) && is_shape(s[0], s.params().k, s[1].ne[1]), "result must be i32 {k,T}");
    return nullptr;
}

const char* moe_weights_rule(const Site& s) noexcept {
    TINFER_RULE(is_f32(s[1]) && is_shape(s[1], s[1].ne[0], s[1].ne[1]), "probs must be f32 {X,T}");
    TINFER_RULE(is_i32(s[2]) && is_shape(s[2], s[2].ne[0], s[1].ne[1]), "ids must be i32 {k,T}");
    TINFER_RULE(is_f32(s[0]) && s[0].ne == s[2].ne, "result must be f32 {k,T}");
    return nullptr;
}

const char* moe_sum_rule(const Site& s) noexcept {
    TINFER_RULE(is_f32(s[1]) && s[1].ne[3] == 1, "y must be f32 {E,k,T}");
    TINFER_RULE(is_f32(s[2]) && is_shape(s[2], s[1].ne[1], s[1].ne[2]), "weights must be f32 {k,T}");
    TINFER_RULE(is_f32(s[0]) && is_shape(s[0], s[1].ne[0], s[1].ne[2]), "result must be f32 {E,T}");
    return nullptr;
}

const char* keep_groups_rule(const Site& s) noexcept {
    const std::int32_t n = s.params().n_group;
    TINFER_RULE(s[1].ne[2] == 1 && s[1].ne[3] == 1, "x must be {X,T}");
    TINFER_RULE(n > 0 && s[1].ne[0] % n == 0, "X must be a multiple of n_group");
    TINFER_RULE(s.params().k > 0 && s.params().k <= n, "k must lie in 1 … n_group");
    return elementwise_rule(s);
}

const char* add_id_rule(const Site& s) noexcept {
    TINFER_RULE(is_f32(s[1]) && s[1].ne[3] == 1, "x must be f32 {N,k,T}");
    TINFER_RULE(is_f32(s[2]) && is_shape(s[2], s[1].ne[0], s[2].ne[1]), "b must be f32 {N,X}");
    TINFER_RULE(is_i32(s[3]) && is_shape(s[3], s[1].ne[1], s[1].ne[2]), "ids must be i32 {k,T}");
    TINFER_RULE(is_f32(s[0]) && s[0].ne == s[1].ne, "result must be f32 like x");
    return nullptr;
}

const char* log_temperature_rule(const Site& s) noexcept {
    TINFER_RULE(is_i32(s[1]) && is_shape(s[1], s[1].ne[0]), "positions must be i32 {T}");
    TINFER_RULE(s.params().k > 0, "n must be positive");
    TINFER_RULE(is_f32(s[0]) && is_shape(s[0], 1, s[1].ne[0]), "result must be f32 {1,T}");
    return nullptr;
}

const char* segment_sum_rule(const Site& s) noexcept {
    TINFER_RULE(is_f32(s[1]) && is_shape(s[1], s[1].ne[0], s[1].ne[1]), "x must be f32 {E,T}");
    TINFER_RULE(is_i32(s[2]) && is_shape(s[2], s[1].ne[1]), "segments must be i32 {T}");
    TINFER_RULE(is_f32(s[3]) && is_shape(s[3], s[1].ne[0], s[3].ne[1]), "sums must be f32 {E,S}");
    TINFER_RULE(is_f32(s[0]) && s[0].ne == s[3].ne, "result must be f32 like the sums");
    return nullptr;
}

const char* key_shift_rule(const Site& s) noexcept {
    const AttentionParams& a = s.params().attention;
    TINFER_RULE(s[1].tensor_class == TensorClass::cache_k && s[0].root == s[1].root,
                "keys are rotated inside one K cache");
    TINFER_RULE(s[1].ne[0] == std::int64_t{a.head_dim_k} * a.n_head_kv,
                "a cache row must hold head_dim_k · n_head_kv values");
    TINFER_RULE(is_i32(s[3]) && is_shape(s[3], s[3].ne[0]), "cells must be i32 {n}");
    TINFER_RULE(is_f32(s[2]) && is_shape(s[2], s.params().rope.n_rot, s[3].ne[0]), "the table must be f32 {n_rot,n}");
    TINFER_RULE(s.params().first >= 0 && s.params().first + s.params().rope.n_rot <= a.head_dim_k,
                "the rotated part exceeds the head");
    return nullptr;
}

const char* kv_copy_page_rule(const Site& s) noexcept {
    TINFER_RULE(is_cache(s[1]) && is_cache(s[0]) && s[0].root == s[1].root, "pages are copied inside one cache");
    TINFER_RULE(is_i32(s[2]) && is_shape(s[2], 2, s[2].ne[1]), "pairs must be i32 {2,n}");
    return nullptr;
}

const char* kv_move_rule(const Site& s) noexcept {
    const AttentionParams& a = s.params().attention;
    const std::int64_t d = s.params().is_v != 0 ? a.head_dim_v : a.head_dim_k;
    TINFER_RULE(is_cache(s[1]) && is_cache(s[0]) && s[0].root == s[1].root, "cells are moved inside one cache");
    TINFER_RULE(s[1].ne[0] == d * a.n_head_kv, "a cache row must hold head_dim · n_head_kv values");
    TINFER_RULE(is_i32(s[2]) && is_shape(s[2], 3, s[2].ne[1]), "moves must be i32 {3,n}");
    return nullptr;
}

const char* alias_rule(const Site& s) noexcept {
    const Value &x = s[1], &view = s[0];
    TINFER_RULE(view.type == x.type && view.tensor_class == x.tensor_class, "a view has type and class of its source");
    TINFER_RULE(view.is_view && view.root == x.root, "a view lies in the memory of its source");
    const auto last_byte = [](const Value& v) {
        std::int64_t last = v.offset + row_bytes(v.type, v.ne[0]);
        for (std::size_t i = 1; i < 4; ++i) last += (v.ne[i] - 1) * v.nb[i];
        return last;
    };
    TINFER_RULE(view.offset >= x.offset && last_byte(view) <= last_byte(x), "a view stays inside its source");
    return nullptr;
}

#undef TINFER_RULE

// ---- the table ------------------------------------------------------------------------------------------------------

struct OpRule {
    Op op;
    std::uint32_t min_inputs, max_inputs;  ///< the ones above min_inputs are optional
    bool writes_cache;                     ///< the result is a cache, seen through a view
    const char* (*check)(const Site&) noexcept;
};

constexpr OpRule kOpRules[] = {
    {Op::alias, 1, 1, false, alias_rule},
    {Op::get_rows, 2, 2, false, get_rows_rule},
    {Op::rms_norm, 1, 2, false, norm_rule},
    {Op::layer_norm, 1, 3, false, norm_rule},
    {Op::quantize, 1, 1, false, quantize_rule},
    {Op::mul_mat, 2, 2, false, mul_mat_rule},
    {Op::mul_mat_id, 3, 3, false, mul_mat_id_rule},
    {Op::mul_mat_heads, 2, 2, false, mul_mat_heads_rule},
    {Op::l2_norm, 1, 1, false, l2_norm_rule},
    {Op::add, 2, 2, false, broadcast_rule},
    {Op::mul, 2, 2, false, broadcast_rule},
    {Op::div, 2, 2, false, broadcast_rule},
    {Op::scale, 1, 1, false, elementwise_rule},
    {Op::silu, 1, 1, false, elementwise_rule},
    {Op::gelu, 1, 1, false, elementwise_rule},
    {Op::relu, 1, 1, false, elementwise_rule},
    {Op::tanh, 1, 1, false, elementwise_rule},
    {Op::sigmoid, 1, 1, false, elementwise_rule},
    {Op::clamp, 1, 1, false, clamp_rule},
    {Op::exp, 1, 1, false, elementwise_rule},
    {Op::softplus, 1, 1, false, elementwise_rule},
    {Op::softmax, 1, 1, false, softmax_rule},
    {Op::sum_rows, 1, 1, false, sum_rows_rule},
    {Op::copy, 1, 1, false, copy_rule},
    {Op::concat, 2, 2, false, concat_rule},
    {Op::rope_table, 1, 2, false, rope_table_rule},
    {Op::rope, 2, 2, false, rope_rule},
    {Op::relative_bias, 1, 1, false, relative_bias_rule},
    {Op::kv_write, 2, 2, true, kv_write_rule},
    {Op::attention, 6, 9, false, attention_rule},
    {Op::causal_conv, 5, 5, false, causal_conv_rule},
    {Op::token_shift, 3, 3, false, token_shift_rule},
    {Op::selective_scan, 8, 8, false, selective_scan_rule},
    {Op::wkv6, 7, 7, false, wkv6_rule},
    {Op::wkv7, 8, 8, false, wkv7_rule},
    {Op::delta_rule, 7, 7, false, delta_rule_rule},
    {Op::top_k, 1, 1, false, top_k_rule},
    {Op::moe_weights, 2, 2, false, moe_weights_rule},
    {Op::moe_sum, 2, 2, false, moe_sum_rule},
    {Op::keep_groups, 1, 1, false, keep_groups_rule},
    {Op::add_id, 3, 3, false, add_id_rule},
    {Op::log_temperature, 1, 1, false, log_temperature_rule},
    {Op::segment_sum, 3, 3, false, segment_sum_rule},
    {Op::key_shift, 3, 3, true, key_shift_rule},
    {Op::kv_copy_page, 2, 2, true, kv_copy_page_rule},
    {Op::kv_move, 2, 2, true, kv_move_rule},
};

/// The optional operand that stands between mandatory ones.
bool may_be_absent(Op op, std::size_t input) noexcept { return op == Op::causal_conv && input == 2; }

const OpRule* find_rule(Op op) noexcept {
    const auto index = static_cast<std::size_t>(op) - static_cast<std::size_t>(Op::alias);
    static_assert(kOpRules[0].op == Op::alias && kOpRules[std::size(kOpRules) - 1].op == Op::kv_move);
    static_assert(std::size(kOpRules) ==
                  static_cast<std::size_t>(Op::kv_move) - static_cast<std::size_t>(Op::alias) + 1);
    return index < std::size(kOpRules) ? &kOpRules[index] : nullptr;
}

consteval bool rows_follow_the_enum() {
    for (std::size_t i = 0; i < std::size(kOpRules); ++i)
        if (static_cast<std::size_t>(kOpRules[i].op) != static_cast<std::size_t>(Op::alias) + i) return false;
    return true;
}
static_assert(rows_follow_the_enum(), "one row per op, in order");

// ---- rules of every node and value ----------------------------------------------------------------------------------

const char* broken_node_rule(std::size_t number, std::span<const Node> nodes, std::span<const Value> values) noexcept {
    const Node& node = nodes[number];
    if (node.output >= values.size()) return "the result is no value of this graph";
    if (node.n_inputs > kMaxInputs) return "too many operands";
    for (std::size_t i = 0; i < node.n_inputs; ++i) {
        if (node.inputs[i] == kNone) continue;
        if (node.inputs[i] >= values.size()) return "an operand is no value of this graph";
        const Value& input = values[node.inputs[i]];
        if (input.node != kNone && input.node >= number) return "an operand is made by a later node";
    }
    if (values[node.output].node != number) return "the result belongs to another node";
    if (values[node.output].layer != node.layer) return "node and result disagree about the layer";
    return broken_rule(node, values);
}

const char* broken_value_rule(std::size_t number, std::span<const Node> nodes, std::span<const Value> values) noexcept {
    const Value& value = values[number];
    if (value.node != kNone && (value.node >= nodes.size() || nodes[value.node].output != number))
        return "the producing node makes another value";
    if (value.node == kNone && value.tensor_class == TensorClass::value) return "a result needs a producing node";
    if (value.role.empty()) return "the name is empty";
    for (const std::int64_t extent : value.ne)
        if (extent < 1) return "extents must be positive";
    if (value.root >= values.size() || values[value.root].is_view) return "the root must be a value that owns memory";
    if (!value.is_view && (value.root != number || value.offset != 0)) return "a value that is no view is its own root";
    if (!value.is_view && value.nb != contiguous_strides(value.type, value.ne)) return "memory of its own has no gaps";
    if (value.tensor_class == TensorClass::input)
        for (std::size_t other = 0; other < number; ++other)
            if (!value.is_view && !values[other].is_view && values[other].tensor_class == TensorClass::input &&
                values[other].role == value.role)
                return "two inputs have this name";
    return nullptr;
}

}  // namespace

const char* broken_rule(const Node& node, std::span<const Value> values) noexcept {
    const OpRule* row = find_rule(node.op);
    if (row == nullptr) return "this op is no operation of a graph";
    if (node.n_inputs < row->min_inputs || node.n_inputs > row->max_inputs) return "wrong number of operands";
    for (std::size_t i = 0; i < row->min_inputs; ++i)
        if (node.inputs[i] == kNone && !may_be_absent(node.op, i)) return "a mandatory operand is absent";
    const Value& result = values[node.output];
    for (const std::int64_t extent : result.ne)
        if (extent < 1) return "the result would be empty";
    if (row->writes_cache && !(is_cache(result) && result.is_view)) return "the result must be a view of a cache";
    if (!row->writes_cache && node.op != Op::alias && (result.is_view || result.tensor_class != TensorClass::value))
        return "the result needs memory of its own";
    return row->check(Site{node, values});
}

void verify(std::span<const Node> nodes, std::span<const Value> values) {
    for (std::size_t i = 0; i < values.size(); ++i)
        if (const char* rule = broken_value_rule(i, nodes, values))
            fail(ErrorCode::compute_failed, cat("graph: value ", i, " '", escaped(name_of(values[i])), "' ",
                                                shape_text(values[i].ne), ": ", rule));
    for (std::size_t i = 0; i < nodes.size(); ++i)
        if (const char* rule = broken_node_rule(i, nodes, values)) {
            const auto inputs = std::span(nodes[i].inputs).first(std::min<std::size_t>(nodes[i].n_inputs, kMaxInputs));
            const std::string name =
                nodes[i].output < values.size() ? escaped(name_of(values[nodes[i].output])) : std::string("-");
            fail(ErrorCode::compute_failed,
                 cat("graph: node ", i, " '", name, "' = ", call_text(nodes[i].op, inputs, values), ": ", rule));
        }
}

void verify(const Graph& graph) { verify(graph.nodes(), graph.values()); }

}  // namespace tinfer::graph
