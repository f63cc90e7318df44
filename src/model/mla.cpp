// SPDX-License-Identifier: MIT
#include "model/mla.hpp"

namespace tinfer::model {

void bind_latent_attention(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    const MlaSizes& m = hp.mla;
    const std::int64_t n_head = hp.n_head[static_cast<std::size_t>(il)], n_nope = m.head_dim_k - hp.n_rot;
    if (m.n_lora_q > 0) {
        w.attn_q_a = binder.linear(block_name(il, "attn_q_a"), hp.n_embd, m.n_lora_q);
        w.attn_q_a_norm = binder.norm(block_name(il, "attn_q_a_norm"), {m.n_lora_q});
        w.attn_q_b = binder.linear(block_name(il, "attn_q_b"), m.n_lora_q, n_head * m.head_dim_k);
    } else {
        w.attn_q = binder.linear(block_name(il, "attn_q"), hp.n_embd, n_head * m.head_dim_k);
    }
    w.attn_kv_a_mqa = binder.linear(block_name(il, "attn_kv_a_mqa"), hp.n_embd, m.n_lora_kv + hp.n_rot);
    w.attn_kv_a_norm = binder.norm(block_name(il, "attn_kv_a_norm"), {m.n_lora_kv});
    if (m.absorbed) {
        w.attn_k_b = binder.matrix(block_name(il, "attn_k_b"), {n_nope, m.n_lora_kv, n_head});
        w.attn_v_b = binder.matrix(block_name(il, "attn_v_b"), {m.n_lora_kv, m.head_dim_v, n_head});
        binder.ignore(block_name(il, "attn_kv_b.weight"));  // the same numbers once more, in some files
    } else {
        w.attn_kv_b = binder.linear(block_name(il, "attn_kv_b"), m.n_lora_kv, n_head * (n_nope + m.head_dim_v));
    }
    w.attn_output = binder.linear(block_name(il, "attn_output"), n_head * m.head_dim_v, hp.n_embd);
}

Tensor latent_attention(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    Graph& g = b.g;
    const LayerWeights& w = b.w.layers[static_cast<std::size_t>(il)];
    const MlaSizes& m = b.hp.mla;
    const int n_head = b.hp.n_head[static_cast<std::size_t>(il)], n_rot = b.hp.n_rot, n_nope = m.head_dim_k - n_rot;
    g.set_part(Part::attn);

    // q = [q_n | rope(q_r)] per head
    const Tensor from = w.attn_q ? h : norm(b, w.attn_q_a_norm, g.name(linear(g, w.attn_q_a, h), "q_a"), "q_a_norm");
    const Tensor q = g.heads(g.name(linear(g, w.attn_q ? w.attn_q : w.attn_q_b, from), "q"), n_head);
    const Tensor q_n = g.view(q, 0, n_nope);
    const Tensor q_r = g.name(g.rope(g.view(q, n_nope, n_rot), in.full.rope_table, b.rope), "q_rope");

    // [l | k_r] = W_kva·h: the latent, normed, and the rotated part of every head's key
    const Tensor kv_a = g.name(linear(g, w.attn_kv_a_mqa, h), "kv_a");
    const Tensor latent = norm(b, w.attn_kv_a_norm, g.view(kv_a, 0, m.n_lora_kv), "kv_a_norm");
    const Tensor k_r =
        g.name(g.rope(g.heads(g.view(kv_a, m.n_lora_kv, n_rot), 1), in.full.rope_table, b.rope), "k_rope");

    Qkv x;
    if (m.absorbed) {
        // ⟨q_n, K_h·l⟩ = ⟨K_hᵀ·q_n, l⟩, so the latent is the one key, and Σ p·V_h·l = V_h·Σ p·l
        x.q = g.name(g.concat(g.name(g.mul_mat_heads(g.weight(*w.attn_k_b), q_n), "q_latent"), q_r), "q_joined");
        x.v = g.heads(latent, 1);
        x.k = g.name(g.concat(x.v, k_r), "k_joined");
    } else {
        const Tensor kv = g.heads(g.name(linear(g, w.attn_kv_b, latent), "kv"), n_head);
        x.q = g.name(g.concat(q_n, q_r), "q_joined");
        x.k = g.name(g.concat(g.view(kv, 0, n_nope), k_r), "k_joined");
        x.v = g.view(kv, n_nope, m.head_dim_v);
    }
    Tensor a = cached_attention(b, in, il, x);
    if (writes_only(b, il)) return a;
    if (m.absorbed) {
        a = g.name(g.mul_mat_heads(g.weight(*w.attn_v_b), g.heads(a, n_head)), "attn_heads");
        a = g.reshape(a, {std::int64_t{m.head_dim_v} * n_head, b.shape.n_tokens, 1, 1});
    }
    g.set_part(Part::attn_out);
    return g.name(linear(g, w.attn_output, a), "attn_out");
}

}  // namespace tinfer::model
