// SPDX-License-Identifier: MIT
#include "model/blocks.hpp"

#include "base/error.hpp"

namespace tinfer::model {

Inputs make_inputs(const BuildContext& b) {
    Graph& g = b.g;
    const BatchShape& s = b.shape;
    g.set_layer(kNoLayer);
    g.set_part(Part::embed);
    Inputs in;
    if (s.from_embeddings) {
        in.x = g.input("inp_embd", DType::f32, {b.hp.n_embd, s.n_tokens, 1, 1});
    } else {
        const Tensor ids = g.input("inp_tokens", DType::i32, {s.n_tokens, 1, 1, 1});
        in.x = g.name(g.get_rows(g.weight(*b.w.token_embd), ids), "inp_embd");
    }
    const Tensor positions = g.input("inp_pos", DType::i32, {s.n_tokens, 1, 1, 1});
    AttentionInputs& full = in.full;
    full.cells = g.input("kv_cells", DType::i32, {s.n_tokens, 1, 1, 1});
    full.kv.table = g.input("kv_table", DType::i32, {4, s.n_table_entries, 1, 1});
    full.kv.seqs = g.input("kv_seqs", DType::i32, {2, s.n_seqs, 1, 1});
    full.kv.spans = g.input("kv_spans", DType::i32, {4, s.n_tokens, 1, 1});
    if (s.n_outputs > 0) in.out_rows = g.input("inp_out_rows", DType::i32, {s.n_outputs, 1, 1, 1});
    const Tensor factors = b.rope_factors != nullptr ? g.weight(*b.rope_factors) : Tensor{};
    full.rope = b.rope;
    full.rope_table = g.name(g.rope_table(positions, b.rope, factors), "rope_table");
    if (!b.hp.has_windowed_layers()) return in;

    in.windowed = full;
    in.windowed.kv.spans = g.input("kv_spans_window", DType::i32, {4, s.n_tokens, 1, 1});
    if (b.hp.has_window_rope()) {
        in.windowed.rope = b.rope_window;
        in.windowed.rope_table = g.name(g.rope_table(positions, b.rope_window, factors), "rope_table_window");
    }
    return in;
}

Tensor vector(Graph& g, const TensorInfo* weight) {
    const Tensor w = g.weight(*weight);
    return weight->type == DType::f32 ? w : g.name(g.copy(w), weight->role);
}

Tensor linear(Graph& g, const Linear& map, Tensor x) {
    const Tensor y = g.mul_mat(g.weight(*map.weight), x);
    return map.bias == nullptr ? y : g.add(y, vector(g, map.bias));
}

Tensor self_attention(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    Graph& g = b.g;
    const auto i = static_cast<std::size_t>(il);
    const LayerWeights& w = b.w.layers[i];
    const AttentionParams params{.n_head = b.hp.n_head[i], .n_head_kv = b.hp.n_head_kv[i], .head_dim_k = b.hp.head_dim_k,
                                 .head_dim_v = b.hp.head_dim_v, .scale = b.hp.attn_scale, .softcap = b.hp.attn_softcap};
    const AttentionInputs& ins = in.of(b.hp, il);
    g.set_part(Part::attn);
    Tensor q = g.heads(g.name(linear(g, w.attn_q, h), "q"), params.n_head);
    Tensor k = g.heads(g.name(linear(g, w.attn_k, h), "k"), params.n_head_kv);
    const Tensor v = g.heads(g.name(linear(g, w.attn_v, h), "v"), params.n_head_kv);
    if (w.attn_q_norm != nullptr) q = g.name(g.rms_norm(q, vector(g, w.attn_q_norm), b.hp.rms_eps), "q_norm");
    if (w.attn_k_norm != nullptr) k = g.name(g.rms_norm(k, vector(g, w.attn_k_norm), b.hp.rms_eps), "k_norm");
    q = g.name(g.rope(q, ins.rope_table, ins.rope), "q_rope");
    k = g.name(g.rope(k, ins.rope_table, ins.rope), "k_rope");
    const Tensor keys = g.name(g.kv_write(g.cache(*b.memory[i].k), k, ins.cells, params, false), "cache_k_write");
    const Tensor values = g.name(g.kv_write(g.cache(*b.memory[i].v), v, ins.cells, params, true), "cache_v_write");
    if (il == b.hp.n_layer - 1 && b.shape.n_outputs == 0) return keys;
    const Tensor sinks = w.attn_sinks != nullptr ? vector(g, w.attn_sinks) : Tensor{};
    const Tensor a = g.name(g.attention(q, keys, values, ins.kv, params, sinks), "attn");
    g.set_part(Part::attn_out);
    return g.name(linear(g, w.attn_output, a), "attn_out");
}

Tensor gated_ffn(Graph& g, const Linear& gate, const Linear& up, const Linear& down, Tensor h) {
    const Tensor gated = g.name(g.silu(g.name(linear(g, gate, h), "ffn_gate")), "ffn_silu");
    const Tensor product = g.name(g.mul(gated, g.name(linear(g, up, h), "ffn_up")), "ffn_swiglu");
    return g.name(linear(g, down, product), "ffn_out");
}

Tensor moe_ffn(const BuildContext& b, const LayerWeights& w, Tensor h) {
    Graph& g = b.g;
    g.set_part(Part::router);
    const Tensor logits = g.name(linear(g, w.ffn_gate_inp, h), "ffn_moe_logits");
    const Tensor probs = g.name(g.softmax(logits), "ffn_moe_probs");
    const Tensor ids = g.name(g.top_k(probs, b.hp.n_expert_used), "ffn_moe_topk");
    const Tensor weights = g.name(g.moe_weights(probs, ids, b.hp.expert_weights_norm, b.hp.expert_weights_scale), "ffn_moe_weights");
    g.set_part(Part::experts);
    const Tensor gate = g.name(g.mul_mat_id(g.weight(*w.ffn_gate_exps), h, ids), "ffn_moe_gate");
    const Tensor up = g.name(g.mul_mat_id(g.weight(*w.ffn_up_exps), h, ids), "ffn_moe_up");
    const Tensor product = g.name(g.mul(g.name(g.silu(gate), "ffn_moe_silu"), up), "ffn_moe_swiglu");
    const Tensor down = g.name(g.mul_mat_id(g.weight(*w.ffn_down_exps), product, ids), "ffn_moe_down");
    return g.name(g.moe_sum(down, weights), "ffn_moe_out");
}

Tensor output_rows(const BuildContext& b, const Inputs& in, Tensor x) {
    const Tensor rows = b.g.get_rows(x, in.out_rows);
    return b.g.name(rows, "out_rows");
}

void head(const BuildContext& b, Tensor x) {
    Graph& g = b.g;
    g.set_layer(kNoLayer);
    g.set_part(Part::head);
    const Tensor h = g.name(g.rms_norm(x, vector(g, b.w.output_norm), b.hp.rms_eps), "result_norm");
    if (b.shape.want_embeddings) g.output(h);
    if (!b.shape.want_logits) return;
    g.output(g.name(linear(g, b.w.output, h), "result_output"));
}

void bind_attention(WeightBinder& binder, const HParams& hp, int il, WeightBinder::Bias qkv, WeightBinder::Bias out, LayerWeights& w) {
    const auto i = static_cast<std::size_t>(il);
    const std::int64_t n_q = std::int64_t{hp.n_head[i]} * hp.head_dim_k, n_k = std::int64_t{hp.n_head_kv[i]} * hp.head_dim_k;
    const std::int64_t n_v = std::int64_t{hp.n_head_kv[i]} * hp.head_dim_v, n_o = std::int64_t{hp.n_head[i]} * hp.head_dim_v;
    w.attn_norm = binder.vector(block_name(il, "attn_norm.weight"), hp.n_embd);
    w.attn_q = binder.linear(block_name(il, "attn_q"), hp.n_embd, n_q, qkv);
    w.attn_k = binder.linear(block_name(il, "attn_k"), hp.n_embd, n_k, qkv);
    w.attn_v = binder.linear(block_name(il, "attn_v"), hp.n_embd, n_v, qkv);
    w.attn_output = binder.linear(block_name(il, "attn_output"), n_o, hp.n_embd, out);
    w.ffn_norm = binder.vector(block_name(il, "ffn_norm.weight"), hp.n_embd);
}

void bind_dense_ffn(WeightBinder& binder, const HParams& hp, int il, WeightBinder::Bias bias, LayerWeights& w) {
    const std::int64_t n_ff = hp.n_ff[static_cast<std::size_t>(il)];
    w.ffn_gate = binder.linear(block_name(il, "ffn_gate"), hp.n_embd, n_ff, bias);
    w.ffn_up = binder.linear(block_name(il, "ffn_up"), hp.n_embd, n_ff, bias);
    w.ffn_down = binder.linear(block_name(il, "ffn_down"), n_ff, hp.n_embd, bias);
}

void bind_experts(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    w.ffn_gate_inp = binder.linear(block_name(il, "ffn_gate_inp"), hp.n_embd, hp.n_expert);
    w.ffn_gate_exps = binder.matrix(block_name(il, "ffn_gate_exps"), {hp.n_embd, hp.n_ff_expert, hp.n_expert});
    w.ffn_up_exps = binder.matrix(block_name(il, "ffn_up_exps"), {hp.n_embd, hp.n_ff_expert, hp.n_expert});
    w.ffn_down_exps = binder.matrix(block_name(il, "ffn_down_exps"), {hp.n_ff_expert, hp.n_embd, hp.n_expert});
}

Weights bind_globals(WeightBinder& binder, const HParams& hp, bool tied_allowed) {
    Weights w;
    w.token_embd = binder.matrix("token_embd", {hp.n_embd, hp.n_vocab});
    w.output_norm = binder.vector("output_norm.weight", hp.n_embd);
    w.output.weight = binder.find_matrix("output", {hp.n_embd, hp.n_vocab});
    if (w.output.weight == nullptr) w.output.weight = tied_allowed ? w.token_embd : binder.matrix("output", {hp.n_embd, hp.n_vocab});
    w.rope_freqs = binder.find_factors("rope_freqs.weight", hp.n_rot / 2);
    w.rope_factors_long = binder.find_factors("rope_factors_long.weight", hp.n_rot / 2);
    w.rope_factors_short = binder.find_factors("rope_factors_short.weight", hp.n_rot / 2);
    w.layers.resize(static_cast<std::size_t>(hp.n_layer));
    return w;
}

}  // namespace tinfer::model
