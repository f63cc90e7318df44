// SPDX-License-Identifier: MIT
// EXAONE 4 (arXiv:2507.11407): norms behind each branch and none before, RMS norms over each head of q and k, half-split
// RoPE, gated SiLU.
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::exaone4 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    if (keys.u32("attention.sliding_window", 0) > 0) unsupported(keys.file(), hp.arch, "sliding windows are not supported by this version");
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
