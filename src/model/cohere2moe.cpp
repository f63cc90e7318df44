// SPDX-License-Identifier: MIT
// Command-R 7B's block with experts (Cohere, 2026: North Mini Code): attention and feed-forward in parallel behind one
// norm; layers with a window rotate, and those in front, which are dense; a shared expert counts as much as all routed
// ones.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::cohere2moe {

HParams read(KeyReader& keys) {
    const bool rms = keys.file().contains(keys.full("attention.layer_norm_rms_epsilon"));
    HParams hp = read_common(keys, RopeKind::norm, CommonKeys{.norm = rms ? NormKind::rms : NormKind::layer});
    if (rms) (void)keys.find_f32("attention.layer_norm_epsilon");
    require_full_rotation(keys, hp);
    hp.parallel_residual = true;
    hp.logit_scale = positive_f32(keys, "logit_scale", {});
    (void)keys.require_u32("attention.sliding_window");
    read_window_behind_full(keys, hp, WindowKind::standard, 4);
    (void)keys.find_f32("rope.freq_base_swa");  // no effect
    hp.experts.gating = GatingFunc::sigmoid;
    read_experts(keys, hp);
    require_experts(keys, hp);
    hp.experts.n_ff = required_expert_width(keys);
    if (const int all = shared_width(keys, hp); all > 0) {
        hp.experts.n_ff_shared =
            expert_width(keys, "expert_shared_feed_forward_length", static_cast<std::uint32_t>(all));
        hp.experts.sum_scale = 0.5f;
    } else {
        (void)keys.u32("expert_shared_feed_forward_length", 0);
    }
    hp.rope.layers = windowed_layers(hp);
    for (int il = 0; il < hp.n_layer; ++il)
        if (il < hp.experts.n_layer_dense) hp.rope.layers[static_cast<std::size_t>(il)] = true;
    return hp;
}

constexpr BlockParts kParts{.norms = BlockNorms::one, .qkv_bias = Bias::optional, .ffn = FeedForward::dense_or_experts};

void refuse_choice_bias(WeightBinder& binder, int il, const LayerWeights& layer) {
    if (layer.exp_probs_b != nullptr) binder.unsupported(cat("layer ", il, " has a bias for the choice of experts"));
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    refuse_factors(binder);
    return bind_stack(binder, hp, Head::tied_if_missing, kParts,
                      [&](int il, LayerWeights& layer) { refuse_choice_bias(binder, il, layer); });
}

void bind_draft_block(WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer) {
    bind_block(binder, hp, il, layer, kParts);
    refuse_choice_bias(binder, il, layer);
}

}  // namespace tinfer::model::cohere2moe

namespace tinfer::model {
const Family families::cohere2moe{.read_all = cohere2moe::read,
                                  .bind_all = cohere2moe::bind,
                                  .draft = {.state = DraftBlocks::State::normed, .bind = cohere2moe::bind_draft_block}};
}  // namespace tinfer::model
