// SPDX-License-Identifier: MIT
// Grok-1 (xAI, 2024): eight experts with gated GELU, norms before and behind each branch, scores that a soft cap keeps
// within ±30, and fixed factors on embeddings and logits. Files of today carry the factors, older ones rely on those of
// the release.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::grok {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    hp.activation = Activation::gelu;
    hp.embd_scale = positive_f32(keys, "embedding_scale", 78.38367176906169f);  // sqrt(6144)
    hp.logit_scale = positive_f32(keys, "logit_scale", 0.5773502691896257f);
    hp.attention.softcap = positive_f32(keys, "attn_logit_softcapping", 30.0f);
    const bool scaled =
        keys.f32("attention.scale", 0.0f) != 0.0f;  // of all models; output_scale is Grok's own name for it
    hp.attention.scale = positive_f32(keys, "attention.output_scale",
                                      scaled ? hp.attention.scale : 0.08838834764831845f);  // 1/sqrt(128)
    read_experts(keys, hp);  // shares of all experts: the norm behind them would take out their sum anyway
    if (hp.experts.n == 0) keys.bad("expert_count", "0", "architecture 'grok' needs expert_count > 0");
    hp.experts.n_ff = expert_width(keys, "expert_feed_forward_length", static_cast<std::uint32_t>(hp.n_ff[0]));
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    binder.refuse("blk.0.ffn_up.weight", "dense part beside the experts (Grok-2) not supported");
    return bind_stack(binder, hp, Head::tied_if_missing, {.ffn = FeedForward::experts},
                      [&](int il, LayerWeights& layer) {
                          layer.attn_post_norm = binder.norm(block_name(il, "attn_output_norm"), {hp.n_embd});
                          layer.ffn_post_norm = binder.norm(block_name(il, "layer_output_norm"), {hp.n_embd});
                      });
}

}  // namespace tinfer::model::grok

namespace tinfer::model {
const Family families::grok{.read_all = grok::read, .bind_all = grok::bind};
}  // namespace tinfer::model
