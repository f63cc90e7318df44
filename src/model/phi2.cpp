// SPDX-License-Identifier: MIT
// Phi-1, 1.5 and 2 (arXiv:2309.05463): attention and feed-forward in parallel behind one layer norm, biases everywhere,
// the head's included, RoPE on a part of each head, plain GELU.
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
    BlockParts parts = kBiasedBlock;
    parts.norms = BlockNorms::one;
    Weights w = bind_stack(binder, hp, Head::required, parts);
    w.output.bias = binder.vector("output.bias", hp.n_vocab);
    return w;
}

void build(const BuildContext& b) { parallel_stack(b); }

}  // namespace tinfer::model::phi2
