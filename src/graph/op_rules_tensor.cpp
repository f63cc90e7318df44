// SPDX-License-Identifier: MIT
// Rules of products, norms, elementwise ops and RoPE.
#include "graph/op_rules.hpp"

#include <cmath>

namespace tinfer::graph {

const char* get_rows_rule(const Site& s) noexcept {
    TINFER_RULE(partner(s[1]) != DType::none || is_i32(s[1]), "the matrix has a type that cannot be unpacked");
    TINFER_RULE(s[1].ne[2] == 1 && s[1].ne[3] == 1, "the matrix must be {n,N}");
    TINFER_RULE(is_i32(s[2]) && is_shape(s[2], s[2].ne[0]), "ids must be i32 {T}");
    TINFER_RULE(is_i32(s[1]) ? is_i32(s[0]) : is_f32(s[0]), "result must be f32, or i32 of numbers");
    TINFER_RULE(is_shape(s[0], s[1].ne[0], s[2].ne[0]), "result must be {n,T}");
    return nullptr;
}

namespace {

// {n}, or {n,H}: one row per head.
bool is_per_row(const Value& weight, const Value& x) noexcept {
    return is_f32(weight) && (is_shape(weight, x.ne[0]) || is_shape(weight, x.ne[0], x.ne[1]));
}

}  // namespace

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

const char* signed_sqrt_rule(const Site& s) noexcept {
    TINFER_RULE(s.params().low >= 0.0f && std::isfinite(s.params().low), "low must be finite and not negative");
    return elementwise_rule(s);
}

const char* sinkhorn_rule(const Site& s) noexcept {
    std::int64_t n = 1;
    while (n * n < s[1].ne[0]) ++n;
    TINFER_RULE(n * n == s[1].ne[0] && n <= 16 && s[1].ne[2] == 1 && s[1].ne[3] == 1,
                "x must be {n·n,T}, n at most 16");
    TINFER_RULE(s.params().k > 0, "there must be a round");
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

const char* hadamard_rule(const Site& s) noexcept {
    const std::int32_t block = s.params().block;
    TINFER_RULE(block >= 16 && (block & (block - 1)) == 0 && s[1].ne[0] % block == 0,
                "block must be a power of two from 16 on that divides the rows");
    return elementwise_rule(s);
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

}  // namespace tinfer::graph
