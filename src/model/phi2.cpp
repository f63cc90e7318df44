// SPDX-License-Identifier: MIT
// Phi-1, 1.5 and 2 (arXiv:2309.05463): attention and feed-forward in parallel behind one layer norm, biases everywhere, the
// head's included, RoPE on a part of each head, plain GELU.
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::phi2 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox, NormKind::layer);
    hp.activation = Activation::gelu;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_globals(binder, hp, Head::required, Bias::required);
    w.output.bias = binder.vector("output.bias", hp.n_vocab);
    for (int il = 0; il < hp.n_layer; ++il) {
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        layer.attn_norm = binder.norm(block_name(il, "attn_norm"), {hp.n_embd}, Bias::required);
        bind_attention(binder, hp, il, layer, Bias::required, Bias::required);
        bind_plain_ffn(binder, hp, il, layer, Bias::required);
    }
    return w;
}

void build(const BuildContext& b) { parallel_stack(b); }

}  // namespace tinfer::model::phi2
