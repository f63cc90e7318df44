// SPDX-License-Identifier: MIT
// The GLM family (arXiv:2406.12793): ChatGLM 3 and GLM-4-9B with RoPE on half of each head and a fused gated
// feed-forward; GLM-4-0414 with norms behind the branches too; GLM-4.5 (arXiv:2508.06471) with experts behind sigmoid
// gates.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace chatglm {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm);
    (void)keys.find_per_layer("rope.dimension_sections", 4);  // of images: text turns as without
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::required, {.qkv_bias = Bias::optional, .ffn = FeedForward::fused});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace chatglm

namespace glm4 {

HParams read(KeyReader& keys) { return chatglm::read(keys); }

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing,
                      {.norms = BlockNorms::around, .qkv_bias = Bias::optional, .ffn = FeedForward::fused});
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
    // The norm before the feed-forward is stored under the name of one behind attention.
    return bind_stack(binder, hp, Head::required,
                      {.norms = BlockNorms::before,
                       .ffn_norm = "post_attention_norm",
                       .qkv_bias = Bias::required,
                       .head_norms = HeadNorms::shared_if_given,
                       .ffn = FeedForward::dense_or_experts});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace glm4moe

}  // namespace tinfer::model
