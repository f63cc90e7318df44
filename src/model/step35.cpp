// SPDX-License-Identifier: MIT
// Step-3.5-Flash (StepFun, 2026): layers with a window have more query heads than those that see everything, and
// rotate whole heads, the others half of one; each head of attention's output has a gate; some layers limit the halves
// of their gated feed-forwards.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::step35 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    require_window_array(keys);
    read_window(keys, hp, WindowKind::standard, 0, 0);
    read_window_base(keys, hp, 10000.0f);
    read_window_rotation(keys, hp);
    hp.windows.rope_scaled = hp.windows.rope_factors = false;
    if (hp.windows.n_rot == 0) hp.windows.n_rot = hp.rope.n_rot;
    if (hp.rope.n_rot % 4 != 0)
        keys.bad("rope.dimension_count", cat(hp.rope.n_rot),
                 "layers without a window rotate half of it, an even number");
    hp.rope.n_rot /= 2;
    hp.experts.gating = GatingFunc::sigmoid;
    read_experts(keys, hp);
    require_experts(keys, hp);
    hp.experts.n_ff = required_expert_width(keys);
    hp.experts.n_ff_shared = positive_u32(keys, "expert_shared_feed_forward_length", 1u << 24);
    hp.gate_limits = {.routed = layer_limits(keys, hp, "swiglu_clamp_exp"),
                      .dense = layer_limits(keys, hp, "swiglu_clamp_shexp")};
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::required,
                      {.qkv_bias = Bias::optional, .head_norms = HeadNorms::shared_if_given, .ffn = FeedForward::own},
                      [&](int il, LayerWeights& layer) {
                          const std::int64_t n_head = hp.n_head_of(il);
                          layer.attn_gate = binder.find_linear(block_name(il, "attn_gate"), hp.n_embd, n_head);
                          bind_by_router(binder, hp, il, layer);
                      });
}

}  // namespace tinfer::model::step35

namespace tinfer::model {
const Family families::step35{.read_all = step35::read, .bind_all = step35::bind};
}  // namespace tinfer::model
