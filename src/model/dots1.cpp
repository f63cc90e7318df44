// SPDX-License-Identifier: MIT
// dots.llm1 (arXiv:2506.05767): Qwen3's attention without groups, dense layers in front, then many experts with shared
// ones.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::dots1 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    read_experts(keys, hp);
    require_experts(keys, hp);
    require_gating(keys);
    hp.n_ff_expert = required_expert_width(keys);
    hp.n_ff_shared = shared_width(keys, hp);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(
        binder, hp, Head::required,
        {.qkv_bias = Bias::optional, .head_norms = HeadNorms::shared, .ffn = FeedForward::dense_or_experts});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::dots1
