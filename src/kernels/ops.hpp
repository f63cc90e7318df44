// SPDX-License-Identifier: MIT
// clang-format off
// The operand slots of every op: the contract between the graph (which orders inputs so), the kernels (which read them so)
// and the traces (which show them so). T = rows of the micro-batch; shapes contiguous dimension first.
//
// op                 selected by    0 (written)            1                2               3              4 …
// get_rows           1              out f32 {n,T}          matrix {n,N}     ids i32 {T}                 (i32 of a matrix of i32)
// rms_norm           none           out f32 like x         x {n,H,…}        weight f32 {n} or {n,H} (optional)
// layer_norm         none           out f32 like x         x {n,H,…}        weight, likewise  bias f32 {n} (optional)
// l2_norm            none           out f32 like x         x {n,…}                           params.eps, params.eps_is_floor
// quantize           0              out x8 {K,R1,R2}       x f32 {K,R1,R2}
// mul_mat            1              out f32 {N,T}          W {K,N}          x x8/f32 {K,T}
// mul_mat_id         1              out f32 {N,k,T}        W {K,N,X}        x {K,1|k,T}     ids i32 {k,T}
// mul_mat_heads      1              out f32 {N,H,T}        W {K,N,H}        x x8/f32 {K,H,T}
// add, mul, div      none           out f32 like a         a                b: like a, or {n}, {1} or {1,…} broadcast
// scale              none           out like x             x                                              params.scale
// silu, gelu, relu, tanh, sigmoid, clamp, exp, softplus: none   out like x   x     (clamp: params.low, params.high)
// signed_sqrt        none           out like x             x                                              params.low
// sinkhorn           none           out f32 {n·n,T}        x f32 {n·n,T}: a matrix, rows one behind another; the result is
//                                   transposed. params.k rounds, params.eps
// softmax            none           out like x             x {n,T}: each row
// sum_rows           none           out f32 {1,…}          x f32 {n,…}
// copy               none           out f32 contiguous     x f32/f16/bf16 any strides: widened
// concat             none           out f32 {n+m,H,T}      a {n,H,T}        b {m,H|1,T}
// rope_table         none           out f32 {n_rot,T}      positions i32 {T}  factors f32 {n_rot/2} (optional)
//                                   (element 2i = magnitude·cos, 2i+1 = magnitude·sin of pair i)
// rope               none           out f32 {d,H,T}        x f32 {d,H,T}    table {n_rot,T}
// hadamard           none           out f32 like x         x {n,…}: each block of params.block
// relative_bias      none           out f32 {2D+1,H}       table f32 {H,buckets}       params.max_distance = D, params.both_sides
// kv_write           0              cache {d·Hkv,slots}    rows {d,Hkv,T}   kv_slots i32 {T}                 (params.is_v)
// select_keys        none           out i32 {n,G,T}        iq f32 {d,h,T}   index cache (K)  w f32 {h,T} (optional)
//                                   4 kv_table   5 kv_seqs   6 kv_spans   7 kv_positions (with blocks). n = params.k ·
//                                   params.block KV slots in ascending ordinals, then −1. With w: G = 1, scores are
//                                   Σ_h w_h · max(iq_h·ik, 0); without: G = h, a list for each head of the indexer.
//                                   params.whole_blocks: blocks are of ordinals, G = 1, and every w is 1 where there are none.
//                                   n = (k + 1) · block, with the tokens behind the last whole block; with params.last_only
//                                   n = k: the last tokens of the chosen blocks. Without iq and keys all blocks are chosen
// sparse_attention   none           out f32 {dv·H,T}       q f32 {dk,H,T}   K cache          V cache
//                                   4 chosen i32 {n,1|Hkv,T}   5 sinks f32 {H} (optional)
// compressed_attention none         out f32 {d·H,T}        q f32 {d,H,T}    K cache (1 head) V cache of entries (optional)
//                                   4 kv_table   5 kv_seqs   6 kv_spans   7 chosen i32 {n,1,T} (with entries)   8 sinks f32 {H}
//                                   (optional). Keys are values, too
// latest_mark        none           out i32 {1,T}          –                marks f32 {1,slots} (K cache)   –
//                                   4 kv_table   5 kv_seqs   6 kv_spans
// attention          none           out f32 {dv·H,T}       q f32 {dk,H,T}   K cache         V cache        kv_table i32 {4,entries}
//                                   5 kv_seqs i32 {2,sequences}   6 kv_spans i32 {4,T}   7 sinks f32 {H} (optional)
//                                   8 kv_positions i32 {slots} (with ALiBi and bias)   9 bias f32 {2D+1,H}: element D + p_k − p_q,
//                                   its ends for what is farther, added to the scaled score (optional)
// causal_conv        none           out f32 {C,T}          x f32 {C,T}      weight f32 {n,C}   bias f32 {C} (optional)
//                                   4 state {(n−1)·dilation·C,rows}   5 state_rows i32 {2,T}      params.dilation
// compress_keys      none           out f32 {D,T}          t f32 {c·D,T}    g likewise (optional)   a f32 {c·D,r} (with g)
//                                   4 positions i32 {T}   5 state {c·r·c·D·(1, with g 2),rows}   6 state_rows
//                                   params.block = r, params.overlap: c = 2. Zeros for tokens that end no group
// ngram_rows         none           out i32 {(N−1)·m,T}    ids i32 {T}      constants i32 {2,N+2·(N−1)·m}: N multipliers, as many
//                                   sizes and offsets of tables as rows, 64 bits each, low word first
//                                   3 state {N−1,rows}: ids + 1 of the tokens before, newest first   4 state_rows
//                                   params.k = N, params.first = the id that ends a text
// token_shift        none           out f32 {E,T}          x f32 {E,T}      state {E,rows}     state_rows
// selective_scan     none           out f32 {P,H,T}        x f32 {P,H,T}    Δ f32 {H,T}        a f32 {N|1,H}  B f32 {N,G,T}
//                                   5 C f32 {N,G,T}   6 D f32 {H}   7 state {N·P·H,rows}   8 state_rows
// wkv6               none           out f32 {S,H,T}        r f32 {S,H,T}    k likewise         v likewise     w likewise
//                                   5 first f32 {S,H}   6 state {S·S·H,rows}   7 state_rows
// wkv7               none           out f32 {S,H,T}        r f32 {S,H,T}    w likewise         k likewise     v likewise
//                                   5 κ likewise   6 a likewise   7 state {S·S·H,rows}   8 state_rows
// delta_rule         none           out f32 {S,H,T}        q f32 {S,Hk,T}   k f32 {S,Hk,T}     v f32 {S,H,T}  γ f32 {H,T} or {S,H,T}: one for each key
//                                   5 β f32 {H,T}   6 state {S·S·H,rows}   7 state_rows                       params.scale
// decay_rule         none           out f32 {S,H,T}        q f32 {S,H,T}    k likewise       v likewise
//                                   4 state {S·S·H,rows}   5 state_rows   params.scale: of the exponents
// divide_ids         none           out i32 {k,T}          ids i32 {k,T}    params.k
// xielu              none           out like x             x                params.scale = ap, low = an, high = b, eps
// top_k              none           out i32 {k,T}          x f32 {X,T}
// moe_weights        none           out f32 {k,T}          probs f32 {X,T}  ids i32 {k,T}
// moe_sum            none           out f32 {E,T}          y f32 {E,k,T}    w f32 {k,T}
// keep_groups        none           out f32 {X,T}          x f32 {X,T}                                    params.n_group, params.k
// add_id             none           out f32 {N,k,T}        x f32 {N,k,T}    b f32 {N,X}     ids i32 {k,T}
// log_temperature    none           out f32 {1,T}          positions i32 {T}                          params.scale = c, params.k = n, params.first = p0
// segment_sum        none           out f32 {E,S}          x f32 {E,T}      segments i32 {T}, below S   sums f32 {E,S}
// key_shift          0              K cache (written)      the same cache   table {n_rot,n}  kv_slots i32 {n}: < 0: none (params.first,
//                                   params.block: stored keys went through hadamard in blocks of so many)
// kv_copy_page       0              cache (written)        the same cache (read)   pairs i32 {2,n}: from page, to page; from < 0: none
// kv_move            0              cache (written)        the same cache (read)   moves i32 {3,n} (params.is_v)
//
// fused, one step for several nodes:
// rms_norm_quantize  0              out x8 {K,R1,R2}       x                weight          out f32 (optional: the norm itself, where others read it)
// silu_mul           none           out f32                gate             up
// silu_mul_quantize  0              out x8                 gate             up
// mul_mat_add        1              out f32 {N,T}          W                x               addend {N} or {N,T}
// rope_kv_write      0              cache                  rows {d,Hkv,T}   kv_slots           table
//
// kv_table: entries of the sequences of this run, four int32 each: page, ordinal of its first live token, live-slot mask
// (low word, high word). Slots of a page ascend with the ordinal. kv_seqs: per sequence (first entry, number of entries).
// state_rows: per token the row of every state that it goes on from (-1: all zeros), and the row it leaves it in. Tokens
// take their turn in order, so a row may be read after an earlier token has written it; states are read and written.
// moves: copies of consecutive KV slots, made in this order: first one read, first one written, how many; 0 ends the list. -1 is a
// buffer of one KV slot. No KV slot is read after it was written, none is written twice.
// kv_spans: per token (sequence index, first visible ordinal, end of visible ordinals, position). kv_positions: of the token
// in each KV slot, by KV slot number; others hold anything. Slot 10 is scratch.
//
// Float sums follow the 16-lane order everywhere; each op's order of operations is written at its reference kernel.
// clang-format on
#pragma once
