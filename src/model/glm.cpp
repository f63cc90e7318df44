// SPDX-License-Identifier: MIT
// The GLM family (arXiv:2406.12793): ChatGLM 3 and GLM-4-9B with RoPE on half of each head and a fused gated feed-forward;
// GLM-4-0414 with norms behind the branches too; GLM-4.5 (arXiv:2508.06471) with experts behind sigmoid gates.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace chatglm {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm);
    (void)keys.find_per_layer("rope.dimension_sections", 4);   // of images: text turns as without
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_globals(binder, hp, Head::required);
    for (int il = 0; il < hp.n_layer; ++il) {
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        bind_norms(binder, hp, il, layer);
        bind_attention(binder, hp, il, layer, Bias::optional);
        bind_fused_ffn(binder, hp, il, layer);
    }
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace chatglm

namespace glm4 {

HParams read(KeyReader& keys) { return chatglm::read(keys); }

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_globals(binder, hp);
    for (int il = 0; il < hp.n_layer; ++il) {
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        bind_norms(binder, hp, il, layer);
        bind_attention(binder, hp, il, layer, Bias::optional);
        bind_fused_ffn(binder, hp, il, layer);
        layer.attn_post_norm = binder.norm(block_name(il, "post_attention_norm"), {hp.n_embd});
        layer.ffn_post_norm = binder.norm(block_name(il, "post_ffw_norm"), {hp.n_embd});
    }
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace glm4

namespace glm4moe {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    hp.expert_gating = GatingFunc::sigmoid;
    read_experts(keys, hp);
    if (hp.n_expert == 0) keys.bad("expert_count", "0", "architecture 'glm4moe' needs expert_count > 0");
    hp.n_ff_expert = expert_width(keys, "expert_feed_forward_length", static_cast<std::uint32_t>(hp.n_ff[0]));
    hp.n_ff_shared = shared_width(keys, hp);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_globals(binder, hp, Head::required);
    for (int il = 0; il < hp.n_layer; ++il) {
        LayerWeights& layer = w.layers[static_cast<std::size_t>(il)];
        layer.attn_norm = binder.norm(block_name(il, "attn_norm"), {hp.n_embd});
        layer.ffn_norm = binder.norm(block_name(il, "post_attention_norm"), {hp.n_embd});   // stored under the other's name
        bind_attention(binder, hp, il, layer, Bias::required);
        layer.attn_q_norm = binder.find_norm(block_name(il, "attn_q_norm"), {hp.head_dim_k});
        layer.attn_k_norm = binder.find_norm(block_name(il, "attn_k_norm"), {hp.head_dim_k});
        bind_dense_or_experts(binder, hp, il, layer);
    }
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace glm4moe

}  // namespace tinfer::model
