// SPDX-License-Identifier: MIT
// GPT-NeoX and Pythia (arXiv:2204.06745): layer norms, biases everywhere, RoPE on a part of each head, plain GELU;
// attention and feed-forward in parallel behind norms of their own, or in sequence, as the file says.
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::gptneox {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox, NormKind::layer);
    hp.activation = Activation::gelu;
    hp.parallel_residual = keys.require_bool("use_parallel_residual");
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return bind_stack(binder, hp, Head::required, kBiasedBlock); }

void build(const BuildContext& b) { b.hp.parallel_residual ? parallel_stack(b) : sequential_stack(b); }

}  // namespace tinfer::model::gptneox
