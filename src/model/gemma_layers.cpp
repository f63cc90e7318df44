// SPDX-License-Identifier: MIT
#include "model/gemma_layers.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "model/kv_rotation.hpp"

namespace tinfer::model {

void share_last_layers(KeyReader& keys, HParams& hp, int n_own, std::string_view key) {
    if (n_own >= hp.n_layer) return;
    if (n_own < 2 || !hp.is_windowed(n_own - 2) || hp.is_windowed(n_own - 1))
        keys.bad(key, cat(hp.n_layer - n_own),
                 cat("the last layers with keys of their own, ", n_own - 2, " and ", n_own - 1,
                     ", must be one with a window and one without"));
    hp.attention.n_layer_kv = n_own;
    for (int il = n_own; il < hp.n_layer; ++il)
        if (hp.n_head_kv_of(il) != hp.n_head_kv[static_cast<std::size_t>(hp.kv_layer(il))])
            keys.bad("attention.head_count_kv", cat(hp.n_head_kv_of(il)),
                     cat("layer ", il, " must have as many as layer ", hp.kv_layer(il), ", whose keys it looks at"));
}

void bind_layer_inputs(WeightBinder& binder, const HParams& hp, Weights& w) {
    const std::int64_t n = std::int64_t{hp.n_per_layer} * (hp.n_layer + hp.n_layer_draft);
    w.layer_embd = binder.matrix("per_layer_token_embd", {n, hp.n_vocab});
    w.layer_proj = binder.linear("per_layer_model_proj", hp.n_embd, n);
    w.layer_proj_norm = binder.norm("per_layer_proj_norm", {hp.n_per_layer});
}

void bind_layer_input(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    w.inp_gate = binder.linear(block_name(il, "inp_gate"), hp.n_embd, hp.n_per_layer);
    w.inp_proj = binder.linear(block_name(il, "proj"), hp.n_per_layer, hp.n_embd);
    w.inp_post_norm = binder.norm(block_name(il, "post_norm"), {hp.n_embd});
}

std::int64_t layer_inputs_width(const HParams& hp, int il) noexcept {
    return std::int64_t{hp.n_per_layer} * (hp.n_layer + hp.n_layer_draft - il);
}

Tensor layer_inputs_behind(const BuildContext& b, Tensor u) {
    if (!b.hp.ends_early()) return {};
    const std::int64_t n = layer_inputs_width(b.hp, b.hp.end_layer());
    return b.g.view(u, b.g.value(u).ne[0] - n, n);
}

Tensor layer_inputs(const BuildContext& b, const Inputs& in, std::int64_t n_before) {
    Graph& g = b.g;
    if (b.hp.begins_late()) return handed(b, in, n_before, layer_inputs_width(b.hp, b.hp.part.first));
    const std::int64_t n = b.hp.n_layer + b.hp.n_layer_draft, width = b.hp.n_per_layer;
    g.set_layer(kNoLayer);
    g.set_part(Part::embed);
    // Embeddings of the caller have no token: row 0 stands in, of ids that are zero.
    const Tensor ids = in.tokens ? in.tokens : g.input(graph::Input::types, DType::i32, {b.shape.n_tokens, 1, 1, 1});
    const Tensor rows = g.name(g.get_rows(g.weight(*b.w.layer_embd), ids), "layer_embd");
    const float root = std::sqrt(static_cast<float>(width));
    const Tensor own = g.name(g.scale(rows, root), "layer_embd_scaled");
    const Tensor from_x = g.name(linear(b, b.w.layer_proj, in.x), "layer_proj");
    const Tensor scaled = g.scale(from_x, 1.0f / std::sqrt(static_cast<float>(b.hp.n_embd)));
    const Tensor normed = norm(b, b.w.layer_proj_norm, g.heads(scaled, n), "layer_proj_norm");
    const Tensor sum = g.add(g.reshape(normed, g.value(own).ne), own);
    return g.name(g.scale(sum, 1.0f / std::sqrt(2.0f)), "layer_inputs");
}

Tensor add_layer_input(const BuildContext& b, const LayerWeights& w, int il, Tensor x, Tensor u) {
    Graph& g = b.g;
    const Tensor own = g.view(u, std::int64_t{il - b.hp.part.first} * b.hp.n_per_layer, b.hp.n_per_layer);
    const Tensor gate = g.name(g.gelu(g.name(linear(b, w.inp_gate, x), "inp_gate")), "inp_gelu");
    const Tensor y = g.name(linear(b, w.inp_proj, g.name(g.mul(gate, own), "inp_gated")), "inp_proj");
    return norm(b, w.inp_post_norm, y, "inp_post_norm");
}

Tensor gemma_attention(const BuildContext& b, const Inputs& in, int il, Tensor h, SharedKv& shared) {
    Graph& g = b.g;
    const auto i = static_cast<std::size_t>(il);
    const LayerWeights& w = b.w.layers[i];
    const AttentionParams p = attention_params(b, il);
    const AttentionInputs& view = in.of(b.hp, il);
    g.set_part(Part::attn);
    const bool own = b.hp.kv_layer(il) == il;
    Qkv& written = shared.written[b.hp.is_windowed(il) ? 1 : 0];
    Tensor raw_q, raw_k, raw_v;
    if (w.attn_qkv) {
        const std::int64_t n_q = std::int64_t{p.n_head} * p.head_dim_k, n_k = std::int64_t{p.n_head_kv} * p.head_dim_k;
        const Tensor all = g.name(linear(b, w.attn_qkv, h), "qkv");
        raw_q = g.view(all, 0, n_q);
        raw_k = g.view(all, n_q, n_k);
        raw_v = g.view(all, n_q + n_k, std::int64_t{p.n_head_kv} * p.head_dim_v);
    } else {
        raw_q = g.name(linear(b, w.attn_q, h), "q");
        if (own) raw_k = g.name(linear(b, w.attn_k, h), "k");
        if (own) raw_v = w.attn_v ? g.name(linear(b, w.attn_v, h), "v") : raw_k;
    }
    if (own) {
        const Tensor k = norm_heads(b, w.attn_k_norm, raw_k, p.n_head_kv, "k_norm");
        const Tensor v = g.name(g.rms_norm(g.heads(raw_v, p.n_head_kv), {}, b.hp.rms_eps), "v_norm");
        const Tensor rotated = g.name(g.rope(k, view.rope_table, view.rope), "k_rope");
        const LayerMemory& m = b.memory[i];
        const Tensor key_rows = hadamard_keys(b, rotated, p, "k_hadamard");
        written.k = g.name(g.kv_write(g.cache(*m.k), key_rows, view.slots, p, false), "cache_k_write");
        const Tensor value_rows = hadamard_values(b, v, p, "v_hadamard");
        written.v = g.name(g.kv_write(g.cache(*m.v), value_rows, view.slots, p, true), "cache_v_write");
        if (writes_only(b, il)) return written.k;
    }
    const Tensor q = norm_heads(b, w.attn_q_norm, raw_q, p.n_head, "q_norm");
    const Tensor rotated = g.name(g.rope(q, view.rope_table, view.rope), "q_rope");
    const Tensor a = g.attention(hadamard_keys(b, rotated, p, "q_hadamard"), written.k, written.v, view.kv, p);
    const Tensor attended = undo_hadamard(b, a, p, "attn", "attn_rotated");
    g.set_part(Part::attn_out);
    return g.name(linear(b, w.attn_output, attended), "attn_out");
}

void bind_gemma_attention(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, bool v_optional) {
    const auto i = static_cast<std::size_t>(il);
    const std::int64_t d = hp.head_k(il), n_q = hp.n_head[i] * d, n_k = hp.n_head_kv[i] * d;
    const auto name = [&](std::string_view role) { return block_name(il, role); };
    w.attn_output = binder.linear(name("attn_output"), n_q, hp.n_embd);
    w.attn_q_norm = binder.norm(name("attn_q_norm"), {d});
    const bool own = hp.kv_layer(il) == il;
    if (binder.exists(name("attn_qkv.weight"))) {
        w.attn_qkv = binder.linear(name("attn_qkv"), hp.n_embd, n_q + 2 * n_k);
    } else {
        w.attn_q = binder.linear(name("attn_q"), hp.n_embd, n_q);
        if (own) w.attn_k = binder.linear(name("attn_k"), hp.n_embd, n_k);
        if (own)
            w.attn_v = v_optional ? binder.find_linear(name("attn_v"), hp.n_embd, n_k)
                                  : binder.linear(name("attn_v"), hp.n_embd, n_k);
    }
    if (own) w.attn_k_norm = binder.norm(name("attn_k_norm"), {d});
    else
        for (const char* const role : {"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"})
            binder.ignore(name(role));
}

}  // namespace tinfer::model
