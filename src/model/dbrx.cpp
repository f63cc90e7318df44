// SPDX-License-Identifier: MIT
// DBRX (Databricks, 2024): layer norms without bias, fused projections clamped, half-split RoPE, sixteen experts of
// which four count.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::dbrx {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox, NormKind::layer);
    hp.qkv_clamp = positive_f32(keys, "attention.clamp_kqv", {});
    hp.expert_weights_norm = true;
    read_experts(keys, hp);
    if (hp.n_expert == 0) keys.bad("expert_count", "0", "architecture 'dbrx' needs expert_count > 0");
    hp.n_ff_expert = hp.n_ff[0];
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::required, {.ffn_norm = "attn_output_norm", .ffn = FeedForward::experts});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::dbrx
