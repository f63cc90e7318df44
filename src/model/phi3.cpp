// SPDX-License-Identifier: MIT
// Phi-3, 3.5 and 4 (arXiv:2404.14219): fused projections of attention and of the gated feed-forward, half-split RoPE
// over a part of each head, long contexts by factors per pair (LongRoPE, arXiv:2402.13753). Phi-3.5-MoE (phimoe) has
// layer norms, biases and experts instead.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace phi3 {

namespace {

// What files without the key mean, told apart by sizes (architectures §5.9).
std::uint32_t implied_window(const HParams& hp) noexcept {
    if ((hp.n_layer == 32 || hp.n_layer == 40) && hp.n_ctx_train == 4096) return 2047;
    if (hp.n_layer == 32 && hp.n_head_kv[0] == 32 && hp.n_ctx_train == 131072) return 262144;
    return hp.n_layer == 40 && hp.n_ctx_train == 131072 ? 131072 : 0;
}

}  // namespace

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox);
    read_window(keys, hp, WindowKind::standard, implied_window(hp), 0);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    binder.refuse("blk.0.ffn_gate_inp.weight", "use architecture 'phimoe'");
    Weights w = bind_stack(binder, hp, Head::tied_if_missing, {.norm_bias = Bias::optional, .ffn = FeedForward::fused});
    w.output.bias = binder.find_vector("output.bias", hp.n_vocab);
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace phi3

namespace phimoe {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::neox, NormKind::layer);
    hp.expert_weights_norm = true;
    read_experts(keys, hp);
    if (hp.n_expert == 0) keys.bad("expert_count", "0", "architecture 'phimoe' needs expert_count > 0");
    hp.n_ff_expert = expert_width(keys, "expert_feed_forward_length", static_cast<std::uint32_t>(hp.n_ff[0]));
    read_window(keys, hp, WindowKind::standard, 0, 0);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_stack(binder, hp, Head::tied_if_missing,
                           {.norm_bias = Bias::required,
                            .qkv_bias = Bias::required,
                            .out_bias = Bias::required,
                            .ffn = FeedForward::experts});
    w.output.bias = binder.find_vector("output.bias", hp.n_vocab);
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace phimoe

}  // namespace tinfer::model
