// SPDX-License-Identifier: MIT
// GPT-2 and StarCoder (arXiv:2305.06161), which is GPT-2 with one KV head: learned positions, layer norms, biases
// everywhere, plain GELU. Jais (arXiv:2308.16149): ALiBi, gated SiLU and scores divided by head_dim instead.
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace gpt2 {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::none, NormKind::layer);
    hp.activation = Activation::gelu;
    hp.n_pos_table = hp.n_ctx_train;
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w = bind_stack(binder, hp, Head::tied_if_missing, kBiasedBlock);
    w.position_embd = binder.matrix("position_embd", {hp.n_embd, hp.n_pos_table});
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace gpt2

namespace starcoder {

HParams read(KeyReader& keys) { return gpt2::read(keys); }
Weights bind(WeightBinder& binder, const HParams& hp) { return gpt2::bind(binder, hp); }
void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace starcoder

namespace jais {

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::none, NormKind::layer);
    hp.max_alibi_bias = positive_f32(keys, "attention.max_alibi_bias", 8.0f);
    if (keys.f32("attention.scale", 0.0f) == 0.0f) hp.attn_scale = 1.0f / static_cast<float>(hp.head_dim_k);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    BlockParts parts = kBiasedBlock;
    parts.ffn = FeedForward::gated;
    return bind_stack(binder, hp, Head::required, parts);
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace jais

}  // namespace tinfer::model
