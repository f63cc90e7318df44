// SPDX-License-Identifier: MIT
// StarCoder2 (arXiv:2402.19173) and CodeShell (arXiv:2403.15747): layer norms and biases everywhere, half-split RoPE,
// grouped queries, plain GELU. Nemotron (arXiv:2402.16819): the same with squared ReLU, biases as the file has them.
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace starcoder2 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox, NormKind::layer);
    hp.activation = Activation::gelu;
    read_window(keys, hp, WindowKind::standard, 0, 0);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing, kBiasedBlock);
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace starcoder2

namespace codeshell {

HParams read(KeyReader& keys) { return starcoder2::read(keys); }
Weights bind(WeightBinder& binder, const HParams& hp) { return starcoder2::bind(binder, hp); }
void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace codeshell

namespace nemotron {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox, NormKind::layer);
    hp.activation = Activation::relu_sqr;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    BlockParts parts = kBiasesAsGiven;
    parts.norm_bias = Bias::required;
    parts.ffn = FeedForward::plain;
    return bind_stack(binder, hp, Head::required, parts);
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace nemotron

}  // namespace tinfer::model
