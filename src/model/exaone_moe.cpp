// SPDX-License-Identifier: MIT
// K-EXAONE (LG AI Research, 2026): blocks with norms before each branch and over each head of q and k; three layers of
// four have a window and rotate, the fourth sees everything and knows no positions. Dense layers in front, then experts
// with a shared one.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::exaone_moe {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    require_full_rotation(keys, hp);
    (void)keys.require_u32("attention.sliding_window");
    read_window(keys, hp, WindowKind::standard, 0, 4);
    hp.rope_layers = windowed_layers(hp);
    (void)keys.find_f32("rope.freq_base_swa");  // no effect
    read_experts(keys, hp);
    require_experts(keys, hp);
    require_gating(keys);
    hp.n_ff_expert = required_expert_width(keys);
    hp.n_ff_shared =
        expert_width(keys, "expert_shared_feed_forward_length", static_cast<std::uint32_t>(hp.n_ff_expert));
    (void)keys.u32("expert_shared_count", 0);  // no effect: the width is that of all together
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(
        binder, hp, Head::required,
        {.qkv_bias = Bias::optional, .head_norms = HeadNorms::shared, .ffn = FeedForward::dense_or_experts});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace tinfer::model::exaone_moe
