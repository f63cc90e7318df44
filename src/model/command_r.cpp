// SPDX-License-Identifier: MIT
// Command-R and Command-R 7B, the architecture cohere2 (Cohere, 2024): attention and gated SiLU in parallel behind one
// layer norm without bias, RoPE on neighbouring pairs, logits times a scale. The largest of the first norms each head
// of q and k; in the second three layers of four have a window, and the fourth no positions.
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace command_r {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm, NormKind::layer);
    hp.logit_scale = positive_f32(keys, "logit_scale", {});
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(
        binder, hp, Head::always_tied,
        {.norms = BlockNorms::one, .qkv_bias = Bias::optional, .head_norms = HeadNorms::per_head_if_given});
}

void build(const BuildContext& b) { parallel_stack(b); }

}  // namespace command_r

namespace cohere2 {

HParams read(KeyReader& keys) {
    HParams hp = command_r::read(keys);
    (void)keys.require_u32("attention.sliding_window");
    read_window(keys, hp, WindowKind::standard, 0, 4);
    if (hp.has_windowed_layers()) hp.rope_layers = hp.windowed;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    if (binder.exists("blk.0.attn_q_norm.weight")) binder.unsupported("q/k norm variant not supported under this name");
    return command_r::bind(binder, hp);
}

void build(const BuildContext& b) { parallel_stack(b); }

}  // namespace cohere2

}  // namespace tinfer::model
