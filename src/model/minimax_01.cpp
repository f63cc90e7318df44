// SPDX-License-Identifier: MIT
// MiniMax-Text-01 and M1 (arXiv:2501.08313): seven layers of eight have lightning attention (arXiv:2405.17381), a state
// that decays at a rate fixed for each head and layer; experts in every layer; residuals start from the normed stream.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/families.hpp"
#include "model/recurrent.hpp"

namespace tinfer::model::minimax_01 {

namespace {

// [q | k | v] = silu(W·h) per head;  S ← λS + k ⊗ v;  W_o·(σ(W_gate·h) ⊙ norm(Sᵀq))
Tensor lightning(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    Graph& g = b.g;
    const LayerWeights& w = b.layer(il);
    const std::int64_t n_head = b.hp.n_head_of(il), size = b.hp.head_dim_k;
    g.set_part(Part::state);
    const Tensor all = g.heads(g.name(g.silu(g.name(linear(b, w.attn_qkv, h), "qkv")), "qkv_silu"), n_head);
    const float factor = 1.0f - static_cast<float>(il) / static_cast<float>(b.hp.n_layer - 1) + 1e-5f;
    const RecurrentState past = state(b, in, il, 0);
    const Tensor v = g.view(all, 2 * size, size), k = g.view(all, size, size), q = g.view(all, 0, size);
    const Tensor o = g.name(g.decay_rule(q, k, v, factor, past), "decay_rule");
    if (writes_only(b, il)) return o;
    const Tensor flat = g.reshape(o, {n_head * size, b.shape.n_tokens, 1, 1});
    const Tensor normed = norm(b, w.attn_norm_2, flat, "attn_norm_2");
    g.set_part(Part::attn_out);
    return g.name(linear(b, w.attn_output, gate_heads(b, normed, attention_gate(b, il, h))), "attn_out");
}

bool is_linear(const HParams& hp, int il) { return !hp.recurrent.states[static_cast<std::size_t>(il)].empty(); }

}  // namespace

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    if (hp.n_layer < 2) keys.bad("block_count", cat(hp.n_layer), "must be at least 2");
    hp.residual_scale = positive_f32(keys, "residual_scale", {});
    read_normalized_experts(keys, hp);
    require_experts(keys, hp);
    hp.experts.n_ff = hp.n_ff[0];
    const auto recurrent = read_recurrent_layers(keys, hp, 8);
    if (hp.head_dim_v != hp.head_dim_k)
        keys.bad("attention.value_length", cat(hp.head_dim_v), cat("must be key_length ", hp.head_dim_k));
    hp.recurrent.states.resize(static_cast<std::size_t>(hp.n_layer));
    for (std::size_t il = 0; il < hp.recurrent.states.size(); ++il) {
        if (!recurrent[il]) continue;
        hp.n_head_kv[il] = 0;
        hp.recurrent.states[il] = {{"decay_state", std::int64_t{hp.n_head[il]} * hp.head_dim_k * hp.head_dim_k}};
    }
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing, {.mixer = Mixer::own, .ffn = FeedForward::experts},
                      [&](int il, LayerWeights& w) {
                          if (!is_linear(hp, il)) return bind_attention(binder, hp, il, w, Bias::optional);
                          const std::int64_t n = std::int64_t{hp.n_head_of(il)} * hp.head_dim_k;
                          w.attn_qkv = binder.linear(block_name(il, "attn_qkv"), hp.n_embd, 3 * n);
                          w.attn_norm_2 = binder.norm(block_name(il, "attn_norm_2"), {n});
                          w.attn_gate = binder.linear(block_name(il, "attn_gate"), hp.n_embd, n);
                          w.attn_output = binder.linear(block_name(il, "attn_output"), n, hp.n_embd);
                      });
}

// n = norm(x); y = branch(n) + ρ·n; n2 = norm(y); x = moe(n2) + ρ·n2
void build(const BuildContext& b) {
    Graph& g = b.g;
    const Inputs in = make_inputs(b);
    stream_stack(b, in, [&](int il, const LayerWeights& w, Tensor x) -> Tensor {
        Tensor n = norm(b, w.attn_norm, x, "attn_norm");
        Tensor a = is_linear(b.hp, il) ? lightning(b, in, il, n) : self_attention(b, in, il, n);
        if (!keep_output_rows(b, in, il, {&a, &n})) return {};
        g.set_part(Part::attn_out);
        const Tensor y = add_residual(b, a, n, "ffn_inp");
        g.set_part(Part::ffn_norm);
        n = norm(b, w.ffn_norm, y, "ffn_norm");
        g.set_part(Part::ffn);
        return add_residual(b, feed_forward(b, w, n), n);
    });
}

}  // namespace tinfer::model::minimax_01

namespace tinfer::model {
const Family families::minimax_01{
    .read_all = minimax_01::read, .bind_all = minimax_01::bind, .build_all = minimax_01::build};
}  // namespace tinfer::model
