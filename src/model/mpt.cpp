// SPDX-License-Identifier: MIT
// MPT (MosaicML, 2023): ALiBi or learned positions, projections clamped, layer norms of whole q and k where a file has
// them, plain GELU. Nearly every bias is optional.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::mpt {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::none, NormKind::layer);
    hp.activation = Activation::gelu;
    hp.max_alibi_bias = keys.require_f32("attention.max_alibi_bias");
    if (!(hp.max_alibi_bias >= 0)) keys.bad("attention.max_alibi_bias", cat(hp.max_alibi_bias), "must not be below 0");
    hp.qkv_clamp = keys.f32("attention.clamp_kqv", 0.0f);
    if (!(hp.qkv_clamp >= 0)) keys.bad("attention.clamp_kqv", cat(hp.qkv_clamp), "must not be below 0");
    if (keys.file().find_tensor("position_embd.weight") != nullptr) hp.n_pos_table = hp.n_ctx_train;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    BlockParts parts = kBiasesAsGiven;
    parts.norm_bias = Bias::optional;
    parts.head_norms = HeadNorms::whole_if_given;
    parts.ffn = FeedForward::plain;
    Weights w = bind_stack(binder, hp, Head::tied_if_missing, parts, [&](int il, LayerWeights& layer) {
        layer.ffn_act_scales =
            binder.find_vector(block_name(il, "ffn.act.scales"), hp.n_ff[static_cast<std::size_t>(il)]);
    });
    w.position_embd = binder.find_matrix("position_embd", {hp.n_embd, hp.n_ctx_train});
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::mpt
