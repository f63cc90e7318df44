// SPDX-License-Identifier: MIT
// More models whose forward pass is llama's block but for one thing: openPangu Embedded (arXiv:2505.22375) with a bias
// behind attention; text of CogVLM (arXiv:2311.03079), whose matrices for images stay unused; Jais 2 with layer norms
// and squared ReLU; Maincoder with normed heads, behind the rotation; PLaMo 3 with norms around each branch and
// windows; Spark X2.5 with a gate for each head; text of DeepSeek-OCR (arXiv:2510.18234) with experts.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace pangu_embedded {

HParams read(KeyReader& keys) { return read_common(keys, RopeKind::neox); }

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_stack(binder, hp, Head::tied_if_missing, {.qkv_bias = Bias::optional, .out_bias = Bias::required});
    w.rope_freqs = w.rope_factors_long = w.rope_factors_short = nullptr;  // a file may have them; they are not applied
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace pangu_embedded

namespace cogvlm {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    hp.rope_freq_base = 10000.0f;  // whatever the file says
    require_full_rotation(keys, hp);
    if (hp.n_head[0] * hp.head_dim_k != hp.n_embd)
        keys.bad("attention.key_length", cat(hp.head_dim_k), "times head_count must be embedding_length");
    for (const int n : hp.n_head_kv)
        if (n != hp.n_head[0]) keys.bad("attention.head_count_kv", cat(n), cat("must be head_count ", hp.n_head[0]));
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing, {}, [&](int il, LayerWeights&) {
        for (const char* const role : {"vis_attn_qkv", "vis_attn_output", "vis_gate", "vis_up", "vis_down"})
            binder.ignore(cat(block_name(il, role), ".weight"));  // for tokens of images
    });
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace cogvlm

namespace jais2 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox, NormKind::layer);
    require_full_rotation(keys, hp);
    hp.activation = Activation::relu_sqr;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    BlockParts parts = kBiasedBlock;
    parts.qkv_bias = Bias::optional;
    return bind_stack(binder, hp, Head::tied_if_missing, parts);
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace jais2

namespace maincoder {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm);
    require_full_rotation(keys, hp);
    hp.head_norms_behind_rope = true;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing, {.qkv_bias = Bias::optional, .head_norms = HeadNorms::shared});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace maincoder

namespace plamo3 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    read_window(keys, hp, WindowKind::standard, 0, 8);
    read_window_base(keys, hp, 10000.0f);
    if (hp.has_windowed_layers()) hp.rope_window_scaled = false;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing, {.head_norms = HeadNorms::shared, .ffn = FeedForward::fused},
                      [&](int il, LayerWeights& layer) {
                          layer.attn_post_norm = bare_norm(binder, block_name(il, "post_attention_norm"), {hp.n_embd});
                          layer.ffn_post_norm = bare_norm(binder, block_name(il, "post_ffw_norm"), {hp.n_embd});
                      });
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace plamo3

namespace spark2_5 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    hp.activation = Activation::gelu;
    require_window_array(keys, hp);
    read_window(keys, hp, WindowKind::standard, 0, 0);
    read_window_base(keys, hp);
    read_window_rotation(keys, hp);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(
        binder, hp, Head::tied_if_missing, {.qkv_bias = Bias::optional}, [&](int il, LayerWeights& layer) {
            layer.attn_gate =
                binder.linear(block_name(il, "attn_gate"), hp.n_embd, hp.n_head[static_cast<std::size_t>(il)]);
        });
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace spark2_5

namespace paddleocr {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    require_full_rotation(keys, hp);
    read_rope_sections(keys, hp, false, false);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing, {.qkv_bias = Bias::optional, .out_bias = Bias::optional});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace paddleocr

namespace deepseek2_ocr {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    require_full_rotation(keys, hp);
    if (hp.rope_freq_base != 10000.0f) keys.bad("rope.freq_base", cat(hp.rope_freq_base), "must be 10000");
    if (hp.rope_freq_scale != 1.0f || hp.yarn_ext_factor != 0.0f || hp.rope_attn_factor != 1.0f)
        keys.bad("rope.scaling.factor", cat(1.0f / hp.rope_freq_scale), "scaling is not supported here");
    if (hp.n_head[0] * hp.head_dim_k != hp.n_embd)
        keys.bad("attention.key_length", cat(hp.head_dim_k), "times head_count must be embedding_length");
    for (const int n : hp.n_head_kv)
        if (n != hp.n_head[0]) keys.bad("attention.head_count_kv", cat(n), cat("must be head_count ", hp.n_head[0]));
    read_experts(keys, hp);
    require_experts(keys, hp);
    hp.n_ff_expert = required_expert_width(keys);
    hp.n_ff_shared = shared_width(keys, hp);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    refuse_factors(binder);
    return bind_stack(binder, hp, Head::tied_if_missing, {.ffn = FeedForward::dense_or_experts});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace deepseek2_ocr

}  // namespace tinfer::model
