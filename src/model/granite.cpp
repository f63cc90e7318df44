// SPDX-License-Identifier: MIT
// Granite 3 (IBM, 2024), dense and with experts: llama's block with four fixed factors, on embeddings, scores, what a
// sub-layer adds, and (as a divisor) logits, in the manner of μP (arXiv:2203.03466). granite_swa (2026) has windows,
// sinks, and layers that do not rotate.
#include "base/error.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

void read_granite_factors(KeyReader& keys, HParams& hp) {  // attention.scale is read for all models
    hp.embd_scale = positive_f32(keys, "embedding_scale", 1.0f);
    hp.residual_scale = positive_f32(keys, "residual_scale", 1.0f);
    hp.logit_scale = 1.0f / positive_f32(keys, "logit_scale", {});
}

void read_granite(KeyReader& keys, HParams& hp) {
    read_granite_factors(keys, hp);
    if (!keys.boolean("rope.scaling.finetuned", true)) hp.rope.kind = RopeKind::none;
}

void refuse_hybrid_granite(WeightBinder& binder, const HParams&) {
    binder.refuse("blk.0.ssm_in.weight", "hybrid granite not supported");
}

void read_granite_swa(KeyReader& keys, HParams& hp) {
    read_granite_factors(keys, hp);
    require_window_array(keys);
    read_window(keys, hp, WindowKind::standard, 0, 0);
    (void)keys.find_f32("rope.freq_base_swa");  // no effect
    constexpr std::string_view kRotated = "attention.rope_pattern";
    if (keys.note(kRotated) && !keys.file().is_array(keys.full(kRotated)))
        keys.bad(kRotated, "one value", "must be an array, one per layer");
    if (auto rotated = keys.find_layer_flags(kRotated, hp.n_layer + hp.n_layer_draft)) {
        rotated->resize(static_cast<std::size_t>(hp.n_layer));
        hp.rope.layers = *rotated;
    }
}

Weights bind_granite_swa(WeightBinder& binder, const HParams& hp) {
    HParams routed = hp;
    routed.experts.n_ff_shared = 0;  // gate and up of the shared expert are one matrix
    return bind_stack(binder, routed, Head::tied_if_missing, kBiasesAsGiven, [&](int il, LayerWeights& layer) {
        const std::int64_t e = hp.n_embd, f = hp.experts.n_ff_shared;
        layer.attn_sinks = binder.vector(block_name(il, "attn_sinks.weight"), hp.n_head_of(il));
        if (hp.experts.n == 0 || f == 0) return;
        layer.ffn_up_shexp = binder.linear(block_name(il, "ffn_up_shexp"), e, 2 * f);
        layer.ffn_down_shexp = binder.linear(block_name(il, "ffn_down_shexp"), f, e);
    });
}

}  // namespace

const Family families::granite{.keys = read_granite, .block = kBiasesAsGiven, .check = refuse_hybrid_granite};

const Family families::granitemoe{.experts = {.count = ExpertKeys::Count::required,
                                              .sum = ExpertKeys::Sum::normalized,
                                              .width = ExpertKeys::Width::dense,
                                              .shared = ExpertKeys::Shared::if_given},
                                  .keys = read_granite,
                                  .block = kBiasesAsGiven,
                                  .check = refuse_hybrid_granite};

const Family families::granite_swa{.experts = {.count = ExpertKeys::Count::optional,
                                               .sum = ExpertKeys::Sum::always,
                                               .width = ExpertKeys::Width::dense,
                                               .shared = ExpertKeys::Shared::if_given},
                                   .keys = read_granite_swa,
                                   .bind_all = bind_granite_swa};

}  // namespace tinfer::model
