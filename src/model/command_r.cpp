// SPDX-License-Identifier: MIT
// Command-R and Command-R 7B, the architecture "cohere2" (Cohere, 2024): attention and gated SiLU in parallel behind one
// layer norm without bias, RoPE on neighbouring pairs, logits times a scale. The largest of the first norms each head of q
// and k; in the second three layers of four have a window, and the fourth no positions.
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace command_r {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm, NormKind::layer);
    hp.logit_scale = positive_f32(keys, "logit_scale", {});
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_globals(binder, hp, Head::always_tied);
    for (int il = 0; il < hp.n_layer; ++il) {
        const auto i = static_cast<std::size_t>(il);
        LayerWeights& layer = w.layers[i];
        layer.attn_norm = binder.norm(block_name(il, "attn_norm"), {hp.n_embd});
        bind_attention(binder, hp, il, layer, Bias::optional);
        layer.attn_q_norm = binder.find_norm(block_name(il, "attn_q_norm"), {hp.head_dim_k, hp.n_head[i]});
        layer.attn_k_norm = binder.find_norm(block_name(il, "attn_k_norm"), {hp.head_dim_k, hp.n_head_kv[i]});
        bind_gated_ffn(binder, hp, il, layer);
    }
    return w;
}

void build(const BuildContext& b) { parallel_stack(b); }

}  // namespace command_r

namespace cohere2 {

HParams read(KeyReader& keys) {
    HParams hp = command_r::read(keys);
    (void)keys.require_u32("attention.sliding_window");
    read_window(keys, hp, WindowKind::standard, 0, 4);
    if (hp.has_windowed_layers()) hp.rope_layers = hp.windowed;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    if (binder.exists("blk.0.attn_q_norm.weight")) binder.unsupported("q/k norm variant not supported under this name");
    return command_r::bind(binder, hp);
}

void build(const BuildContext& b) { parallel_stack(b); }

}  // namespace cohere2

}  // namespace tinfer::model
