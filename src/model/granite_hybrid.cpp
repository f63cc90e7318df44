// SPDX-License-Identifier: MIT
// Granite 4.0-H (IBM, 2025) and Bamba: Granite's four factors on layers of which most are Mamba-2's and some attention,
// without positions as a rule; a gated feed-forward or experts behind each.
#include "base/error.hpp"
#include "model/families.hpp"
#include "model/mamba2.hpp"

namespace tinfer::model {

namespace {

void read_granite_hybrid(KeyReader& keys, HParams& hp) {
    hp.embd_scale = positive_f32(keys, "embedding_scale", 1.0f);
    hp.residual_scale = positive_f32(keys, "residual_scale", 1.0f);
    const float logits = keys.f32("logit_scale", 0.0f);
    if (logits < 0) keys.bad("logit_scale", cat(logits), "must not be below 0; 0 is 1");
    if (logits > 0) hp.logit_scale = 1.0f / logits;
    if (!keys.boolean("rope.scaling.finetuned", true)) hp.rope.kind = RopeKind::none;
    read_grouped_state_space(keys, hp);
    hp.recurrent.states.resize(static_cast<std::size_t>(hp.n_layer));
    bool any = false;
    for (int il = 0; il < hp.n_layer; ++il) {
        if (hp.n_head_kv_of(il) > 0) continue;
        add_grouped_states(hp, static_cast<std::size_t>(il));
        any = true;
    }
    if (!any) keys.bad("attention.head_count_kv", "above 0 in every layer", "some layer must be recurrent, with 0");
    read_normalized_experts(keys, hp);
    if (hp.experts.n == 0) return;
    hp.experts.n_ff = hp.n_ff[0];
    hp.experts.n_ff_shared = optional_width(keys, "expert_shared_feed_forward_length");
    (void)keys.u32("expert_feed_forward_length", 0);
}

}  // namespace

const Family families::granitehybrid{.common = {.kinds = LayerKinds::hybrid},
                                     .keys = read_granite_hybrid,
                                     .block = kBiasesAsGiven,
                                     .layer =
                                         [](WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
                                             if (hp.n_head_kv_of(il) == 0)
                                                 bind_grouped(binder, hp, il, layer, Bias::optional, true);
                                         },
                                     .recurrence = grouped_state_space};

}  // namespace tinfer::model
