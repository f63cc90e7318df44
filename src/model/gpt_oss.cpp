// SPDX-License-Identifier: MIT
// gpt-oss (arXiv:2508.10925): attention with a learned sink per head, every other layer behind a window, YaRN everywhere;
// experts with biases, chosen by logits and weighed by a softmax over the chosen, and a clamped SwiGLU.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::gpt_oss {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    hp.activation = Activation::swiglu_clamped;
    hp.expert_gating = GatingFunc::softmax_selected;
    read_experts(keys, hp);
    if (hp.n_expert == 0) keys.bad("expert_count", "0", "architecture 'gpt-oss' needs expert_count > 0");
    hp.n_ff_expert = expert_width(keys, "expert_feed_forward_length", keys.require_u32("expert_feed_forward_length"));
    (void)keys.require_u32("attention.sliding_window");
    read_window(keys, hp, WindowKind::standard, 0, 2);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_globals(binder, hp, Head::required);
    for (int il = 0; il < hp.n_layer; ++il) {
        const auto i = static_cast<std::size_t>(il);
        LayerWeights& layer = w.layers[i];
        layer.attn_norm = binder.norm(block_name(il, "attn_norm"), {hp.n_embd});
        bind_attention(binder, hp, il, layer, Bias::required, Bias::required);
        layer.attn_sinks = binder.vector(block_name(il, "attn_sinks.weight"), hp.n_head[i]);
        layer.ffn_norm = binder.norm(block_name(il, "post_attention_norm"), {hp.n_embd});   // before the experts, whatever its name
        bind_experts(binder, hp, il, layer, Bias::required);
    }
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::gpt_oss
