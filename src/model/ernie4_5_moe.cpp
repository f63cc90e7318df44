// SPDX-License-Identifier: MIT
// ERNIE 4.5 with experts (Baidu, 2025): llama's block, dense layers in front; experts are chosen by softmax with a
// bias, and weighed without it; a shared expert beside them where the file has one.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::ernie4_5_moe {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm);
    require_full_rotation(keys, hp);
    read_normalized_experts(keys, hp);
    require_experts(keys, hp);
    hp.n_ff_expert = required_expert_width(keys);
    hp.n_ff_shared = optional_width(keys, "expert_shared_feed_forward_length");
    if (const std::uint32_t step = keys.require_u32("interleave_moe_layer_step"); step != 1)
        keys.bad("interleave_moe_layer_step", cat(step),
                 "must be 1: which layers have experts is told by their tensors");
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing,
                      {.qkv_bias = Bias::optional, .ffn = FeedForward::dense_or_experts});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::ernie4_5_moe
