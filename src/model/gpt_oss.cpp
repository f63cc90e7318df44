// SPDX-License-Identifier: MIT
// gpt-oss (arXiv:2508.10925): attention with a learned sink per head, every other layer behind a window, YaRN
// everywhere; experts with biases, chosen by logits and weighed by a softmax over the chosen, and a clamped SwiGLU.
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
    const BlockParts parts{.ffn_norm = "post_attention_norm",  // before the experts, whatever its name
                           .qkv_bias = Bias::required,
                           .out_bias = Bias::required,
                           .ffn = FeedForward::experts,
                           .ffn_bias = Bias::required};
    return bind_stack(binder, hp, Head::required, parts, [&](int il, LayerWeights& layer) {
        layer.attn_sinks = binder.vector(block_name(il, "attn_sinks.weight"), hp.n_head[static_cast<std::size_t>(il)]);
    });
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::gpt_oss
