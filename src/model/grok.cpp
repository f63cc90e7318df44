// SPDX-License-Identifier: MIT
// Grok-1 (xAI, 2024): eight experts with gated GELU, norms before and behind each branch, scores that a soft cap keeps
// within ±30, and fixed factors on embeddings and logits. Files of today carry the factors, older ones rely on those of
// the release.
#include "base/error.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

void read_grok(KeyReader& keys, HParams& hp) {
    hp.embd_scale = positive_f32(keys, "embedding_scale", 78.38367176906169f);  // sqrt(6144)
    hp.logit_scale = positive_f32(keys, "logit_scale", 0.5773502691896257f);
    hp.attention.softcap = positive_f32(keys, "attn_logit_softcapping", 30.0f);
    // attention.scale is of all models; output_scale is Grok's own name for it, by default 1/sqrt(128)
    const bool scaled = keys.f32("attention.scale", 0.0f) != 0.0f;
    hp.attention.scale =
        positive_f32(keys, "attention.output_scale", scaled ? hp.attention.scale : 0.08838834764831845f);
}

}  // namespace

const Family families::grok{
    .rope = RopeKind::neox,
    .activation = Activation::gelu,
    // Shares of all experts: the norm behind them would take out their sum anyway.
    .experts = {.count = ExpertKeys::Count::required, .width = ExpertKeys::Width::or_dense},
    .keys = read_grok,
    .block = {.ffn = FeedForward::experts},
    .check =
        [](WeightBinder& binder, const HParams&) {
            binder.refuse("blk.0.ffn_up.weight", "dense part beside the experts (Grok-2) not supported");
        },
    .layer =
        [](WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
            layer.attn_post_norm = binder.norm(block_name(il, "attn_output_norm"), {hp.n_embd});
            layer.ffn_post_norm = binder.norm(block_name(il, "layer_output_norm"), {hp.n_embd});
        },
};

}  // namespace tinfer::model
