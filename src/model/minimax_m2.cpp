// SPDX-License-Identifier: MIT
// MiniMax-M2 (2025): llama's block with half-split RoPE over a part of each head, RMS norms over the whole of q and k,
// and experts chosen by sigmoid with a bias.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::minimax_m2 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    read_normalized_experts(keys, hp);
    require_experts(keys, hp);
    require_gating(keys);
    hp.n_ff_expert = hp.n_ff[0];
    (void)keys.u32("expert_feed_forward_length", 0);  // no effect
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::required,
                      {.qkv_bias = Bias::optional, .head_norms = HeadNorms::whole, .ffn = FeedForward::experts},
                      [&](int il, LayerWeights& layer) { require_choice_bias(binder, il, layer); });
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::minimax_m2
