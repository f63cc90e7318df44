// SPDX-License-Identifier: MIT
// clang-format off
// What the table of operations (tinfer/ops.def) has no room for: parameters, and what is in the operands that many ops share.
// Together they are the contract between the graph (which orders inputs so), the kernels (which read them so) and the traces
// (which show them so).
//
// op                 params
// l2_norm            eps, eps_is_floor
// rms_norm, layer_norm  eps. The weight has a row for all heads, or one for each
// add, mul, div      b is like a, or one row, one number, or one number for each row, for all of a
// scale              scale
// clamp, signed_sqrt low, high; low
// xielu              scale = ap, low = an, high = b, eps
// sinkhorn           k rounds, eps. A row of x is a matrix, its rows one behind another
// rope_table, rope   rope
// hadamard           block: values that are transformed together
// relative_bias      max_distance = D, both_sides
// kv_write           is_v
// select_keys        n = k · block KV slots in ascending ordinals, then −1. With w: G = 1, scores are Σ_h w_h · max(iq_h·ik, 0);
//                    without: G = h, a list for each head of the indexer. kv_positions come with blocks. whole_blocks: blocks are
//                    of ordinals, G = 1, and every w is 1 where there are none; n = (k + 1) · block, with the tokens behind the
//                    last whole block; with last_only n = k: the last tokens of the chosen blocks. Without iq and keys all blocks
//                    are chosen
// compressed_attention  entries come with a choice of them
// attention          kv_positions come with ALiBi and with a bias, whose element D + p_k − p_q, or its end for what is farther, is
//                    added to the scaled score
// causal_conv        dilation
// compress_keys      block = r, overlap: c = 2. A state has two parts where there is g, with which a comes
// ngram_rows         k = N, first = the id that ends a text. constants: N multipliers, as many sizes and offsets of tables as rows,
//                    64 bits each, low word first. The state: ids + 1 of the tokens before, newest first
// delta_rule         scale, modulo_heads. γ may have one for each key
// decay_rule         scale: of the exponents
// top_k, divide_ids  k; k: the divisor
// moe_weights        normalize, scale
// keep_groups        n_group, k: groups that stay
// log_temperature    scale = c, k = n, first = p0
// key_shift          first: element of a head from which on it is rotated; block: stored keys went through hadamard in blocks of so
//                    many. A KV slot below 0: none
// kv_copy_page       pairs: from page, to page; from < 0: none
// kv_move            is_v
//
// kv_table: entries of the sequences of this run, four int32 each: page, ordinal of its first live token, live-slot mask
// (low word, high word). Slots of a page ascend with the ordinal. kv_seqs {2,sequences}: per sequence (first entry, number of
// entries).
// kv_spans {4,T}: per token (sequence index, first visible ordinal, end of visible ordinals, position). kv_positions {slots}: of
// the token in each KV slot, by KV slot number; others hold anything. All are i32.
// state_rows i32 {2,T}: per token the row of every state that it goes on from (-1: all zeros), and the row it leaves it in. Tokens
// are processed in order, so a row may be read after an earlier token has written it; states are read and written.
// moves: copies of consecutive KV slots, made in this order: first one read, first one written, how many; 0 ends the list. -1 is a
// buffer of one KV slot. No KV slot is read after it was written, none is written twice.
// Slot 10 is scratch.
//
// Float sums follow the 16-lane order everywhere; each op's order of operations is written at its reference kernel.
// clang-format on
#pragma once
