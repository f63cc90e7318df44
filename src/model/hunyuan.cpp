// SPDX-License-Identifier: MIT
// Hunyuan (Tencent, 2025), dense and with experts (arXiv:2411.02265): llama's block with half-split RoPE and RMS norms
// over each head of q and k, behind the rotation. Every layer of the second has experts and a shared one.
#include <cmath>

#include "base/error.hpp"
#include "base/math.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

HParams read_hunyuan(KeyReader& keys, FeedForwardKey ff = FeedForwardKey::required) {
    HParams hp = read_common(keys, RopeKind::neox, CommonKeys{.ff = ff});
    require_full_rotation(keys, hp);
    hp.attention.head_norms_behind_rope = true;
    return hp;
}

Weights bind_hunyuan(WeightBinder& binder, const HParams& hp, FeedForward ffn) {
    refuse_factors(binder);
    return bind_stack(binder, hp, Head::tied_if_missing,
                      {.qkv_bias = Bias::optional, .head_norms = HeadNorms::shared, .ffn = ffn});
}

}  // namespace

namespace hunyuan_dense {

HParams read(KeyReader& keys) {
    HParams hp = read_hunyuan(keys);
    if (keys.u32("expert_count", 0) > 1)
        unsupported(keys.file(), hp.arch, "experts have an architecture of their own, hunyuan-moe");
    // NTK-aware base (reddit.com/r/LocalLLaMA, 2023): b · α^(d/(d − 2))
    const float alpha = keys.f32("rope.scaling.alpha", 0.0f);
    if (alpha > 0 && hp.head_dim_k > 2) {
        const double d = hp.head_dim_k, base = static_cast<double>(hp.rope.freq_base);
        hp.rope.freq_base = static_cast<float>(base * math::pow(static_cast<double>(alpha), d / (d - 2)));
    }
    if (alpha < 0 || !std::isfinite(hp.rope.freq_base))
        keys.bad("rope.scaling.alpha", cat(alpha), "must not be below 0, and leave the base of RoPE finite");
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return bind_hunyuan(binder, hp, FeedForward::gated); }

}  // namespace hunyuan_dense

const Family families::hunyuan_dense{.read_all = hunyuan_dense::read, .bind_all = hunyuan_dense::bind};

namespace hunyuan_vl {  // HunyuanOCR

HParams read(KeyReader& keys) {
    HParams hp = hunyuan_dense::read(keys);
    read_rope_sections(keys, hp, false, false);
    if (hp.rope.sections[0] == 0 || hp.rope.sections[1] == 0) hp.rope.sections = {};
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return hunyuan_dense::bind(binder, hp); }

}  // namespace hunyuan_vl

const Family families::hunyuan_vl{.read_all = hunyuan_vl::read, .bind_all = hunyuan_vl::bind};

namespace hunyuan_moe {

HParams read(KeyReader& keys) {
    HParams hp = read_hunyuan(keys);
    read_normalized_experts(keys, hp);
    require_experts(keys, hp);
    hp.experts.n_ff = hp.n_ff[0];  // the key of experts is there, and has no effect
    (void)keys.u32("expert_feed_forward_length", 0);
    hp.experts.n_ff_shared =
        expert_width(keys, "expert_shared_feed_forward_length", static_cast<std::uint32_t>(hp.n_ff[0]));
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) { return bind_hunyuan(binder, hp, FeedForward::experts); }

}  // namespace hunyuan_moe

const Family families::hunyuan_moe{.read_all = hunyuan_moe::read, .bind_all = hunyuan_moe::bind};

}  // namespace tinfer::model
