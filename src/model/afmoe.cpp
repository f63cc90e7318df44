// SPDX-License-Identifier: MIT
// Trinity (Arcee, 2025: afmoe) and Muse Glimmer: norms around each branch, normed heads, a sigmoid behind attention for
// each element, and no positions in the layers that see everything. Trinity has dense layers in front, then experts
// chosen by sigmoid with a bias and a shared one; Muse Glimmer is dense, with a normed embedding and capped logits.
#include <cmath>

#include "base/error.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

constexpr int kAfmoePeriod = 4;  // layers, of which the last knows no positions

void bind_full_gate(WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
    const std::int64_t n = std::int64_t{hp.n_head_of(il)} * hp.head_dim_v;
    layer.attn_gate = binder.linear(block_name(il, "attn_gate"), hp.n_embd, n);
}

void read_afmoe(KeyReader& keys, HParams& hp) {
    hp.embd_scale = std::sqrt(static_cast<float>(hp.n_embd));
    (void)keys.require_u32("attention.sliding_window");
    read_window(keys, hp, WindowKind::standard, 0, kAfmoePeriod);
    read_window_base(keys, hp);
    hp.rope.layers = periodic_layers(hp.n_layer, kAfmoePeriod);
}

void read_muse_glimmer(KeyReader& keys, HParams& hp) {
    hp.rope.freq_scale = 1.0f;  // scaling keys have no effect
    hp.rope.scaling = RopeScaling::none;
    hp.rope.yarn_ext_factor = 0.0f;
    if (keys.require_u32("attention.sliding_window") == 0) keys.bad("attention.sliding_window", "0", "must be above 0");
    read_window(keys, hp, WindowKind::standard, 0, kAfmoePeriod);
    read_window_base(keys, hp);
    hp.rope.layers = windowed_layers(hp);
    hp.logit_scale = positive_f32(keys, "logit_scale", {});
    hp.final_softcap = keys.f32("final_logit_softcapping", 30.0f);
    if (!(hp.final_softcap >= 0)) keys.bad("final_logit_softcapping", cat(hp.final_softcap), "must not be below 0");
}

}  // namespace

const Family families::afmoe{
    .rope = RopeKind::neox,
    .experts = {.count = ExpertKeys::Count::required,
                .gating = GatingFunc::sigmoid,
                .shared = ExpertKeys::Shared::counted},
    .keys = read_afmoe,
    .block = {.norms = BlockNorms::around,
              .qkv_bias = Bias::optional,
              .head_norms = HeadNorms::shared,
              .ffn = FeedForward::dense_or_experts},
    .layer =
        [](WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
            bind_full_gate(binder, hp, il, layer);
            require_choice_bias(binder, il, layer);
        },
};

const Family families::muse_glimmer{
    .keys = read_muse_glimmer,
    .head = Head::required,
    .block = {.norms = BlockNorms::around, .qkv_bias = Bias::optional, .head_norms = HeadNorms::shared},
    .check = [](WeightBinder& binder, const HParams&) { refuse_factors(binder); },
    .layer =
        [](WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
            constexpr float kPostEps = 1e-8f;  // whatever the key of the other norms says
            bind_full_gate(binder, hp, il, layer);
            layer.attn_post_norm.eps = layer.ffn_post_norm.eps = kPostEps;
        },
    .weights = [](WeightBinder&, const HParams&, Weights& w) { w.token_embd_norm = Norm{.present = true}; },
};

}  // namespace tinfer::model
