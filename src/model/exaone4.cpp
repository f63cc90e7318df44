// SPDX-License-Identifier: MIT
// EXAONE 4 (arXiv:2507.11407): norms behind each branch and none before, RMS norms over each head of q and k, half-split
// RoPE, gated SiLU.
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::exaone4 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    read_window(keys, hp, WindowKind::standard, 0, 4);
    if (hp.has_windowed_layers()) hp.rope_layers = hp.windowed;   // layers that see everything know no positions
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_globals(binder, hp);
    for (int il = 0; il < hp.n_layer; ++il) {
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        bind_attention(binder, hp, il, layer);
        bind_head_norms(binder, hp, il, layer);
        bind_gated_ffn(binder, hp, il, layer);
        layer.attn_post_norm = binder.norm(block_name(il, "post_attention_norm"), {hp.n_embd});
        layer.ffn_post_norm = binder.norm(block_name(il, "post_ffw_norm"), {hp.n_embd});
    }
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::exaone4
