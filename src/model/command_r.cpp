// SPDX-License-Identifier: MIT
// Command-R (Cohere, 2024): attention and gated SiLU in parallel behind one layer norm without bias, RoPE on neighbouring
// pairs, logits times a scale; the largest also norms each head of q and k.
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::command_r {

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

}  // namespace tinfer::model::command_r
