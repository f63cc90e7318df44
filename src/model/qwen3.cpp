// SPDX-License-Identifier: MIT
// Qwen3 and Qwen3-MoE (arXiv:2505.09388): llama's block with half-split RoPE and RMS norms over each head of q and k before
// it; no biases. The expert form normalizes the chosen gate values.
#include "base/error.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

void bind_normed_attention(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    bind_attention(binder, hp, il, WeightBinder::Bias::none, WeightBinder::Bias::none, w);
    w.attn_q_norm = binder.vector(block_name(il, "attn_q_norm.weight"), hp.head_dim_k);
    w.attn_k_norm = binder.vector(block_name(il, "attn_k_norm.weight"), hp.head_dim_k);
}

}  // namespace

namespace qwen3 {

HParams read(KeyReader& keys) { return read_common(keys, RopeKind::neox); }

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_globals(binder, hp);
    for (int il = 0; il < hp.n_layer; ++il) {
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        bind_normed_attention(binder, hp, il, layer);
        bind_dense_ffn(binder, hp, il, WeightBinder::Bias::none, layer);
    }
    return w;
}

void build(const BuildContext& b) {
    pre_norm_stack(b, [&](const LayerWeights& w, Tensor h) { return gated_ffn(b.g, w.ffn_gate, w.ffn_up, w.ffn_down, h); });
}

}  // namespace qwen3

namespace qwen3moe {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    hp.expert_weights_norm = true;
    read_experts(keys, hp);
    if (hp.n_expert == 0) keys.bad("expert_count", "0", "architecture 'qwen3moe' needs expert_count > 0");
    hp.n_ff_expert = expert_width(keys, "expert_feed_forward_length", static_cast<std::uint32_t>(hp.n_ff[0] / hp.n_expert_used));
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_globals(binder, hp);
    for (int il = 0; il < hp.n_layer; ++il) {
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        if (!binder.exists(block_name(il, "ffn_gate_inp.weight")) && binder.exists(block_name(il, "ffn_gate.weight")))
            fail(ErrorCode::unsupported_arch, cat(binder.file().name(), ": 'qwen3moe' with mixed dense/MoE layers (layer ", il, ") is not supported"));
        bind_normed_attention(binder, hp, il, layer);
        bind_experts(binder, hp, il, layer);
    }
    return w;
}

void build(const BuildContext& b) {
    pre_norm_stack(b, [&](const LayerWeights& w, Tensor h) { return moe_ffn(b, w, h); });
}

}  // namespace qwen3moe

}  // namespace tinfer::model
