// SPDX-License-Identifier: MIT
// Gemma 2 (arXiv:2408.00118) and Gemma 3 (arXiv:2503.19786): Gemma's block with a norm before and behind each branch.
// Layers with a window alternate with layers that see everything: every other one, with soft caps, in Gemma 2; five to
// one, with normed heads and plain short-range angles, in Gemma 3. EmbeddingGemma (arXiv:2509.20354) is Gemma 3 as an
// encoder.
#include <cmath>

#include "base/error.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

void scale_embedding(HParams& hp) { hp.embd_scale = std::sqrt(static_cast<float>(hp.n_embd)); }

/// The models of 27B divide by the root of n_embd / n_head instead of the head size.
void scale_by_width(KeyReader& keys, HParams& hp, int n_layer_of_27b) {
    const bool given = keys.f32("attention.scale", 0.0f) != 0.0f;
    if (hp.n_layer == n_layer_of_27b && !given)
        hp.attention.scale = 1.0f / std::sqrt(static_cast<float>(hp.n_embd) / static_cast<float>(hp.n_head[0]));
}

float soft_cap(KeyReader& keys, std::string_view key, float otherwise) {
    const float cap = keys.f32(key, otherwise);
    if (!(cap >= 0)) keys.bad(key, cat(cap), "must not be below 0");
    return cap;
}

/// Sliding layers turn by base 10000, unscaled; the others by the file's base and scale.
void read_two_ropes(KeyReader& keys, HParams& hp) {
    if (const auto base = keys.find_f32("rope.global.freq_base")) hp.rope.freq_base = *base;  // a name seen in the wild
    const float base = keys.f32("rope.local.freq_base", 10000.0f);
    hp.windows.freq_base = keys.f32("rope.freq_base_swa", base);
    if (!(hp.rope.freq_base > 0)) keys.bad("rope.global.freq_base", cat(hp.rope.freq_base), "must be above 0");
    if (!(hp.windows.freq_base > 0)) keys.bad("rope.freq_base_swa", cat(hp.windows.freq_base), "must be above 0");
    hp.windows.rope_scaled = false;
}

void read_gemma2(KeyReader& keys, HParams& hp) {
    scale_embedding(hp);
    scale_by_width(keys, hp, 46);
    hp.attention.softcap = soft_cap(keys, "attn_logit_softcapping", 50.0f);
    hp.final_softcap = soft_cap(keys, "final_logit_softcapping", 30.0f);
    read_window(keys, hp, WindowKind::standard, 4096, 2);
}

void read_gemma3(KeyReader& keys, HParams& hp) {
    scale_embedding(hp);
    scale_by_width(keys, hp, 62);
    hp.final_softcap = soft_cap(keys, "final_logit_softcapping", 0.0f);
    (void)keys.require_u32("attention.sliding_window");
    read_window(keys, hp, hp.attention.causal ? WindowKind::standard : WindowKind::symmetric, 0, 6);
    read_two_ropes(keys, hp);
}

void read_gemma_embedding(KeyReader& keys, HParams& hp) {
    read_gemma3(keys, hp);
    hp.attention.causal = false;
    hp.windows.window = {WindowKind::symmetric, hp.windows.window.size, false};
}

void refuse_gemma3n(WeightBinder& binder, const HParams&) {
    for (const char* name : {"per_layer_token_embd.weight", "blk.0.altup_router.weight", "blk.0.laurel_l.weight"})
        if (binder.exists(name)) binder.unsupported("gemma3n not supported");
}

constexpr BlockParts kGemma3Block{.norms = BlockNorms::around, .head_norms = HeadNorms::shared};

}  // namespace

const Family families::gemma2{
    .rope = RopeKind::neox,
    .activation = Activation::gelu,
    .keys = read_gemma2,
    .head = Head::always_tied,
    .block = {.norms = BlockNorms::around},
    .check =
        [](WeightBinder& binder, const HParams&) {
            if (binder.exists("blk.0.attn_q_norm.weight")) binder.unsupported("looks like gemma3 under the wrong name");
        },
};

const Family families::gemma3{.rope = RopeKind::neox,
                              .activation = Activation::gelu,
                              .keys = read_gemma3,
                              .block = kGemma3Block,
                              .check = refuse_gemma3n};

const Family families::gemma_embedding{
    .rope = RopeKind::neox,
    .activation = Activation::gelu,
    .keys = read_gemma_embedding,
    .block = kGemma3Block,
    .check = refuse_gemma3n,
    .weights = [](WeightBinder&, const HParams&, Weights& w) { w.output = {}; },  // it gives hidden states
};

}  // namespace tinfer::model
