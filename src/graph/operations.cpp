// SPDX-License-Identifier: MIT
// The operations of the builder: each infers the shape of its result and appends a node. What is legal is the rule of
// the op (op_rules.hpp); here are only the checks that inference itself needs, and the activations that products ask
// for. Builders of one or two operands without parameters are made from tinfer/ops.def.
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "graph/graph.hpp"

namespace tinfer::graph {

Tensor Graph::get_rows(Tensor matrix, Tensor ids) {
    const Value& m = operand(Op::get_rows, 1, matrix);
    const Shape ne{m.ne[0], operand(Op::get_rows, 2, ids).ne[0], 1, 1};
    const DTypeInfo* type = find_dtype(m.type);
    if (m.type == DType::i32) return emit(Op::get_rows, {matrix, ids}, DType::i32, ne);
    if (type == nullptr || type->activation == DType::none)
        fail(ErrorCode::unsupported_tensor_type, cat("get_rows: tensor '", escaped(m.role), "' has type ",
                                                     to_string(m.type), ", which cannot be unpacked"));
    return emit(Op::get_rows, {matrix, ids}, DType::f32, ne);
}

Tensor Graph::rms_norm(Tensor x, Tensor weight, float eps) {
    return emit(Op::rms_norm, {x, weight}, DType::f32, operand(Op::rms_norm, 1, x).ne, {.eps = eps});
}

Tensor Graph::layer_norm(Tensor x, Tensor weight, Tensor bias, float eps) {
    return emit(Op::layer_norm, {x, weight, bias}, DType::f32, operand(Op::layer_norm, 1, x).ne, {.eps = eps});
}

Tensor Graph::l2_norm(Tensor x, float eps, bool eps_is_floor) {
    return elementwise(Op::l2_norm, x, {.eps = eps, .eps_is_floor = eps_is_floor ? 1 : 0});
}

// ---- products -------------------------------------------------------------------------------------------------------

namespace {

// The type in which activations meet a weight (base/dtype.hpp).
DType activation_for(Op op, const Value& w) {
    const DTypeInfo* type = find_dtype(w.type);
    if (type == nullptr || type->activation == DType::none)
        fail(ErrorCode::unsupported_tensor_type, cat(to_string(op), ": tensor '", escaped(w.role), "' has type ",
                                                     to_string(w.type), ", which has no product"));
    return type->activation;
}

}  // namespace

Tensor Graph::quantized(Tensor x, DType type) {
    if (values_[x.id].type == type) return x;
    std::uint32_t& known = quantized_[x.id][type == DType::x8_256 ? 1 : 0];
    if (known != kNone) return {known};
    const Tensor q = emit(Op::quantize, {x}, type, values_[x.id].ne);
    known = q.id;

    // The quantized form belongs where x was made, under the name of x.
    const Value& source = values_[x.id];
    values_[q.id].role = source.role;
    if (source.node != kNone) {
        Node& node = nodes_.back();
        node.part = nodes_[source.node].part;
        node.layer = values_[q.id].layer = source.layer;
    }
    return q;
}

Tensor Graph::mul_mat(Tensor w, Tensor x) {
    const Value& matrix = operand(Op::mul_mat, 1, w);
    const Value& rows = operand(Op::mul_mat, 2, x);
    const DType activation = activation_for(Op::mul_mat, matrix);
    if (matrix.ne[0] != rows.ne[0]) refuse(Op::mul_mat, {w, x}, ErrorCode::compute_failed, "inner extents differ");
    const Shape ne{matrix.ne[1], rows.ne[1], 1, 1};
    if (is_activation(activation)) x = quantized(x, activation);
    return emit(Op::mul_mat, {w, x}, DType::f32, ne);
}

Tensor Graph::mul_mat_id(Tensor w, Tensor x, Tensor ids) {
    const Value& matrices = operand(Op::mul_mat_id, 1, w);
    const Value& rows = operand(Op::mul_mat_id, 2, x);
    const Value& chosen = operand(Op::mul_mat_id, 3, ids);
    const DType activation = activation_for(Op::mul_mat_id, matrices);
    if (matrices.ne[0] != rows.ne[0])
        refuse(Op::mul_mat_id, {w, x, ids}, ErrorCode::compute_failed, "inner extents differ");
    const Shape ne{matrices.ne[1], chosen.ne[0], chosen.ne[1], 1};
    // {K,T}: every expert of a token sees the same row, {K,1,T}. Quantized first, so that other products share it.
    // Which values a graph has must not depend on its number of tokens, and with one expert and one token both forms
    // are {K,1,1}: so with one expert there is always a view.
    const std::int64_t n_tokens = chosen.ne[1];
    const bool shared = rows.ne[2] == 1 && rows.ne[1] == n_tokens;
    if (is_activation(activation)) x = quantized(x, activation);
    if (shared || chosen.ne[0] == 1) {
        const Value& v = values_[x.id];
        const std::int64_t row = shared ? v.nb[1] : v.nb[2];
        x = alias(x, {v.ne[0], 1, n_tokens, 1}, {v.nb[0], row, row, row * n_tokens}, 0);
    }
    return emit(Op::mul_mat_id, {w, x, ids}, DType::f32, ne);
}

Tensor Graph::mul_mat_heads(Tensor w, Tensor x) {
    const Value& matrices = operand(Op::mul_mat_heads, 1, w);
    const Value& rows = operand(Op::mul_mat_heads, 2, x);
    const DType activation = activation_for(Op::mul_mat_heads, matrices);
    if (matrices.ne[0] != rows.ne[0])
        refuse(Op::mul_mat_heads, {w, x}, ErrorCode::compute_failed, "inner extents differ");
    const Shape ne{matrices.ne[1], rows.ne[1], rows.ne[2], 1};
    if (is_activation(activation)) x = quantized(x, activation);
    return emit(Op::mul_mat_heads, {w, x}, DType::f32, ne);
}

// ---- element-wise ---------------------------------------------------------------------------------------------------

Tensor Graph::elementwise(Op op, Tensor x, const OpParams& params) {
    return emit(op, {x}, DType::f32, operand(op, 1, x).ne, params);
}

Tensor Graph::scale(Tensor x, float factor) { return elementwise(Op::scale, x, {.scale = factor}); }
Tensor Graph::clamp(Tensor x, float low, float high) { return elementwise(Op::clamp, x, {.low = low, .high = high}); }
Tensor Graph::xielu(Tensor x, float above, float below, float beta, float eps) {
    return elementwise(Op::xielu, x, {.eps = eps, .scale = above, .low = below, .high = beta});
}
Tensor Graph::signed_sqrt(Tensor x, float low) { return elementwise(Op::signed_sqrt, x, {.low = low}); }
Tensor Graph::sinkhorn(Tensor x, int n_round, float eps) {
    return elementwise(Op::sinkhorn, x, {.eps = eps, .k = n_round});
}
Tensor Graph::softmax(Tensor x) { return elementwise(Op::softmax, x); }
Tensor Graph::sum_rows(Tensor x) {
    Shape ne = operand(Op::sum_rows, 1, x).ne;
    ne[0] = 1;
    return emit(Op::sum_rows, {x}, DType::f32, ne);
}
Tensor Graph::copy(Tensor x) { return elementwise(Op::copy, x); }

Tensor Graph::concat(Tensor a, Tensor b) {
    Shape ne = operand(Op::concat, 1, a).ne;
    ne[0] += operand(Op::concat, 2, b).ne[0];
    return emit(Op::concat, {a, b}, DType::f32, ne);
}

// ---- positions, cache, attention ------------------------------------------------------------------------------------

Tensor Graph::rope_table(Tensor positions, const RopeParams& rope, Tensor factors) {
    const std::int64_t n_tokens = operand(Op::rope_table, 1, positions).ne[0];
    return emit(Op::rope_table, {positions, factors}, DType::f32, {rope.n_rot, n_tokens, 1, 1}, {.rope = rope});
}

Tensor Graph::rope(Tensor x, Tensor table, const RopeParams& rope) {
    return emit(Op::rope, {x, table}, DType::f32, operand(Op::rope, 1, x).ne, {.rope = rope});
}

Tensor Graph::hadamard(Tensor x, int block) { return elementwise(Op::hadamard, x, {.block = block}); }

Tensor Graph::relative_bias(Tensor table, int max_distance, bool both_sides) {
    const std::int64_t n_head = operand(Op::relative_bias, 1, table).ne[0];
    return emit(Op::relative_bias, {table}, DType::f32, {2 * std::int64_t{max_distance} + 1, n_head, 1, 1},
                {.max_distance = max_distance, .both_sides = both_sides ? 1 : 0});
}

Tensor Graph::kv_write(Tensor cache, Tensor rows, Tensor slots, const AttentionParams& attention, bool is_v) {
    const Value& given = operand(Op::kv_write, 1, rows);
    const std::int64_t d = is_v ? attention.head_dim_v : attention.head_dim_k;
    if (given.ne[2] == 1 && given.ne[0] != d) rows = heads(rows, attention.n_head_kv);
    else if (given.ne[2] == 1 && attention.n_head_kv == 1 && given.ne[1] > 1) rows = heads(rows, 1);
    return emit_in_cache(Op::kv_write, {rows, slots}, cache, {.is_v = is_v ? 1 : 0, .attention = attention});
}

Tensor Graph::key_shift(Tensor cache, Tensor table, Tensor slots, const RopeParams& rope,
                        const AttentionParams& attention, int first, int block) {
    return emit_in_cache(Op::key_shift, {cache, table, slots}, cache,
                         {.block = block, .first = first, .rope = rope, .attention = attention});
}

Tensor Graph::kv_copy_page(Tensor cache, Tensor pairs) {
    return emit_in_cache(Op::kv_copy_page, {cache, pairs}, cache, {});
}

Tensor Graph::kv_move(Tensor cache, Tensor moves, const AttentionParams& attention, bool is_v) {
    return emit_in_cache(Op::kv_move, {cache, moves}, cache, {.is_v = is_v ? 1 : 0, .attention = attention});
}

namespace {

// Of attention to T queries.
std::array<std::int64_t, 4> heads_of(const AttentionParams& attention, std::int64_t n_tokens) noexcept {
    return {std::int64_t{attention.head_dim_v} * attention.n_head, n_tokens, 1, 1};
}

}  // namespace

Tensor Graph::attention(Tensor q, Tensor keys, Tensor values, const KvInputs& kv, const AttentionParams& attention,
                        Tensor sinks) {
    const std::int64_t n_tokens = operand(Op::attention, 1, q).ne[2];
    return emit(Op::attention, {q, keys, values, kv.table, kv.seqs, kv.spans, sinks, kv.positions, kv.bias}, DType::f32,
                heads_of(attention, n_tokens), {.attention = attention});
}

Tensor Graph::select_keys(Tensor iq, Tensor keys, Tensor weights, const KvInputs& kv, const AttentionParams& attention,
                          const Selection& selection) {
    const OpParams params{.k = selection.k,
                          .block = selection.block,
                          .local = selection.local,
                          .whole_blocks = selection.whole_blocks ? 1 : 0,
                          .last_only = selection.last_only ? 1 : 0,
                          .attention = attention};
    const std::int64_t n_head = iq ? operand(Op::select_keys, 1, iq).ne[1] : 1;
    const std::int64_t n_tokens = operand(Op::select_keys, 6, kv.spans).ne[1];
    const bool by_position = !selection.whole_blocks && (selection.block > 1 || selection.local > 0);
    const std::int64_t n_listed =
        selection.last_only ? selection.k
                            : (selection.k + (selection.whole_blocks ? 1 : 0)) * std::int64_t{selection.block};
    return emit(Op::select_keys,
                {iq, keys, weights, kv.table, kv.seqs, kv.spans, by_position ? kv.positions : Tensor()}, DType::i32,
                {n_listed, weights || selection.whole_blocks ? 1 : n_head, n_tokens, 1}, params);
}

Tensor Graph::sparse_attention(Tensor q, Tensor keys, Tensor values, Tensor chosen, const AttentionParams& attention,
                               Tensor sinks) {
    const std::int64_t n_tokens = operand(Op::sparse_attention, 1, q).ne[2];
    return emit(Op::sparse_attention, {q, keys, values, chosen, sinks}, DType::f32, heads_of(attention, n_tokens),
                {.attention = attention});
}

Tensor Graph::compressed_attention(Tensor q, Tensor keys, Tensor entries, Tensor chosen, const KvInputs& kv,
                                   const AttentionParams& attention, Tensor sinks) {
    const std::int64_t n_tokens = operand(Op::compressed_attention, 1, q).ne[2];
    return emit(Op::compressed_attention, {q, keys, entries, kv.table, kv.seqs, kv.spans, chosen, sinks}, DType::f32,
                heads_of(attention, n_tokens), {.attention = attention});
}

Tensor Graph::latest_mark(Tensor marks, const KvInputs& kv) {
    const std::int64_t n_tokens = operand(Op::latest_mark, 6, kv.spans).ne[1];
    return emit(Op::latest_mark, {Tensor{}, marks, Tensor{}, kv.table, kv.seqs, kv.spans}, DType::i32,
                {1, n_tokens, 1, 1});
}

// ---- recurrence -----------------------------------------------------------------------------------------------------

Tensor Graph::causal_conv(Tensor x, Tensor weight, Tensor bias, const RecurrentState& state, int dilation) {
    return emit(Op::causal_conv, {x, weight, bias, state.states, state.rows}, DType::f32,
                operand(Op::causal_conv, 1, x).ne, {.dilation = dilation});
}

Tensor Graph::compress_keys(Tensor t, Tensor g, Tensor a, Tensor positions, int block, bool overlap,
                            const RecurrentState& state) {
    const Shape ne = operand(Op::compress_keys, 1, t).ne;
    return emit(Op::compress_keys, {t, g, a, positions, state.states, state.rows}, DType::f32,
                {overlap ? ne[0] / 2 : ne[0], ne[1], 1, 1}, {.block = block, .overlap = overlap ? 1 : 0});
}

Tensor Graph::ngram_rows(Tensor ids, Tensor constants, int n, int end_id, const RecurrentState& state) {
    const std::int64_t n_tokens = operand(Op::ngram_rows, 1, ids).ne[0];
    const std::int64_t n_row = (operand(Op::ngram_rows, 2, constants).ne[1] - n) / 2;
    return emit(Op::ngram_rows, {ids, constants, state.states, state.rows}, DType::i32, {n_row, n_tokens, 1, 1},
                {.k = n, .first = end_id});
}

Tensor Graph::token_shift(Tensor x, const RecurrentState& state) {
    return emit(Op::token_shift, {x, state.states, state.rows}, DType::f32, operand(Op::token_shift, 1, x).ne);
}

Tensor Graph::selective_scan(Tensor x, Tensor dt, Tensor a, Tensor b, Tensor c, Tensor d, const RecurrentState& state) {
    return emit(Op::selective_scan, {x, dt, a, b, c, d, state.states, state.rows}, DType::f32,
                operand(Op::selective_scan, 1, x).ne);
}

Tensor Graph::wkv6(Tensor r, Tensor k, Tensor v, Tensor w, Tensor first, const RecurrentState& state) {
    return emit(Op::wkv6, {r, k, v, w, first, state.states, state.rows}, DType::f32, operand(Op::wkv6, 1, r).ne);
}

Tensor Graph::wkv7(Tensor r, Tensor w, Tensor k, Tensor v, Tensor kappa, Tensor a, const RecurrentState& state) {
    return emit(Op::wkv7, {r, w, k, v, kappa, a, state.states, state.rows}, DType::f32, operand(Op::wkv7, 1, r).ne);
}

Tensor Graph::delta_rule(Tensor q, Tensor k, Tensor v, Tensor gamma, Tensor beta, float factor,
                         const RecurrentState& state, bool modulo_heads) {
    return emit(Op::delta_rule, {q, k, v, gamma, beta, state.states, state.rows}, DType::f32,
                operand(Op::delta_rule, 3, v).ne, {.scale = factor, .modulo_heads = modulo_heads ? 1 : 0});
}

Tensor Graph::decay_rule(Tensor q, Tensor k, Tensor v, float factor, const RecurrentState& state) {
    return emit(Op::decay_rule, {q, k, v, state.states, state.rows}, DType::f32, operand(Op::decay_rule, 3, v).ne,
                {.scale = factor});
}

// ---- mixture of experts ---------------------------------------------------------------------------------------------

Tensor Graph::top_k(Tensor x, int k) {
    return emit(Op::top_k, {x}, DType::i32, {k, operand(Op::top_k, 1, x).ne[1], 1, 1}, {.k = k});
}

Tensor Graph::moe_weights(Tensor probs, Tensor ids, bool normalize, float factor) {
    operand(Op::moe_weights, 1, probs);
    return emit(Op::moe_weights, {probs, ids}, DType::f32, operand(Op::moe_weights, 2, ids).ne,
                {.scale = factor, .normalize = normalize ? 1 : 0});
}

Tensor Graph::moe_sum(Tensor y, Tensor weights) {
    const Value& rows = operand(Op::moe_sum, 1, y);
    return emit(Op::moe_sum, {y, weights}, DType::f32, {rows.ne[0], rows.ne[2], 1, 1});
}

Tensor Graph::keep_groups(Tensor scores, int n_group, int n_kept) {
    return elementwise(Op::keep_groups, scores, {.k = n_kept, .n_group = n_group});
}

Tensor Graph::divide_ids(Tensor ids, int n) {
    return emit(Op::divide_ids, {ids}, DType::i32, operand(Op::divide_ids, 1, ids).ne, {.k = n});
}

Tensor Graph::add_id(Tensor x, Tensor bias, Tensor ids) {
    return emit(Op::add_id, {x, bias, ids}, DType::f32, operand(Op::add_id, 1, x).ne);
}

// ---- positions as numbers, pooling ----------------------------------------------------------------------------------

Tensor Graph::log_temperature(Tensor positions, float factor, int n, int first) {
    const std::int64_t n_tokens = operand(Op::log_temperature, 1, positions).ne[0];
    return emit(Op::log_temperature, {positions}, DType::f32, {1, n_tokens, 1, 1},
                {.scale = factor, .k = n, .first = first});
}

Tensor Graph::segment_sum(Tensor x, Tensor segments, Tensor sums) {
    operand(Op::segment_sum, 1, x);
    operand(Op::segment_sum, 2, segments);
    return emit(Op::segment_sum, {x, segments, sums}, DType::f32, operand(Op::segment_sum, 3, sums).ne);
}

}  // namespace tinfer::graph
