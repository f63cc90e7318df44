// SPDX-License-Identifier: MIT
// EXAONE 4 (arXiv:2507.11407): norms behind each branch and none before, RMS norms over each head of q and k,
// half-split RoPE, gated SiLU.
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::exaone4 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    read_window(keys, hp, WindowKind::standard, 0, 4);
    if (hp.has_windowed_layers()) hp.rope_layers = hp.windowed;  // layers that see everything know no positions
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing, {.norms = BlockNorms::after, .head_norms = HeadNorms::shared});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::exaone4
