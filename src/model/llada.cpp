// SPDX-License-Identifier: MIT
// Models that make text out of masked places, over several passes in which every token sees every other: LLaDA
// (arXiv:2502.09992), llama's block; LLaDA-MoE (arXiv:2509.24389), with normed heads and experts; Dream
// (arXiv:2508.15487), Qwen2's block.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

HParams as_diffusion(HParams hp) {
    hp.causal = false;  // whatever the file says
    hp.diffusion = true;
    return hp;
}

}  // namespace

namespace llada {

HParams read(KeyReader& keys) { return as_diffusion(read_common(keys, RopeKind::norm)); }

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing, {.qkv_bias = Bias::optional});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace llada

namespace llada_moe {

HParams read(KeyReader& keys) {
    HParams hp = as_diffusion(read_common(keys, RopeKind::neox, CommonKeys{.ff = FeedForwardKey::optional}));
    read_plain_experts(keys, hp);
    require_experts(keys, hp);
    hp.n_ff_expert = required_expert_width(keys);
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::required,
                      {.qkv_bias = Bias::optional, .head_norms = HeadNorms::shared, .ffn = FeedForward::experts});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace llada_moe

namespace dream {

HParams read(KeyReader& keys) { return as_diffusion(read_common(keys, RopeKind::neox)); }

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing, {.qkv_bias = Bias::optional});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace dream

}  // namespace tinfer::model
