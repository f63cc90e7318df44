// SPDX-License-Identifier: MIT
// MPT (MosaicML, 2023): ALiBi or learned positions, projections clamped, layer norms of whole q and k where a file has them,
// plain GELU. Nearly every bias is optional.
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
    Weights w = bind_globals(binder, hp, Head::tied_if_missing, Bias::optional);
    w.position_embd = binder.find_matrix("position_embd", {hp.n_embd, hp.n_ctx_train});
    for (int il = 0; il < hp.n_layer; ++il) {
        const auto i = static_cast<std::size_t>(il);
        LayerWeights& layer = w.layers[i];
        bind_norms(binder, hp, il, layer, Bias::optional);
        bind_attention(binder, hp, il, layer, Bias::optional, Bias::optional);
        layer.attn_q_norm = binder.find_norm(block_name(il, "attn_q_norm"), {hp.n_head[i] * hp.head_dim_k}, Bias::optional);
        layer.attn_k_norm = binder.find_norm(block_name(il, "attn_k_norm"), {hp.n_head_kv[i] * hp.head_dim_k}, Bias::optional);
        bind_plain_ffn(binder, hp, il, layer, Bias::optional);
        layer.ffn_act_scales = binder.find_vector(block_name(il, "ffn.act.scales"), hp.n_ff[i]);
    }
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::mpt
