// SPDX-License-Identifier: MIT
// OpenELM (arXiv:2404.14619): llama's block with head counts and feed-forward widths that grow with depth, RMS norms
// over each head of q and k, half-split RoPE, a head that is always the embedding.
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::openelm {

HParams read(KeyReader& keys) { return read_common(keys, RopeKind::neox); }

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::always_tied, {.head_norms = HeadNorms::shared});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::openelm
