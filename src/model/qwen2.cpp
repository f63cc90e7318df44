// SPDX-License-Identifier: MIT
// Qwen2 and Qwen2-MoE (arXiv:2407.10671): llama's block with half-split RoPE and biases on q, k, v; the expert form adds a
// shared expert behind a sigmoid gate of its own.
#include "base/error.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace qwen2 {

HParams read(KeyReader& keys) { return read_common(keys, RopeKind::neox); }

Weights bind(WeightBinder& binder, const HParams& hp) {
    using Bias = WeightBinder::Bias;
    Weights w = bind_globals(binder, hp);
    w.output.bias = binder.find_vector("output.bias", hp.n_vocab);
    for (int il = 0; il < hp.n_layer; ++il) {
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        bind_attention(binder, hp, il, Bias::required, Bias::none, layer);
        bind_dense_ffn(binder, hp, il, Bias::none, layer);
    }
    return w;
}

void build(const BuildContext& b) {
    pre_norm_stack(b, [&](const LayerWeights& w, Tensor h) { return gated_ffn(b.g, w.ffn_gate, w.ffn_up, w.ffn_down, h); });
}

}  // namespace qwen2

namespace qwen2moe {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    read_experts(keys, hp);
    if (hp.n_expert == 0) keys.bad("expert_count", "0", "architecture 'qwen2moe' needs expert_count > 0");
    const auto n_ff = static_cast<std::uint32_t>(hp.n_ff[0]);
    hp.n_ff_expert = expert_width(keys, "expert_feed_forward_length", n_ff / static_cast<std::uint32_t>(hp.n_expert_used));
    hp.n_ff_shared = expert_width(keys, "expert_shared_feed_forward_length", n_ff);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    using Bias = WeightBinder::Bias;
    Weights w = bind_globals(binder, hp, false);
    for (int il = 0; il < hp.n_layer; ++il) {
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        bind_attention(binder, hp, il, Bias::required, Bias::none, layer);
        bind_experts(binder, hp, il, layer);
        layer.ffn_gate_inp_shexp = binder.linear(block_name(il, "ffn_gate_inp_shexp"), hp.n_embd, 1);
        layer.ffn_gate_shexp = binder.linear(block_name(il, "ffn_gate_shexp"), hp.n_embd, hp.n_ff_shared);
        layer.ffn_up_shexp = binder.linear(block_name(il, "ffn_up_shexp"), hp.n_embd, hp.n_ff_shared);
        layer.ffn_down_shexp = binder.linear(block_name(il, "ffn_down_shexp"), hp.n_ff_shared, hp.n_embd);
    }
    return w;
}

void build(const BuildContext& b) {
    pre_norm_stack(b, [&](const LayerWeights& w, Tensor h) {
        Graph& g = b.g;
        const Tensor routed = moe_ffn(b, w, h);
        // + sigmoid(w_g · h) · FFN_sh(h): one gate per token
        g.set_part(Part::shared_expert);
        const Tensor gate = g.name(g.sigmoid(g.name(linear(g, w.ffn_gate_inp_shexp, h), "shexp_logit")), "shexp_gate");
        const Tensor shared = gated_ffn(g, w.ffn_gate_shexp, w.ffn_up_shexp, w.ffn_down_shexp, h);
        const Tensor gated = g.name(g.mul(shared, gate), "shexp_out");
        g.set_part(Part::ffn);
        return g.name(g.add(routed, gated), "ffn_out");
    });
}

}  // namespace qwen2moe

}  // namespace tinfer::model
