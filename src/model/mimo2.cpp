// SPDX-License-Identifier: MIT
// MiMo-V2-Flash (Xiaomi, arXiv:2601.02780): layers with a window have more heads of keys and values than those that see
// everything, and sinks; heads of values are shorter than those of keys, and attention's output may have a factor.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::mimo2 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    require_window_array(keys, hp);
    read_window(keys, hp, WindowKind::standard, 0, 0);
    read_window_base(keys, hp);
    hp.expert_gating = GatingFunc::sigmoid;
    read_normalized_experts(keys, hp);
    require_experts(keys, hp);
    if (hp.expert_gating != GatingFunc::sigmoid)
        keys.bad("expert_gating_func", cat(static_cast<int>(hp.expert_gating)), "must be 2");
    hp.n_ff_expert = required_expert_width(keys);
    if (const float scale = keys.f32("attention.value_scale", 0.0f); scale != 0.0f) hp.attn_out_scale = scale;
    if (hp.attn_out_scale < 0) keys.bad("attention.value_scale", cat(hp.attn_out_scale), "must not be below 0");
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::required, {.qkv_bias = Bias::optional, .ffn = FeedForward::own},
                      [&](int il, LayerWeights& layer) {
                          layer.attn_sinks = binder.find_vector(block_name(il, "attn_sinks.weight"),
                                                                hp.n_head[static_cast<std::size_t>(il)]);
                          bind_by_router(binder, hp, il, layer);
                      });
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::mimo2
