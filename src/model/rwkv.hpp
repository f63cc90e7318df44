// SPDX-License-Identifier: MIT
// What RWKV-6 and RWKV-7 share: keys, states, the channel mix, and a stack whose two sub-layers both look one token
// back.
#pragma once

#include "model/recurrent.hpp"

namespace tinfer::model {

/// wkv.head_size, a divisor of n_embd; a feed-forward part; as many token shifts in a layer as given.
void read_head_size(KeyReader& keys, HParams& hp, int n_shift);
/// Common keys, head size; two shifted vectors and a matrix per head as states of every layer.
[[nodiscard]] HParams read_rwkv(KeyReader& keys);
/// Embedding and its norm, head, and per layer: two norms, key, value, receptance, output and norm of the time mix, key
/// and value of the channel mix.
[[nodiscard]] Weights bind_rwkv(WeightBinder& binder, const HParams& hp);

/// n + s ⊙ m: between this token and the one before (s = prev(n) − n) as m says, {n_embd} or {n_embd, T}.
[[nodiscard]] Tensor lerp(Graph& g, Tensor n, Tensor s, Tensor m);
/// Part i of a weight of `n` values each: one of several vectors stored as one.
[[nodiscard]] Tensor part_of(Graph& g, const TensorInfo* fused, std::int64_t n, std::int64_t i);
/// y in heads {S, H, T} → {n_embd, T}: a layer norm over each head (eps 64e-5), its weight and bias over the full
/// width.
[[nodiscard]] Tensor norm_of_heads(const BuildContext& b, const Norm& w, Tensor y);

/// W_v·relu²(W_k·lerp(n, s, lerp_k)), times sigmoid(W_r·lerp(n, s, lerp_r)) where the layer has a receptance.
[[nodiscard]] Tensor channel_mix(const BuildContext& b, const RwkvWeights& w, Tensor n, Tensor s);

/// x += time_mix(norm(x)); x += channel_mix(norm2(x)). time_mix(in, il, n, s) may be anything that leaves the layer's
/// state. `v_first`: what the first layer makes for all others, {n_embd, T}; null: nothing.
template <class TimeMix>
void rwkv_stack(const BuildContext& b, TimeMix&& time_mix, Tensor* v_first = nullptr) {
    Graph& g = b.g;
    const Inputs in = make_inputs(b);
    Tensor x = handed(b, in, 0, b.hp.n_embd);
    if (v_first != nullptr && b.hp.begins_late()) *v_first = handed(b, in, b.hp.n_embd, b.hp.n_embd);
    const bool whole = each_layer(b, [&](int il, const LayerWeights& w) {
        Tensor n = norm(b, w.attn_norm, x, "attn_norm");
        g.set_part(Part::state);
        Tensor s = g.name(g.token_shift(n, state(b, in, il, 0)), "att_shift");
        x = add_residual(b, x, time_mix(in, il, n, s), "ffn_inp");

        g.set_part(Part::ffn_norm);
        n = norm(b, w.rwkv.attn_norm_2, x, "ffn_norm");
        g.set_part(Part::ffn);
        s = g.name(g.token_shift(n, state(b, in, il, 1)), "ffn_shift");
        if (!keep_output_rows(b, in, il, {&x, &n, &s})) return false;
        x = end_layer(b, add_residual(b, x, channel_mix(b, w.rwkv, n, s)));
        if (b.hp.recurrent.rwkv.rescale_every > 0 && (il + 1) % b.hp.recurrent.rwkv.rescale_every == 0)
            x = g.name(g.scale(x, 0.5f), "l_scaled");
        return true;
    });
    if (!whole || hand_over(b, {x, v_first != nullptr ? *v_first : Tensor{}})) return;
    head(b, x);
}

}  // namespace tinfer::model
