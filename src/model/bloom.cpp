// SPDX-License-Identifier: MIT
// BLOOM (arXiv:2211.05100): ALiBi instead of positions in the stream, a layer norm behind the embedding, biases
// everywhere, plain GELU.
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::bloom {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::none, NormKind::layer);
    hp.activation = Activation::gelu;
    hp.max_alibi_bias = 8.0f;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_stack(binder, hp, Head::tied_if_missing, kBiasedBlock);
    w.token_embd_norm = binder.norm("token_embd_norm", {hp.n_embd}, Bias::required);
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::bloom
