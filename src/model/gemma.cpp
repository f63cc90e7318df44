// SPDX-License-Identifier: MIT
// Gemma (arXiv:2403.08295): llama's block with half-split RoPE, gated GELU, embeddings times sqrt(n_embd) and a head
// that is always the embedding. The "+1" of its norms is folded into the weights of the file.
#include <cmath>

#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::gemma {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    hp.activation = Activation::gelu;
    hp.embd_scale = std::sqrt(static_cast<float>(hp.n_embd));
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    binder.refuse("blk.0.post_attention_norm.weight", "looks like gemma2/3 under the wrong name");
    return bind_stack(binder, hp, Head::always_tied);
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::gemma
