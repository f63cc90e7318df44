// SPDX-License-Identifier: MIT
// Text of Qwen3-VL (arXiv:2511.21631), Qwen3-Omni and Qwen3-ASR: Qwen3's block whose pairs of RoPE take turns in
// following time, height and width; those that follow none of them do not turn with a text's positions.
#include "base/error.hpp"
#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model {

namespace {

HParams read_qwen3vl(KeyReader& keys, FeedForwardKey ff) {
    HParams hp = read_common(keys, RopeKind::neox, CommonKeys{.ff = ff});
    require_full_rotation(keys, hp);
    read_rope_sections(keys, hp, true, true);
    hp.takes_embeddings = keys.u32("n_deepstack_layers", 0) == 0;  // else they are wider than the stream
    return hp;
}

}  // namespace

namespace qwen3vl {

HParams read(KeyReader& keys) { return read_qwen3vl(keys, FeedForwardKey::required); }

Weights bind(WeightBinder& binder, const HParams& hp) {
    Weights w =
        bind_stack(binder, hp, Head::tied_if_missing, {.qkv_bias = Bias::optional, .head_norms = HeadNorms::shared});
    if (binder.exists("cls.output.weight")) bind_classifier(binder, hp, w);  // rerankers
    return w;
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace qwen3vl

namespace qwen3vlmoe {

HParams read(KeyReader& keys) {
    HParams hp = read_qwen3vl(keys, FeedForwardKey::optional);
    read_normalized_experts(keys, hp);
    require_experts(keys, hp);
    hp.n_ff_expert =
        expert_width(keys, "expert_feed_forward_length", static_cast<std::uint32_t>(hp.n_ff[0] / hp.n_expert_used));
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing,
                      {.qkv_bias = Bias::optional, .head_norms = HeadNorms::shared, .ffn = FeedForward::experts});
}

void build(const BuildContext& b) { sequential_stack(b); }

}  // namespace qwen3vlmoe

}  // namespace tinfer::model
