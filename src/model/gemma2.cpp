// SPDX-License-Identifier: MIT
// Gemma 2 (arXiv:2408.00118) and Gemma 3 (arXiv:2503.19786): Gemma's block with a norm before and behind each branch.
// Layers with a window alternate with layers that see everything: every other one, with soft caps, in Gemma 2; five to
// one, with normed heads and plain short-range angles, in Gemma 3. EmbeddingGemma (arXiv:2509.20354) is Gemma 3 as an
// encoder.
#include <cmath>

#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

HParams read_gemma(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    hp.activation = Activation::gelu;
    hp.embd_scale = std::sqrt(static_cast<float>(hp.n_embd));
    return hp;
}

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

}  // namespace

namespace gemma2 {

HParams read(KeyReader& keys) {
    HParams hp = read_gemma(keys);
    scale_by_width(keys, hp, 46);
    hp.attention.softcap = soft_cap(keys, "attn_logit_softcapping", 50.0f);
    hp.final_softcap = soft_cap(keys, "final_logit_softcapping", 30.0f);
    read_window(keys, hp, WindowKind::standard, 4096, 2);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    if (binder.exists("blk.0.attn_q_norm.weight")) binder.unsupported("looks like gemma3 under the wrong name");
    return bind_stack(binder, hp, Head::always_tied, {.norms = BlockNorms::around});
}

}  // namespace gemma2

const Family families::gemma2{.read_all = gemma2::read, .bind_all = gemma2::bind};

namespace gemma3 {

HParams read(KeyReader& keys) {
    HParams hp = read_gemma(keys);
    scale_by_width(keys, hp, 62);
    hp.final_softcap = soft_cap(keys, "final_logit_softcapping", 0.0f);
    (void)keys.require_u32("attention.sliding_window");
    read_window(keys, hp, hp.attention.causal ? WindowKind::standard : WindowKind::symmetric, 0, 6);
    read_two_ropes(keys, hp);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    for (const char* name : {"per_layer_token_embd.weight", "blk.0.altup_router.weight", "blk.0.laurel_l.weight"})
        if (binder.exists(name)) binder.unsupported("gemma3n not supported");
    return bind_stack(binder, hp, Head::tied_if_missing,
                      {.norms = BlockNorms::around, .head_norms = HeadNorms::shared});
}

}  // namespace gemma3

const Family families::gemma3{.read_all = gemma3::read, .bind_all = gemma3::bind};

namespace gemma_embedding {

HParams read(KeyReader& keys) {
    HParams hp = gemma3::read(keys);
    hp.attention.causal = false;
    hp.windows.window = {WindowKind::symmetric, hp.windows.window.size, false};
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = gemma3::bind(binder, hp);
    w.output = {};  // hidden states are what it gives
    return w;
}

}  // namespace gemma_embedding

const Family families::gemma_embedding{.read_all = gemma_embedding::read, .bind_all = gemma_embedding::bind};

}  // namespace tinfer::model
