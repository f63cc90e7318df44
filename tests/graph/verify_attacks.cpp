// SPDX-License-Identifier: MIT
// Every rule of the verifier, broken once.
#include "graph/verify_support.hpp"

namespace tinfer::test {

using graph::kNone;

const std::vector<Attack>& attacks() {
    static const std::vector<Attack> list{
        {Op::get_rows, "the matrix has a type that cannot be unpacked",
         [](Damaged& d) {
             d.replace(1, DType::q8_1, {256, 300, 1, 1});
         }},
        {Op::get_rows, "the matrix must be {n,N}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::get_rows, "ids must be i32 {T}",
         [](Damaged& d) {
             d.replace(2, DType::f32, {3, 1, 1, 1});
         }},
        {Op::get_rows, "result must be {n,T}", [](Damaged& d) { d.stretch(1, 0, 256); }},
        {Op::rms_norm, "x must be f32",
         [](Damaged& d) {
             d.replace(1, DType::f16, {256, 3, 1, 1});
         }},
        {Op::rms_norm, "weight must be f32 with one value per element of a row", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::rms_norm, "eps must be finite and not negative", [](Damaged& d) { d.node().params.eps = -1.0f; }},
        {Op::rms_norm, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::layer_norm, "x must be f32",
         [](Damaged& d) {
             d.replace(1, DType::f16, {4, 3, 1, 1});
         }},
        {Op::layer_norm, "weight must be f32 with one value per element of a row", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::layer_norm, "bias must be f32 with one value per element of a row", [](Damaged& d) { d.stretch(3, 1); }},
        {Op::layer_norm, "eps must be finite and not negative", [](Damaged& d) { d.node().params.eps = -1.0f; }},
        {Op::mul_mat_heads, "W has a type without a product",
         [](Damaged& d) {
             d.replace(1, DType::i8, {4, 5, 2, 1});
         }},
        {Op::mul_mat_heads, "W must be {K,N,H}", [](Damaged& d) { d.stretch(1, 3); }},
        {Op::mul_mat_heads, "inner extents differ", [](Damaged& d) { d.stretch(1, 0); }},
        {Op::mul_mat_heads, "x must be {K,H,T}", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::mul_mat_heads, "x has not the type that W multiplies with",
         [](Damaged& d) {
             d.replace(2, DType::f16, {4, 2, 3, 1});
         }},
        {Op::mul_mat_heads, "result must be f32 {N,H,T}", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::div, "b must be like a, {n}, {1}, or {1,…}", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::gelu, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::relu, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::tanh, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::clamp, "low must not exceed high", [](Damaged& d) { d.node().params.low = 2.0f; }},
        {Op::clamp, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::concat, "a and b must be f32",
         [](Damaged& d) {
             d.replace(2, DType::f16, {3, 1, 1, 1});
         }},
        {Op::concat, "b must be {m,H,T} or {m,1,T}", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::concat, "result must be f32 {n+m,H,T}", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::keep_groups, "x must be {X,T}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::keep_groups, "X must be a multiple of n_group", [](Damaged& d) { d.node().params.n_group = 3; }},
        {Op::keep_groups, "k must lie in 1 … n_group", [](Damaged& d) { d.node().params.k = 3; }},
        {Op::log_temperature, "positions must be i32 {T}", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::log_temperature, "n must be positive", [](Damaged& d) { d.node().params.k = 0; }},
        {Op::log_temperature, "result must be f32 {1,T}", [](Damaged& d) { d.stretch_result(0); }},
        {Op::segment_sum, "x must be f32 {E,T}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::segment_sum, "segments must be i32 {T}", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::segment_sum, "sums must be f32 {E,S}", [](Damaged& d) { d.stretch(3, 0); }},
        {Op::segment_sum, "result must be f32 like the sums", [](Damaged& d) { d.stretch_result(1); }},
        {Op::add_id, "x must be f32 {N,k,T}", [](Damaged& d) { d.stretch(1, 3); }},
        {Op::add_id, "b must be f32 {N,X}", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::add_id, "ids must be i32 {k,T}", [](Damaged& d) { d.stretch(3, 0); }},
        {Op::add_id, "result must be f32 like x", [](Damaged& d) { d.stretch_result(2); }},
        {Op::quantize, "x must be f32",
         [](Damaged& d) {
             d.replace(1, DType::i32, {256, 3, 1, 1});
         }},
        {Op::quantize, "result must be x8_32 or x8_256",
         [](Damaged& d) {
             d.reshape_result(DType::f32, {256, 3, 1, 1});
         }},
        {Op::quantize, "rows are no whole number of blocks", [](Damaged& d) { d.stretch(1, 0); }},
        {Op::quantize, "result must have the shape of x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::mul_mat, "W has a type without a product",
         [](Damaged& d) {
             d.replace(1, DType::i8, {256, 256, 1, 1});
         }},
        {Op::mul_mat, "W must be {K,N}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::mul_mat, "inner extents differ", [](Damaged& d) { d.stretch(1, 0, 256); }},
        {Op::mul_mat, "x must be {K,T}", [](Damaged& d) { d.stretch(2, 2); }},
        {Op::mul_mat, "x has not the type that W multiplies with",
         [](Damaged& d) {
             d.replace(2, DType::f32, {256, 3, 1, 1});
         }},
        {Op::mul_mat, "result must be f32 {N,T}", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::mul_mat_id, "W has a type without a product",
         [](Damaged& d) {
             d.replace(1, DType::q8_1, {256, 512, 4, 1});
         }},
        {Op::mul_mat_id, "W must be {K,N,X}", [](Damaged& d) { d.stretch(1, 3); }},
        {Op::mul_mat_id, "inner extents differ", [](Damaged& d) { d.stretch(1, 0, 256); }},
        {Op::mul_mat_id, "ids must be i32 {k,T}", [](Damaged& d) { d.stretch(3, 2); }},
        {Op::mul_mat_id, "more ids per token than experts",
         [](Damaged& d) {
             d.replace(3, DType::i32, {5, 3, 1, 1});
         }},
        {Op::mul_mat_id, "x must be {K,1,T} or {K,k,T}", [](Damaged& d) { d.stretch(2, 2); }},
        {Op::mul_mat_id, "x has not the type that W multiplies with",
         [](Damaged& d) {
             d.replace(2, DType::f32, {256, 1, 3, 1});
         }},
        {Op::mul_mat_id, "result must be f32 {N,k,T}", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::add, "a and b must be f32",
         [](Damaged& d) {
             d.replace(2, DType::f16, {256, 3, 1, 1});
         }},
        {Op::add, "b must be like a, {n}, {1}, or {1,…}",
         [](Damaged& d) {
             d.replace(2, DType::f32, {1, 2, 1, 1});
         }},
        {Op::add, "result must be f32 like a", [](Damaged& d) { d.stretch_result(1); }},
        {Op::mul, "a and b must be f32",
         [](Damaged& d) {
             d.replace(1, DType::i32, {512, 2, 3, 1});
         }},
        {Op::mul, "b must be like a, {n}, {1}, or {1,…}", [](Damaged& d) { d.stretch(2, 2); }},
        {Op::scale, "x must be f32",
         [](Damaged& d) {
             d.replace(1, DType::i32, {4, 3, 1, 1});
         }},
        {Op::scale, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::silu, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::sigmoid, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::softmax, "x must be {n,T}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::softmax, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 0); }},
        {Op::copy, "x must be f32, f16 or bf16",
         [](Damaged& d) {
             d.replace(1, DType::i32, {4, 3, 1, 1});
         }},
        {Op::copy, "result must be f32 of x's shape", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::rope_table, "positions must be i32 {T}", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::rope_table, "n_rot must be even and positive", [](Damaged& d) { d.node().params.rope.n_rot = 7; }},
        {Op::rope_table, "freq_base must be positive", [](Damaged& d) { d.node().params.rope.freq_base = 0.0f; }},
        {Op::rope_table, "factors must be f32 with n_rot/2 values",
         [](Damaged& d) {
             d.replace(2, DType::f32, {31, 1, 1, 1});
         }},
        {Op::rope_table, "result must be f32 {n_rot,T}", [](Damaged& d) { d.node().params.rope.n_rot = 32; }},
        {Op::rope, "x must be f32 {d,H,T}", [](Damaged& d) { d.stretch(1, 3); }},
        {Op::rope, "the table must be f32 {n_rot,T}", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::rope, "n_rot exceeds the head",
         [](Damaged& d) {
             d.replace(2, DType::f32, {66, 3, 1, 1}), d.node().params.rope.n_rot = 66;
         }},
        {Op::rope, "result must be f32 like x", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::kv_write, "the cache is of the other kind", [](Damaged& d) { d.node().params.is_v ^= 1; }},
        {Op::kv_write, "rows must be f32 {head_dim,n_head_kv,T}", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::kv_write, "a cache row must hold head_dim · n_head_kv values",
         [](Damaged& d) {
             d.node().params.attention.n_head_kv = 1, d.replace(1, DType::f32, {64, 1, 3, 1});
         }},
        {Op::relative_bias, "table must be f32 {H,buckets}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::relative_bias, "a side must have at least 2 buckets",
         [](Damaged& d) { d.node().params.max_distance = 2; }},
        {Op::relative_bias, "result must be f32 {2D+1,H}", [](Damaged& d) { d.stretch_result(0); }},
        {Op::kv_write, "slots must be i32 {T}", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::attention, "n_head must be a multiple of n_head_kv",
         [](Damaged& d) { d.node().params.attention.n_head_kv = 3; }},
        {Op::attention, "q must be f32 {head_dim_k,n_head,T}", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::attention, "keys must be a K cache of n_head_kv heads",
         [](Damaged& d) { std::swap(d.node().inputs[1], d.node().inputs[2]); }},
        {Op::attention, "values must be a V cache of n_head_kv heads",
         [](Damaged& d) { d.node().inputs[2] = d.node().inputs[1]; }},
        {Op::attention, "kv_table must be i32 {4,entries}", [](Damaged& d) { d.stretch(4, 0); }},
        {Op::attention, "kv_seqs must be i32 {2,sequences}", [](Damaged& d) { d.stretch(5, 0); }},
        {Op::attention, "kv_spans must be i32 {4,T}", [](Damaged& d) { d.stretch(6, 1); }},
        {Op::attention, "sinks must be f32 {n_head}",
         [](Damaged& d) {
             d.replace(7, DType::f32, {5, 1, 1, 1});
         }},
        {Op::attention, "ALiBi needs kv_positions", [](Damaged& d) { d.node().params.attention.max_bias = 8.0f; }},
        {Op::attention, "a bias by distance needs kv_positions",
         [](Damaged& d) {
             d.replace(9, DType::f32, {5, 2, 1, 1});
         }},
        {Op::attention, "the bias must be f32 {2D+1,n_head}",
         [](Damaged& d) {
             d.replace(8, DType::i32, {d.input(2).ne[1], 1, 1, 1});
             d.replace(9, DType::f32, {4, d.node().params.attention.n_head, 1, 1});
         }},
        {Op::attention, "kv_positions must be i32 {slots}",
         [](Damaged& d) {
             d.replace(8, DType::i32, {64, 1, 1, 1});
         }},
        {Op::attention, "result must be f32 {head_dim_v·n_head,T}", [](Damaged& d) { d.stretch_result(1); }},
        {Op::top_k, "x must be f32 {X,T}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::top_k, "k must lie in 1 … X", [](Damaged& d) { d.node().params.k = 5; }},
        {Op::top_k, "result must be i32 {k,T}", [](Damaged& d) { d.node().params.k = 1; }},
        {Op::moe_weights, "probs must be f32 {X,T}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::moe_weights, "ids must be i32 {k,T}", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::moe_weights, "result must be f32 {k,T}", [](Damaged& d) { d.stretch_result(0); }},
        {Op::moe_sum, "y must be f32 {E,k,T}", [](Damaged& d) { d.stretch(1, 3); }},
        {Op::moe_sum, "weights must be f32 {k,T}", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::moe_sum, "result must be f32 {E,T}", [](Damaged& d) { d.stretch_result(0); }},
        {Op::key_shift, "a cache row must hold head_dim_k · n_head_kv values",
         [](Damaged& d) { d.node().params.attention.n_head_kv = 2; }},
        {Op::key_shift, "slots must be i32 {n}", [](Damaged& d) { d.stretch(3, 1); }},
        {Op::key_shift, "the table must be f32 {n_rot,n}", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::key_shift, "the rotated part exceeds the head", [](Damaged& d) { d.node().params.first = 1 << 20; }},
        {Op::key_shift, "block must be 1 or a power of two", [](Damaged& d) { d.node().params.block = 12; }},
        {Op::key_shift, "only keys stored as codes", [](Damaged& d) { d.node().params.block = 16; }},
        {Op::hadamard, "block must be a power of two from 16 on", [](Damaged& d) { d.node().params.block = 8; }},
        {Op::hadamard, "block must be a power of two from 16 on", [](Damaged& d) { d.node().params.block = 64; }},
        {Op::hadamard, "result must be f32 like x", [](Damaged& d) { d.stretch_result(0); }},
        {Op::l2_norm, "eps must be finite and above 0", [](Damaged& d) { d.node().params.eps = 0.0f; }},
        {Op::sum_rows, "x must be f32",
         [](Damaged& d) {
             d.replace(1, DType::i32, {8, 3, 1, 1});
         }},
        {Op::sum_rows, "result must be f32 {1,…}", [](Damaged& d) { d.stretch_result(0); }},
        {Op::causal_conv, "x must be f32 {C,T}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::causal_conv, "weight must be f32 {n,C} with n of at least 2", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::causal_conv, "bias must be f32 {C}", [](Damaged& d) { d.stretch(3, 0); }},
        {Op::causal_conv, "a state's rows have another size", [](Damaged& d) { d.stretch(4, 0); }},
        {Op::causal_conv, "state_rows must be i32 {2,T}", [](Damaged& d) { d.stretch(5, 1); }},
        {Op::causal_conv, "result must be f32 like x", [](Damaged& d) { d.stretch_result(0); }},
        {Op::causal_conv, "a mandatory operand is absent", [](Damaged& d) { d.node().inputs[3] = kNone; }},
        {Op::token_shift, "x must be f32 {E,T}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::token_shift, "a state's rows have another size",
         [](Damaged& d) {
             d.replace(2, DType::f32, {8, 6, 1, 1});
         }},
        {Op::selective_scan, "x must be f32 {P,H,T}",
         [](Damaged& d) {
             d.replace(1, DType::f16, {4, 2, 3, 1});
         }},
        {Op::selective_scan, "dt must be f32 {H,T}", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::selective_scan, "a must be f32 {N,H} or {1,H}", [](Damaged& d) { d.stretch(3, 0); }},
        {Op::selective_scan, "B must be f32 {N,G,T}", [](Damaged& d) { d.stretch(4, 2); }},
        {Op::selective_scan, "C must be f32 like B", [](Damaged& d) { d.stretch(5, 1); }},
        {Op::selective_scan, "D must be f32 {H}", [](Damaged& d) { d.stretch(6, 0); }},
        {Op::wkv6, "r, k, v, w and the result must be f32 {S,H,T}", [](Damaged& d) { d.stretch(3, 1); }},
        {Op::wkv6, "first must be f32 {S,H}", [](Damaged& d) { d.stretch(5, 0); }},
        {Op::wkv7, "all but the state must be f32 {S,H,T}", [](Damaged& d) { d.stretch(6, 0); }},
        {Op::delta_rule, "q must be f32 {S,Hk,T}", [](Damaged& d) { d.stretch(1, 0); }},
        {Op::delta_rule, "k must be f32 like q", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::delta_rule, "v must be f32 {S,H,T}",
         [](Damaged& d) {
             d.replace(3, DType::f16, {4, 2, 3, 1});
         }},
        {Op::delta_rule, "gamma must be f32 {H,T} or {S,H,T}", [](Damaged& d) { d.stretch(4, 0); }},
        {Op::delta_rule, "beta must be f32 {H,T}", [](Damaged& d) { d.stretch(5, 0); }},
        {Op::decay_rule, "q, k, v and the result must be f32 {S,H,T}", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::decay_rule, "a state's rows have another size", [](Damaged& d) { d.stretch(4, 0); }},
        {Op::divide_ids, "the divisor must be positive", [](Damaged& d) { d.node().params.k = 0; }},
        {Op::divide_ids, "result must be i32 like ids", [](Damaged& d) { d.stretch_result(0); }},
        {Op::select_keys, "iq must be f32 {d,h,T}", [](Damaged& d) { d.stretch(1, 0); }},
        {Op::select_keys, "index keys must be a K cache of one head",
         [](Damaged& d) { d.node().params.attention.n_head_kv = 2; }},
        {Op::select_keys, "weights must be f32 {h,T}", [](Damaged& d) { d.stretch(3, 0); }},
        {Op::select_keys, "kv_spans must be i32 {4,T}", [](Damaged& d) { d.stretch(6, 0); }},
        {Op::select_keys, "k and block must be positive, local not negative",
         [](Damaged& d) { d.node().params.k = 0; }},
        {Op::select_keys, "blocks need kv_positions", [](Damaged& d) { d.node().params.block = 4; }},
        {Op::select_keys, "blocks need kv_positions", [](Damaged& d) { d.node().params.local = 1; }},
        {Op::select_keys, "result must be i32 {n,G,T}", [](Damaged& d) { d.stretch_result(0); }},
        {Op::select_keys, "only whole blocks are chosen without a score",
         [](Damaged& d) { d.node().inputs[0] = kNone; }},
        {Op::select_keys, "no block comes first where blocks are whole",
         [](Damaged& d) { d.node().params.whole_blocks = d.node().params.local = 1; }},
        {Op::select_keys, "only whole blocks have a last token", [](Damaged& d) { d.node().params.last_only = 1; }},
        {Op::compressed_attention, "keys are values, of one head",
         [](Damaged& d) { d.node().params.attention.head_dim_v = 3; }},
        {Op::compressed_attention, "q must be f32 {d,n_head,T}", [](Damaged& d) { d.stretch(1, 0); }},
        {Op::compressed_attention, "kv_spans must be i32 {4,T}", [](Damaged& d) { d.stretch(6, 0); }},
        {Op::compressed_attention, "neither ALiBi nor a soft cap",
         [](Damaged& d) { d.node().params.attention.softcap = 1.0f; }},
        {Op::latest_mark, "marks must be a K cache of f32", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::latest_mark, "result must be i32 {1,T}", [](Damaged& d) { d.stretch_result(0); }},
        {Op::compress_keys, "t must be f32 {c·D,T}", [](Damaged& d) { d.stretch(1, 2); }},
        {Op::compress_keys, "weights need both g and what is added to it",
         [](Damaged& d) { d.node().inputs[1] = kNone; }},
        {Op::compress_keys, "a must be f32 {c·D,r}", [](Damaged& d) { d.stretch(3, 1); }},
        {Op::compress_keys, "a state's rows have another size", [](Damaged& d) { d.stretch(5, 0); }},
        {Op::compress_keys, "result must be f32 {D,T}", [](Damaged& d) { d.stretch_result(0); }},
        {Op::ngram_rows, "as many rows for each n-gram", [](Damaged& d) { d.node().params.k = 1; }},
        {Op::ngram_rows, "constants must be i32 {2,N+2·(N-1)·m}", [](Damaged& d) { d.stretch(2, 1); }},
        {Op::ngram_rows, "a state's rows have another size", [](Damaged& d) { d.stretch(3, 0); }},
        {Op::sinkhorn, "x must be {n·n,T}", [](Damaged& d) { d.stretch(1, 0); }},
        {Op::sinkhorn, "there must be a round", [](Damaged& d) { d.node().params.k = 0; }},
        {Op::signed_sqrt, "low must be finite and not negative", [](Damaged& d) { d.node().params.low = -1.0f; }},
        {Op::causal_conv, "dilation must be positive", [](Damaged& d) { d.node().params.dilation = 0; }},
        {Op::sparse_attention, "q must be f32 {head_dim_k,n_head,T}", [](Damaged& d) { d.stretch(1, 0); }},
        {Op::sparse_attention, "chosen must be i32 {n,1|n_head_kv,T}", [](Damaged& d) { d.stretch(4, 2); }},
        {Op::sparse_attention, "neither ALiBi nor a soft cap",
         [](Damaged& d) { d.node().params.attention.softcap = 1.0f; }},
        {Op::kv_copy_page, "pages are copied inside one cache", [](Damaged& d) { d.stretch(1, 1); }},
        {Op::kv_copy_page, "pairs must be i32 {2,n}", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::kv_move, "slots are moved inside one cache", [](Damaged& d) { d.result().root = 0; }},
        {Op::kv_move, "a cache row must hold head_dim · n_head_kv values",
         [](Damaged& d) { d.node().params.attention.n_head_kv = 3; }},
        {Op::kv_move, "moves must be i32 {3,n}", [](Damaged& d) { d.stretch(2, 0); }},
        {Op::alias, "a view has type and class of its source", [](Damaged& d) { d.result().type = DType::f16; }},
        {Op::alias, "a view lies in the memory of its source", [](Damaged& d) { d.result().root = 0; }},
        {Op::alias, "a view stays inside its source", [](Damaged& d) { d.result().offset += 1 << 20; }},
        // rules of every node
        {Op::silu, "wrong number of operands", [](Damaged& d) { d.node().n_inputs = 2; }},
        {Op::silu, "a mandatory operand is absent", [](Damaged& d) { d.node().inputs[0] = kNone; }},
        {Op::silu, "this op is no operation of a graph", [](Damaged& d) { d.node().op = Op::silu_mul; }},
        {Op::silu, "this op is no operation of a graph", [](Damaged& d) { d.node().op = Op::none; }},
        {Op::silu, "an operand is no value of this graph", [](Damaged& d) { d.node().inputs[0] = 100000; }},
        {Op::silu, "an operand is made by a later node", [](Damaged& d) { d.node().inputs[0] = d.node().output; }},
        {Op::silu, "node and result disagree about the layer", [](Damaged& d) { d.node().layer += 1; }},
        {Op::silu, "the producing node makes another value", [](Damaged& d) { d.node().output = d.nodes[0].output; }},
        {Op::silu, "too many operands", [](Damaged& d) { d.node().n_inputs = graph::kMaxInputs + 1; }},
        {Op::kv_write, "the result must be a view of a cache",
         [](Damaged& d) { d.result().tensor_class = TensorClass::value; }},
        {Op::silu, "the result needs memory of its own",
         [](Damaged& d) { d.result().tensor_class = TensorClass::weight; }},
        // rules of every value
        {Op::silu, "a result needs a producing node", [](Damaged& d) { d.result().node = kNone; }},
        {Op::silu, "the name is empty", [](Damaged& d) { d.result().role = {}; }},
        {Op::silu, "extents must be positive", [](Damaged& d) { d.result().ne[1] = 0; }},
        {Op::silu, "the root must be a value that owns memory", [](Damaged& d) { d.result().root = 100000; }},
        {Op::silu, "a value that is no view is its own root", [](Damaged& d) { d.result().offset = 64; }},
        {Op::silu, "memory of its own has no gaps", [](Damaged& d) { d.result().nb[1] += 64; }},
        {Op::silu, "two inputs have this name", [](Damaged& d) { d.values[1].role = d.values[0].role; }},
        {Op::silu, "the result is no value of this graph",
         [](Damaged& d) { d.nodes.push_back(d.node()), d.nodes.back().output = 100000; }},
        {Op::silu, "the result belongs to another node", [](Damaged& d) { d.nodes.push_back(d.node()); }},
    };
    return list;
}

}  // namespace tinfer::test
