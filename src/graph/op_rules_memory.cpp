// SPDX-License-Identifier: MIT
// Rules of caches, attention, recurrent states, experts and views.
#include "graph/op_rules.hpp"

#include <cmath>

namespace tinfer::graph {

const char* kv_write_rule(const Site& s) noexcept {
    const AttentionParams& a = s.params().attention;
    const std::int64_t d = s.params().is_v != 0 ? a.head_dim_v : a.head_dim_k;
    TINFER_RULE(s[0].tensor_class == (s.params().is_v != 0 ? TensorClass::cache_v : TensorClass::cache_k),
                "the cache is of the other kind");
    TINFER_RULE(is_f32(s[1]) && is_shape(s[1], d, a.n_head_kv, s[1].ne[2]), "rows must be f32 {head_dim,n_head_kv,T}");
    TINFER_RULE(s[0].ne[0] == d * a.n_head_kv, "a cache row must hold head_dim · n_head_kv values");
    TINFER_RULE(is_i32(s[2]) && is_shape(s[2], s[1].ne[2]), "slots must be i32 {T}");
    return nullptr;
}

namespace {

// The inputs that tell what queries see, in slots 4 to 6.
const char* view_rule(const Site& s, std::int64_t n_tokens) noexcept {
    TINFER_RULE(is_i32(s[4]) && is_shape(s[4], 4, s[4].ne[1]), "kv_table must be i32 {4,entries}");
    TINFER_RULE(is_i32(s[5]) && is_shape(s[5], 2, s[5].ne[1]), "kv_seqs must be i32 {2,sequences}");
    TINFER_RULE(is_i32(s[6]) && is_shape(s[6], 4, n_tokens), "kv_spans must be i32 {4,T}");
    return nullptr;
}

}  // namespace

const char* select_keys_rule(const Site& s) noexcept {
    const AttentionParams& a = s.params().attention;
    const OpParams& p = s.params();
    const bool whole = p.whole_blocks != 0;
    const std::int64_t n_tokens = s[6].ne[1], n_group = s.has(3) || whole ? 1 : s[1].ne[1];
    TINFER_RULE(s.has(1) == s.has(2) && (s.has(1) || (whole && !s.has(3))),
                "only whole blocks are chosen without a score, and a score needs iq and keys");
    TINFER_RULE(!s.has(1) || (is_f32(s[1]) && is_shape(s[1], a.head_dim_k, a.n_head, n_tokens)),
                "iq must be f32 {d,h,T}");
    TINFER_RULE(!s.has(2) ||
                    (s[2].tensor_class == TensorClass::cache_k && a.n_head_kv == 1 && s[2].ne[0] == a.head_dim_k),
                "index keys must be a K cache of one head");
    TINFER_RULE(!s.has(3) || (is_f32(s[3]) && is_shape(s[3], a.n_head, n_tokens)), "weights must be f32 {h,T}");
    if (const char* rule = view_rule(s, n_tokens)) return rule;
    TINFER_RULE(p.k > 0 && p.block > 0 && p.local >= 0, "k and block must be positive, local not negative");
    TINFER_RULE(!whole || p.local == 0, "no block comes first where blocks are whole");
    TINFER_RULE(whole || p.last_only == 0, "only whole blocks have a last token");
    TINFER_RULE(whole || (p.block == 1 && p.local == 0) || s.has(7), "blocks need kv_positions");
    TINFER_RULE((!whole && (p.block > 1 || p.local > 0)) || !s.has(7), "blocks alone have kv_positions");
    TINFER_RULE(!s.has(7) || (is_i32(s[7]) && is_shape(s[7], s[2].ne[1])), "kv_positions must be i32 {slots}");
    const std::int64_t n = p.last_only != 0 ? p.k : (p.k + std::int64_t{whole ? 1 : 0}) * p.block;
    TINFER_RULE(is_i32(s[0]) && is_shape(s[0], n, n_group, n_tokens), "result must be i32 {n,G,T}");
    return nullptr;
}

const char* latest_mark_rule(const Site& s) noexcept {
    TINFER_RULE(!s.has(1) && !s.has(3), "slots 1 and 3 are empty");
    TINFER_RULE(s[2].tensor_class == TensorClass::cache_k && is_f32(s[2]) && s[2].ne[0] == 1,
                "marks must be a K cache of f32 with one number a row");
    if (const char* rule = view_rule(s, s[6].ne[1])) return rule;
    TINFER_RULE(is_i32(s[0]) && is_shape(s[0], 1, s[6].ne[1]), "result must be i32 {1,T}");
    return nullptr;
}

const char* compressed_attention_rule(const Site& s) noexcept {
    const AttentionParams& a = s.params().attention;
    const std::int64_t d = a.head_dim_k, n_tokens = s[1].ne[2];
    TINFER_RULE(a.n_head > 0 && a.n_head_kv == 1 && a.head_dim_v == d, "keys are values, of one head");
    TINFER_RULE(is_f32(s[1]) && is_shape(s[1], d, a.n_head, n_tokens), "q must be f32 {d,n_head,T}");
    TINFER_RULE(s[2].tensor_class == TensorClass::cache_k && s[2].ne[0] == d, "keys must be a K cache of one head");
    TINFER_RULE(!s.has(3) || (s[3].tensor_class == TensorClass::cache_v && s[3].ne[0] == d),
                "entries must be a V cache of one head");
    if (const char* rule = view_rule(s, n_tokens)) return rule;
    TINFER_RULE(s.has(3) == s.has(7), "entries need a choice of them");
    TINFER_RULE(!s.has(7) || (is_i32(s[7]) && is_shape(s[7], s[7].ne[0], 1, n_tokens)), "chosen must be i32 {n,1,T}");
    TINFER_RULE(!s.has(8) || (is_f32(s[8]) && is_shape(s[8], a.n_head)), "sinks must be f32 {n_head}");
    TINFER_RULE(a.max_bias == 0.0f && a.softcap == 0.0f, "neither ALiBi nor a soft cap");
    TINFER_RULE(is_f32(s[0]) && is_shape(s[0], d * a.n_head, n_tokens), "result must be f32 {d·n_head,T}");
    return nullptr;
}

namespace {

/// Of attention over caches: queries, keys and values by heads.
const char* heads_rule(const Site& s) noexcept {
    const AttentionParams& a = s.params().attention;
    TINFER_RULE(a.n_head > 0 && a.n_head_kv > 0 && a.n_head % a.n_head_kv == 0,
                "n_head must be a multiple of n_head_kv");
    TINFER_RULE(is_f32(s[1]) && is_shape(s[1], a.head_dim_k, a.n_head, s[1].ne[2]),
                "q must be f32 {head_dim_k,n_head,T}");
    TINFER_RULE(s[2].tensor_class == TensorClass::cache_k && s[2].ne[0] == std::int64_t{a.head_dim_k} * a.n_head_kv,
                "keys must be a K cache of n_head_kv heads");
    TINFER_RULE(s[3].tensor_class == TensorClass::cache_v && s[3].ne[0] == std::int64_t{a.head_dim_v} * a.n_head_kv,
                "values must be a V cache of n_head_kv heads");
    return nullptr;
}

}  // namespace

const char* sparse_attention_rule(const Site& s) noexcept {
    const AttentionParams& a = s.params().attention;
    if (const char* rule = heads_rule(s)) return rule;
    TINFER_RULE(is_i32(s[4]) && (s[4].ne[1] == 1 || s[4].ne[1] == a.n_head_kv) && s[4].ne[2] == s[1].ne[2],
                "chosen must be i32 {n,1|n_head_kv,T}");
    TINFER_RULE(!s.has(5) || (is_f32(s[5]) && is_shape(s[5], a.n_head)), "sinks must be f32 {n_head}");
    TINFER_RULE(a.max_bias == 0.0f && a.softcap == 0.0f, "neither ALiBi nor a soft cap");
    TINFER_RULE(is_f32(s[0]) && is_shape(s[0], std::int64_t{a.head_dim_v} * a.n_head, s[1].ne[2]),
                "result must be f32 {head_dim_v·n_head,T}");
    return nullptr;
}

const char* divide_ids_rule(const Site& s) noexcept {
    TINFER_RULE(is_i32(s[1]) && is_shape(s[1], s[1].ne[0], s[1].ne[1]), "ids must be i32 {k,T}");
    TINFER_RULE(s.params().k > 0, "the divisor must be positive");
    TINFER_RULE(is_i32(s[0]) && s[0].ne == s[1].ne, "result must be i32 like ids");
    return nullptr;
}

const char* attention_rule(const Site& s) noexcept {
    const AttentionParams& a = s.params().attention;
    if (const char* rule = heads_rule(s)) return rule;
    if (const char* rule = view_rule(s, s[1].ne[2])) return rule;
    TINFER_RULE(!s.has(7) || (is_f32(s[7]) && is_shape(s[7], a.n_head)), "sinks must be f32 {n_head}");
    TINFER_RULE(a.max_bias == 0.0f || s.has(8), "ALiBi needs kv_positions");
    TINFER_RULE(!s.has(9) || s.has(8), "a bias by distance needs kv_positions");
    TINFER_RULE(!s.has(9) ||
                    (is_f32(s[9]) && is_gapless(s[9]) && is_shape(s[9], s[9].ne[0], a.n_head) && s[9].ne[0] % 2 == 1),
                "the bias must be f32 {2D+1,n_head}");
    TINFER_RULE(!s.has(8) || (is_i32(s[8]) && is_shape(s[8], s[2].ne[1])), "kv_positions must be i32 {slots}");
    TINFER_RULE(is_f32(s[0]) && is_shape(s[0], std::int64_t{a.head_dim_v} * a.n_head, s[1].ne[2]),
                "result must be f32 {head_dim_v·n_head,T}");
    return nullptr;
}

namespace {

// The state behind the operands of a recurrent op, in slots `slot` and `slot` + 1.
const char* state_rule(const Site& s, std::uint32_t slot, std::int64_t size, std::int64_t n_tokens) noexcept {
    TINFER_RULE(is_state(s[slot], size), "a state's rows have another size");
    TINFER_RULE(is_i32(s[slot + 1]) && is_shape(s[slot + 1], 2, n_tokens), "state_rows must be i32 {2,T}");
    return nullptr;
}

}  // namespace

const char* causal_conv_rule(const Site& s) noexcept {
    const std::int64_t n_channels = s[1].ne[0], n = s[2].ne[0];
    TINFER_RULE(is_f32(s[1]) && is_shape(s[1], n_channels, s[1].ne[1]), "x must be f32 {C,T}");
    TINFER_RULE(is_f32(s[2]) && is_shape(s[2], n, n_channels) && n >= 2,
                "weight must be f32 {n,C} with n of at least 2");
    TINFER_RULE(!s.has(3) || (is_f32(s[3]) && is_shape(s[3], n_channels)), "bias must be f32 {C}");
    TINFER_RULE(is_f32(s[0]) && s[0].ne == s[1].ne, "result must be f32 like x");
    TINFER_RULE(s.params().dilation > 0, "dilation must be positive");
    return state_rule(s, 4, (n - 1) * s.params().dilation * n_channels, s[1].ne[1]);
}

const char* compress_keys_rule(const Site& s) noexcept {
    const OpParams& p = s.params();
    const std::int64_t c = p.overlap != 0 ? 2 : 1, width = s[1].ne[0], n_tokens = s[1].ne[1];
    TINFER_RULE(p.block > 0 && width % c == 0, "a group has tokens, and an overlapping one rows in two halves");
    TINFER_RULE(is_f32(s[1]) && is_shape(s[1], width, n_tokens), "t must be f32 {c·D,T}");
    TINFER_RULE(s.has(2) == s.has(3), "weights need both g and what is added to it");
    TINFER_RULE(!s.has(2) || (is_f32(s[2]) && s[2].ne == s[1].ne), "g must be f32 like t");
    TINFER_RULE(!s.has(3) || (is_f32(s[3]) && is_shape(s[3], width, p.block)), "a must be f32 {c·D,r}");
    TINFER_RULE(is_i32(s[4]) && is_shape(s[4], n_tokens), "positions must be i32 {T}");
    TINFER_RULE(is_f32(s[0]) && is_shape(s[0], width / c, n_tokens), "result must be f32 {D,T}");
    return state_rule(s, 5, c * p.block * width * (s.has(2) ? 2 : 1), n_tokens);
}

const char* ngram_rows_rule(const Site& s) noexcept {
    const std::int64_t n = s.params().k, n_tokens = s[1].ne[0], n_row = s[0].ne[0];
    TINFER_RULE(n >= 2 && n_row % (n - 1) == 0, "as many rows for each n-gram, of at least two tokens");
    TINFER_RULE(is_i32(s[1]) && is_shape(s[1], n_tokens), "ids must be i32 {T}");
    TINFER_RULE(is_i32(s[2]) && is_shape(s[2], 2, n + 2 * n_row), "constants must be i32 {2,N+2·(N-1)·m}");
    TINFER_RULE(is_i32(s[0]) && is_shape(s[0], n_row, n_tokens), "result must be i32 {(N-1)·m,T}");
    return state_rule(s, 3, n - 1, n_tokens);
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
    TINFER_RULE(is_f32(s[4]) && (is_shape(s[4], n_head, n_tokens) || is_shape(s[4], size, n_head, n_tokens)),
                "gamma must be f32 {H,T} or {S,H,T}");
    TINFER_RULE(is_f32(s[5]) && is_shape(s[5], n_head, n_tokens), "beta must be f32 {H,T}");
    TINFER_RULE(is_f32(s[0]) && s[0].ne == s[3].ne, "result must be f32 like v");
    return state_rule(s, 6, size * size * n_head, n_tokens);
}

const char* decay_rule_rule(const Site& s) noexcept {
    const std::int64_t size = s[1].ne[0], n_head = s[1].ne[1], n_tokens = s[1].ne[2];
    for (std::uint32_t slot = 0; slot <= 3; ++slot)
        TINFER_RULE(is_f32(s[slot]) && is_shape(s[slot], size, n_head, n_tokens),
                    "q, k, v and the result must be f32 {S,H,T}");
    return state_rule(s, 4, size * size * n_head, n_tokens);
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
    TINFER_RULE(is_i32(s[3]) && is_shape(s[3], s[3].ne[0]), "slots must be i32 {n}");
    TINFER_RULE(is_f32(s[2]) && is_shape(s[2], s.params().rope.n_rot, s[3].ne[0]), "the table must be f32 {n_rot,n}");
    TINFER_RULE(s.params().first >= 0 && s.params().first + s.params().rope.n_rot <= a.head_dim_k,
                "the rotated part exceeds the head");
    const std::int32_t block = s.params().block;
    TINFER_RULE(block == 1 || (block >= 16 && (block & (block - 1)) == 0 && a.head_dim_k % block == 0),
                "block must be 1 or a power of two from 16 on that divides the head");
    TINFER_RULE(block == 1 || !is_float(s[1].type), "only keys stored as codes go through hadamard");
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
    TINFER_RULE(is_cache(s[1]) && is_cache(s[0]) && s[0].root == s[1].root, "slots are moved inside one cache");
    TINFER_RULE(s[1].ne[0] == d * a.n_head_kv, "a cache row must hold head_dim · n_head_kv values");
    TINFER_RULE(is_i32(s[2]) && is_shape(s[2], 3, s[2].ne[1]), "moves must be i32 {3,n}");
    return nullptr;
}

const char* no_rule(const Site&) noexcept { return "this op is no operation of a graph"; }

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

}  // namespace tinfer::graph
