// SPDX-License-Identifier: MIT
// Llama 4, its text part (Meta, 2025): three layers of four rotate, norm each head of q and k without weights, and see
// a chunk of the sequence; the fourth has no positions, sees everything, and sharpens its scores as the context grows.
// Layers with a router send each token to one expert, whose input it scales, and to a shared one.
#include <algorithm>

#include "base/error.hpp"
#include "model/families.hpp"

namespace tinfer::model::llama4 {

namespace {

constexpr int kPeriod = 4;    // layers, of which the last has no positions
constexpr int kChunk = 8192;  // tokens of an attention chunk, and of a step of the temperature
constexpr float kTemperature = 0.1f;
constexpr int kExpertsOfMaverick = 128;  // the model whose heads are not normed

Tensor attention(const BuildContext& b, const Inputs& in, int il, Tensor h) {
    Graph& g = b.g;
    g.set_part(Part::attn);
    Qkv x = qkv(b, il, h);
    if (b.hp.rotates(il)) {
        rotate(b, in, il, x);
        if (b.hp.experts.n != kExpertsOfMaverick) {
            x.q = g.name(g.rms_norm(x.q, {}, b.hp.rms_eps), "q_norm");
            x.k = g.name(g.rms_norm(x.k, {}, b.hp.rms_eps), "k_norm");
        }
        return attention_out(b, in, il, x);
    }
    // q · (1 + 0.1 · ln(1 + floor((p + 1) / 8192))): one number per token
    const AttentionParams p = attention_params(b, il);
    const Tensor temperature = g.name(g.log_temperature(in.positions, kTemperature, kChunk, 1), "attn_temperature");
    const Tensor rows = g.reshape(x.q, {std::int64_t{p.head_dim_k} * p.n_head, b.shape.n_tokens, 1, 1});
    x.q = g.heads(g.name(g.mul(rows, temperature), "q_scaled"), p.n_head);
    return attention_out(b, in, il, x);
}

/// FFN_e(σ(z_e) · h) + FFN_sh(h), e the expert with the largest logit z.
Tensor ffn(const BuildContext& b, const LayerWeights& w, Tensor h) {
    if (!w.ffn_gate_inp) return feed_forward(b, w, h);
    Graph& g = b.g;
    g.set_part(Part::router);
    const Tensor logits = g.name(linear(b, w.ffn_gate_inp, h), "ffn_moe_logits");
    const Tensor ids = g.name(g.top_k(logits, 1), "ffn_moe_topk");
    const Tensor probs = g.name(g.sigmoid(logits), "ffn_moe_probs");
    const Tensor weight = g.name(g.moe_weights(probs, ids, false, b.hp.experts.weights_scale), "ffn_moe_weights");
    g.set_part(Part::experts);
    const Tensor routed = experts(b, w, g.name(g.mul(h, weight), "ffn_moe_scaled"), ids);
    const Tensor shared = shared_expert(b, w, h);
    g.set_part(Part::ffn);
    return g.name(g.add(g.reshape(routed, g.value(h).ne), shared), "ffn_out");
}

void read_chunks(KeyReader& keys, HParams& hp) {
    if (hp.experts.n_used != 1)
        keys.bad("expert_used_count", cat(hp.experts.n_used), "architecture 'llama4' routes each token to one expert");
    hp.experts.n_ff_shared = hp.experts.n_ff;
    hp.experts.layer_step =
        static_cast<int>(std::min<std::uint32_t>(keys.require_u32("interleave_moe_layer_step"), 1u << 20));
    read_window(keys, hp, WindowKind::chunked, kChunk, kPeriod);
    if (hp.has_windowed_layers()) hp.rope.layers = hp.windows.layers;
}

void bind_ffn(WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
    const int step = hp.experts.layer_step;
    if (step > 0 && (il + 1) % step == 0) bind_experts(binder, hp, il, layer);
    else bind_gated_ffn(binder, hp, il, layer);
}

}  // namespace

}  // namespace tinfer::model::llama4

namespace tinfer::model {
const Family families::llama4{
    .experts = {.count = ExpertKeys::Count::required, .gating = GatingFunc::sigmoid},
    .keys = llama4::read_chunks,
    .block = {.ffn = FeedForward::own},
    .layer = llama4::bind_ffn,
    .mixer = llama4::attention,
    .ffn = llama4::ffn,
};
}  // namespace tinfer::model
