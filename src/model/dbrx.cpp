// SPDX-License-Identifier: MIT
// DBRX (Databricks, 2024): layer norms without bias, fused projections clamped, half-split RoPE, sixteen experts of which
// four count.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::dbrx {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox, NormKind::layer);
    hp.qkv_clamp = positive_f32(keys, "attention.clamp_kqv", {});
    hp.expert_weights_norm = true;
    read_experts(keys, hp);
    if (hp.n_expert == 0) keys.bad("expert_count", "0", "architecture 'dbrx' needs expert_count > 0");
    hp.n_ff_expert = hp.n_ff[0];
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_globals(binder, hp, Head::required);
    for (int il = 0; il < hp.n_layer; ++il) {
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        layer.attn_norm = binder.norm(block_name(il, "attn_norm"), {hp.n_embd});
        layer.ffn_norm = binder.norm(block_name(il, "attn_output_norm"), {hp.n_embd});
        bind_attention(binder, hp, il, layer);
        bind_experts(binder, hp, il, layer);
    }
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::dbrx
