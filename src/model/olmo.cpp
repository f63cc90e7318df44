// SPDX-License-Identifier: MIT
// The OLMo family: OLMo (arXiv:2402.00838) with layer norms without parameters, OLMo 2 (arXiv:2501.00656) with norms
// behind each branch and none before, OLMoE (arXiv:2409.02060) with experts. The later two norm whole q and k.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace olmo {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm, NormKind::layer);
    hp.qkv_clamp = keys.f32("attention.clamp_kqv", 0.0f);
    if (!(hp.qkv_clamp >= 0)) keys.bad("attention.clamp_kqv", cat(hp.qkv_clamp), "must not be below 0");
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    constexpr Norm kPlain{.present = true};  // (x − mean) / sqrt(var + eps), nothing learned
    Weights w = bind_globals(binder, hp, Head::tied_if_missing, kPlain);
    bind_blocks(binder, hp, w, {.norms = BlockNorms::own});
    for (LayerWeights& layer : w.layers) layer.attn_norm = layer.ffn_norm = kPlain;
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace olmo

namespace olmo2 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    read_window(keys, hp, WindowKind::standard, 0, 4);
    hp.rope_window_scaled = !hp.has_windowed_layers();  // OLMo 3: YaRN on the layers that see everything
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    binder.refuse("blk.0.attn_norm.weight", "not an olmo2 block layout");
    return bind_stack(binder, hp, Head::required, {.norms = BlockNorms::after, .head_norms = HeadNorms::whole});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace olmo2

namespace olmoe {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    read_experts(keys, hp);
    if (hp.n_expert == 0) keys.bad("expert_count", "0", "architecture 'olmoe' needs expert_count > 0");
    hp.n_ff_expert = expert_width(keys, "expert_feed_forward_length", static_cast<std::uint32_t>(hp.n_ff[0]));
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::required, {.head_norms = HeadNorms::whole, .ffn = FeedForward::experts});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace olmoe

}  // namespace tinfer::model
