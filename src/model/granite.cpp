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
    if (!keys.boolean("rope.scaling.finetuned", true)) hp.rope.kind = RopeKind::none;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    binder.refuse("blk.0.ssm_in.weight", "hybrid granite not supported");
    return bind_stack(binder, hp, Head::tied_if_missing, kBiasesAsGiven);
}

}  // namespace granite

const Family families::granite{.read_all = granite::read, .bind_all = granite::bind};

namespace granitemoe {

HParams read(KeyReader& keys) {
    HParams hp = granite::read(keys);
    hp.experts.weights_norm = true;
    read_experts(keys, hp);
    if (hp.experts.n == 0) keys.bad("expert_count", "0", "architecture 'granitemoe' needs expert_count > 0");
    hp.experts.n_ff = hp.n_ff[0];
    if (const std::uint32_t shared = keys.u32("expert_shared_feed_forward_length", 0); shared > 0)
        hp.experts.n_ff_shared = expert_width(keys, "expert_shared_feed_forward_length", shared);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return granite::bind(binder, hp); }

}  // namespace granitemoe

const Family families::granitemoe{.read_all = granitemoe::read, .bind_all = granitemoe::bind};

namespace granite_swa {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm);
    hp.embd_scale = positive_f32(keys, "embedding_scale", 1.0f);
    hp.residual_scale = positive_f32(keys, "residual_scale", 1.0f);
    hp.logit_scale = 1.0f / positive_f32(keys, "logit_scale", {});
    require_window_array(keys);
    read_window(keys, hp, WindowKind::standard, 0, 0);
    (void)keys.find_f32("rope.freq_base_swa");  // no effect
    constexpr std::string_view kRotated = "attention.rope_pattern";
    if (keys.note(kRotated) && !keys.file().is_array(keys.full(kRotated)))
        keys.bad(kRotated, "one value", "must be an array, one per layer");
    if (auto rotated = keys.find_layer_flags("attention.rope_pattern", hp.n_layer + hp.n_layer_draft)) {
        rotated->resize(static_cast<std::size_t>(hp.n_layer));
        hp.rope.layers = *rotated;
    }
    read_normalized_experts(keys, hp);
    hp.experts.n_ff = hp.n_ff[0];
    hp.experts.n_ff_shared = optional_width(keys, "expert_shared_feed_forward_length");
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
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

}  // namespace granite_swa

const Family families::granite_swa{.read_all = granite_swa::read, .bind_all = granite_swa::bind};

}  // namespace tinfer::model
