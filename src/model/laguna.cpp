// SPDX-License-Identifier: MIT
// Laguna (Poolside, 2026): normed heads, as many of them as the layer's kind says, and a gate behind attention that is
// no sigmoid but softplus, per head or per element. Layers with a window turn by plain angles of their own, the others
// by YaRN's.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::laguna {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    hp.attn_gate = GateKind::softplus;
    const bool windows = read_window_behind_full(keys, hp, WindowKind::standard, 4);
    read_window_base(keys, hp);
    read_window_rotation(keys, hp);
    if (windows) hp.rope_window_scaled = false;
    usual_yarn_ramp(hp);
    hp.expert_gating = GatingFunc::sigmoid;
    read_experts(keys, hp);
    require_experts(keys, hp);
    hp.n_ff_expert = required_expert_width(keys);
    const int all = shared_width(keys, hp.n_ff_expert, 1);
    hp.n_ff_shared = expert_width(keys, "expert_shared_feed_forward_length", static_cast<std::uint32_t>(all));
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(
        binder, hp, Head::tied_if_missing,
        {.qkv_bias = Bias::optional, .head_norms = HeadNorms::shared, .ffn = FeedForward::dense_or_experts},
        [&](int il, LayerWeights& layer) {
            bind_attention_gate(binder, hp, il, layer);
            require_choice_bias(binder, il, layer);
        });
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::laguna
