// SPDX-License-Identifier: MIT
// The OLMo family: OLMo (arXiv:2402.00838) with layer norms without parameters, OLMo 2 (arXiv:2501.00656) with norms behind
// each branch and none before, OLMoE (arXiv:2409.02060) with experts. The later two norm whole q and k.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

void bind_full_width_norms(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w) {
    const auto i = static_cast<std::size_t>(il);
    w.attn_q_norm = binder.norm(block_name(il, "attn_q_norm"), {hp.n_head[i] * hp.head_dim_k});
    w.attn_k_norm = binder.norm(block_name(il, "attn_k_norm"), {hp.n_head_kv[i] * hp.head_dim_k});
}

}  // namespace

namespace olmo {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm, NormKind::layer);
    hp.qkv_clamp = keys.f32("attention.clamp_kqv", 0.0f);
    if (!(hp.qkv_clamp >= 0)) keys.bad("attention.clamp_kqv", cat(hp.qkv_clamp), "must not be below 0");
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    constexpr Norm kPlain{.present = true};   // (x − mean) / sqrt(var + eps), nothing learned
    Weights w = bind_globals(binder, hp, Head::tied_if_missing, kPlain);
    for (int il = 0; il < hp.n_layer; ++il) {
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        layer.attn_norm = layer.ffn_norm = kPlain;
        bind_attention(binder, hp, il, layer);
        bind_gated_ffn(binder, hp, il, layer);
    }
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace olmo

namespace olmo2 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    read_window(keys, hp, WindowKind::standard, 0, 4);
    hp.rope_window_scaled = !hp.has_windowed_layers();   // OLMo 3: YaRN on the layers that see everything
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    binder.refuse("blk.0.attn_norm.weight", "not an olmo2 block layout");
    Weights w = bind_globals(binder, hp, Head::required);
    for (int il = 0; il < hp.n_layer; ++il) {
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        bind_attention(binder, hp, il, layer);
        bind_full_width_norms(binder, hp, il, layer);
        bind_gated_ffn(binder, hp, il, layer);
        layer.attn_post_norm = binder.norm(block_name(il, "post_attention_norm"), {hp.n_embd});
        layer.ffn_post_norm = binder.norm(block_name(il, "post_ffw_norm"), {hp.n_embd});
    }
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace olmo2

namespace olmoe {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    read_experts(keys, hp);
    if (hp.n_expert == 0) keys.bad("expert_count", "0", "architecture 'olmoe' needs expert_count > 0");
    hp.n_ff_expert = expert_width(keys, "expert_feed_forward_length", static_cast<std::uint32_t>(hp.n_ff[0]));
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_globals(binder, hp, Head::required);
    for (int il = 0; il < hp.n_layer; ++il) {
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        bind_norms(binder, hp, il, layer);
        bind_attention(binder, hp, il, layer);
        bind_full_width_norms(binder, hp, il, layer);
        bind_experts(binder, hp, il, layer);
    }
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace olmoe

}  // namespace tinfer::model
