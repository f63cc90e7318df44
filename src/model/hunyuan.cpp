// SPDX-License-Identifier: MIT
// Hunyuan (Tencent, 2025), dense and with experts (arXiv:2411.02265): llama's block with half-split RoPE and RMS norms
// over each head of q and k, behind the rotation. Every layer of the second has experts and a shared one. HunyuanOCR
// (hunyuan_vl) is the first with sections of RoPE.
#include <cmath>

#include "base/error.hpp"
#include "base/math.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

constexpr BlockParts kHunyuanBlock{.qkv_bias = Bias::optional, .head_norms = HeadNorms::shared};
constexpr BlockParts kHunyuanExperts{
    .qkv_bias = Bias::optional, .head_norms = HeadNorms::shared, .ffn = FeedForward::experts};

void refuse_factors_of_hunyuan(WeightBinder& binder, const HParams&) { refuse_factors(binder); }

void read_hunyuan(KeyReader& keys, HParams& hp) {
    hp.attention.head_norms_behind_rope = true;
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
}

void read_hunyuan_vl(KeyReader& keys, HParams& hp) {
    read_hunyuan(keys, hp);
    read_rope_sections(keys, hp, false, false);
    if (hp.rope.sections[0] == 0 || hp.rope.sections[1] == 0) hp.rope.sections = {};
}

}  // namespace

const Family families::hunyuan_dense{.rope = RopeKind::neox,
                                     .full_rotation = true,
                                     .keys = read_hunyuan,
                                     .block = kHunyuanBlock,
                                     .check = refuse_factors_of_hunyuan};

const Family families::hunyuan_vl{.rope = RopeKind::neox,
                                  .full_rotation = true,
                                  .keys = read_hunyuan_vl,
                                  .block = kHunyuanBlock,
                                  .check = refuse_factors_of_hunyuan};

const Family families::hunyuan_moe{.rope = RopeKind::neox,
                                   .full_rotation = true,
                                   .experts = {.count = ExpertKeys::Count::required,
                                               .sum = ExpertKeys::Sum::always,
                                               .width = ExpertKeys::Width::dense_whatever,
                                               .shared = ExpertKeys::Shared::or_dense},
                                   .keys = [](KeyReader&, HParams& hp) { hp.attention.head_norms_behind_rope = true; },
                                   .block = kHunyuanExperts,
                                   .check = refuse_factors_of_hunyuan};

}  // namespace tinfer::model
