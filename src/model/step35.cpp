// SPDX-License-Identifier: MIT
// Step-3.5-Flash (StepFun, 2026): layers with a window have more query heads than those that see everything, and
// rotate whole heads, the others half of one; each head of attention's output has a gate; some layers limit the halves
// of their gated feed-forwards.
#include "base/error.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

void read_step35(KeyReader& keys, HParams& hp) {
    require_window_array(keys);
    read_window(keys, hp, WindowKind::standard, 0, 0);
    read_window_base(keys, hp, 10000.0f);
    read_window_rotation(keys, hp);
    hp.windows.rope_scaled = hp.windows.rope_factors = false;
    int& n_rot = hp.rope.n_rot;
    if (hp.windows.n_rot == 0) hp.windows.n_rot = n_rot;
    if (n_rot % 4 != 0)
        keys.bad("rope.dimension_count", cat(n_rot), "layers without a window rotate half of it, an even number");
    n_rot /= 2;
    hp.experts.n_ff_shared = positive_u32(keys, "expert_shared_feed_forward_length", 1u << 24);
    hp.gate_limits = {.routed = layer_limits(keys, hp, "swiglu_clamp_exp"),
                      .dense = layer_limits(keys, hp, "swiglu_clamp_shexp")};
}

}  // namespace

const Family families::step35{
    .rope = RopeKind::neox,
    .experts = {.count = ExpertKeys::Count::required, .gating = GatingFunc::sigmoid},
    .keys = read_step35,
    .head = Head::required,
    .block = {.qkv_bias = Bias::optional, .head_norms = HeadNorms::shared_if_given, .ffn = FeedForward::by_router},
    .layer =
        [](WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
            layer.attn_gate = binder.find_linear(block_name(il, "attn_gate"), hp.n_embd, hp.n_head_of(il));
        },
    .draft = {.state = DraftBlocks::State::raw, .several = true},
};

}  // namespace tinfer::model
