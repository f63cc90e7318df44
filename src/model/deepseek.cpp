// SPDX-License-Identifier: MIT
// DeepSeekMoE (arXiv:2401.06066): llama's attention; behind some dense layers, many small experts and shared ones that
// every token takes.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::deepseek {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm);
    read_experts(keys, hp);
    if (hp.n_expert == 0) keys.bad("expert_count", "0", "architecture 'deepseek' needs expert_count > 0");
    hp.n_ff_expert = expert_width(keys, "expert_feed_forward_length", keys.require_u32("expert_feed_forward_length"));
    hp.n_ff_shared = shared_width(keys, hp);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::required, {.ffn = FeedForward::dense_or_experts});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::deepseek
