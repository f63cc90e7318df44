// SPDX-License-Identifier: MIT
// SmolLM3 (Hugging Face, 2025): llama's block, every fourth layer without positions (NoPE, arXiv:2501.18795).
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::smollm3 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm);
    for (int il = 0; il < hp.n_layer; ++il) hp.rope_layers.push_back((il + 1) % 4 != 0);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing, kBiasesAsGiven);
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::smollm3
