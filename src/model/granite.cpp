// SPDX-License-Identifier: MIT
// Granite 3 (IBM, 2024), dense and with experts: llama's block with four fixed factors, on embeddings, scores, what a
// sub-layer adds, and (as a divisor) logits, in the manner of μP (arXiv:2203.03466).
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace granite {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm);  // attention.scale is read there
    hp.embd_scale = positive_f32(keys, "embedding_scale", 1.0f);
    hp.residual_scale = positive_f32(keys, "residual_scale", 1.0f);
    hp.logit_scale = 1.0f / positive_f32(keys, "logit_scale", {});
    if (!keys.boolean("rope.scaling.finetuned", true)) hp.rope = RopeKind::none;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    binder.refuse("blk.0.ssm_in.weight", "hybrid granite not supported");
    return bind_stack(binder, hp, Head::tied_if_missing, kBiasesAsGiven);
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace granite

namespace granitemoe {

HParams read(KeyReader& keys) {
    HParams hp = granite::read(keys);
    hp.expert_weights_norm = true;
    read_experts(keys, hp);
    if (hp.n_expert == 0) keys.bad("expert_count", "0", "architecture 'granitemoe' needs expert_count > 0");
    hp.n_ff_expert = hp.n_ff[0];
    if (const std::uint32_t shared = keys.u32("expert_shared_feed_forward_length", 0); shared > 0)
        hp.n_ff_shared = expert_width(keys, "expert_shared_feed_forward_length", shared);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return granite::bind(binder, hp); }
void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace granitemoe

}  // namespace tinfer::model
