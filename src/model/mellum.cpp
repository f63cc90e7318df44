// SPDX-License-Identifier: MIT
// Qwen3's block with experts under other names: Mellum 2 (JetBrains, 2026), three layers of four with a window and
// plain angles; Maple, which rotates in layers with a window only and limits the halves of its experts; RND1, which
// makes text out of masked places.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

HParams read_qwen3moe(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox, CommonKeys{.ff = FeedForwardKey::optional});
    read_normalized_experts(keys, hp);
    require_experts(keys, hp);
    hp.n_ff_expert =
        expert_width(keys, "expert_feed_forward_length", static_cast<std::uint32_t>(hp.n_ff[0] / hp.n_expert_used));
    return hp;
}

Weights bind_qwen3moe(WeightBinder& binder, const HParams& hp, Head head) {
    return bind_stack(binder, hp, head,
                      {.qkv_bias = Bias::optional, .head_norms = HeadNorms::shared, .ffn = FeedForward::experts});
}

}  // namespace

namespace mellum {

HParams read(KeyReader& keys) {
    HParams hp = read_qwen3moe(keys);
    usual_yarn_ramp(hp);
    read_window(keys, hp, WindowKind::standard, 0, 4);
    if (hp.has_windowed_layers()) hp.rope_window_scaled = false;
    (void)keys.find_f32("rope.freq_base_swa");  // no effect
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return bind_qwen3moe(binder, hp, Head::required); }
void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace mellum

namespace maple {

HParams read(KeyReader& keys) {
    HParams hp = read_qwen3moe(keys);
    require_window_array(keys, hp);
    read_window(keys, hp, WindowKind::standard, 0, 0);
    read_window_base(keys, hp);
    read_window_rotation(keys, hp);
    hp.rope_layers = windowed_layers(hp);
    hp.gate_limits.routed = layer_limits(keys, hp, "swiglu_clamp_exp");
    hp.gate_limits.before = true;
    if (hp.gate_limits.routed.empty()) (void)keys.require_f32("swiglu_clamp_exp");
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return bind_qwen3moe(binder, hp, Head::required); }
void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace maple

namespace rnd1 {

HParams read(KeyReader& keys) {
    HParams hp = read_qwen3moe(keys);
    require_full_rotation(keys, hp);
    hp.causal = false;
    hp.diffusion = true;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return bind_qwen3moe(binder, hp, Head::tied_if_missing); }
void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace rnd1

}  // namespace tinfer::model
