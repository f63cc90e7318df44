// SPDX-License-Identifier: MIT
// Ling and Ring (Ant Group; arXiv:2503.05139): llama's attention and experts in every layer, with shared ones; in their
// second version (arXiv:2510.22115) normed heads with half-split RoPE over a part of them, dense layers in front, and
// experts chosen by sigmoid within groups.
#include <cmath>

#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace bailingmoe {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm, CommonKeys{.ff = FeedForwardKey::optional});
    require_full_rotation(keys, hp);
    hp.attn_scale = 1.0f / std::sqrt(static_cast<float>(hp.n_rot));
    read_experts(keys, hp);
    require_experts(keys, hp);
    if (hp.n_layer_dense > 0)
        keys.bad("leading_dense_block_count", cat(hp.n_layer_dense), "must be 0: every layer has experts");
    hp.n_ff_expert = required_expert_width(keys);
    hp.n_ff_shared = shared_width(keys, hp);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::required, {.qkv_bias = Bias::optional, .ffn = FeedForward::experts});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace bailingmoe

namespace bailingmoe2 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    read_experts(keys, hp);
    require_experts(keys, hp);
    require_gating(keys);
    hp.n_ff_expert = required_expert_width(keys);
    const int one = expert_width(keys, "expert_shared_feed_forward_length", static_cast<std::uint32_t>(hp.n_ff_expert));
    hp.n_ff_shared = shared_width(keys, one);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    for (int il = 0; il < hp.n_layer; ++il)
        if (!binder.exists(block_name(il, "attn_qkv.weight"))) binder.missing(block_name(il, "attn_qkv.weight"));
    return bind_stack(
        binder, hp, Head::required,
        {.qkv_bias = Bias::optional, .head_norms = HeadNorms::shared, .ffn = FeedForward::dense_or_experts});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace bailingmoe2

}  // namespace tinfer::model
