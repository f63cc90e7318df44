// SPDX-License-Identifier: MIT
// OpenELM (arXiv:2404.14619): llama's block with head counts and feed-forward widths that grow with depth, RMS norms over
// each head of q and k, half-split RoPE, a head that is always the embedding.
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::openelm {

HParams read(KeyReader& keys) { return read_common(keys, RopeKind::neox); }

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_globals(binder, hp, Head::always_tied);
    for (int il = 0; il < hp.n_layer; ++il) {
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        bind_norms(binder, hp, il, layer);
        bind_attention(binder, hp, il, layer);
        bind_head_norms(binder, hp, il, layer);
        bind_gated_ffn(binder, hp, il, layer);
    }
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::openelm
