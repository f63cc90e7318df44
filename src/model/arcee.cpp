// SPDX-License-Identifier: MIT
// Arcee's foundation models (AFM-4.5B, 2025): llama's block with a feed-forward that has no gate but squares its ReLU,
// Wdown · max(Wup·h, 0)² (Primer, arXiv:2109.08668 §3).
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::arcee {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm);
    hp.activation = Activation::relu_sqr;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    BlockParts parts = kBiasesAsGiven;
    parts.ffn = FeedForward::plain;
    return bind_stack(binder, hp, Head::tied_if_missing, parts);
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::arcee
