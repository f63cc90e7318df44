// SPDX-License-Identifier: MIT
// Hy3 (Tencent, 2026): Qwen3's attention; layers with a router have experts chosen by sigmoid with a bias, and a shared
// one.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::hy_v3 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    hp.expert_gating = GatingFunc::sigmoid;
    read_experts(keys, hp);
    require_experts(keys, hp);
    hp.n_ff_expert = required_expert_width(keys);
    hp.n_ff_shared =
        expert_width(keys, "expert_shared_feed_forward_length", static_cast<std::uint32_t>(hp.n_ff_expert));
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing,
                      {.qkv_bias = Bias::optional, .head_norms = HeadNorms::shared, .ffn = FeedForward::own},
                      [&](int il, LayerWeights& layer) { bind_by_router(binder, hp, il, layer); });
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::hy_v3
