// SPDX-License-Identifier: MIT
// Chameleon (arXiv:2405.09818), its text: llama's block with a layer norm over each head of q and k. Tokens of images
// are words of the same vocabulary; they may be read, but their logits are the lowest float, so none is written. The
// larger model norms what a branch gives instead of what it gets ("swin norm").
#include <algorithm>

#include "model/bindings.hpp"
#include "model/blocks.hpp"
#include "model/families.hpp"

namespace tinfer::model::chameleon {

namespace {

constexpr float kHeadNormEps = 1e-5f;        // no key says it
constexpr TokenRange kImageTokens{4, 8196};  // of every released vocabulary

}  // namespace

HParams read(KeyReader& keys) {
    HParams hp = read_common(keys, RopeKind::norm);
    hp.attention.head_norm = NormKind::layer;
    hp.layer_norm_eps = kHeadNormEps;
    hp.norms_behind = keys.boolean("swin_norm", false);
    hp.suppressed = {kImageTokens.begin, std::min(kImageTokens.end, hp.n_vocab)};
    return hp;
}

Weights bind(WeightBinder& binder, const HParams& hp) {
    return bind_stack(binder, hp, Head::tied_if_missing, {.head_norms = HeadNorms::per_head},
                      [&](int, LayerWeights& layer) {
                          if (!hp.norms_behind) return;  // the tensors have the names of norms before
                          std::swap(layer.attn_norm, layer.attn_post_norm);
                          std::swap(layer.ffn_norm, layer.ffn_post_norm);
                      });
}

}  // namespace tinfer::model::chameleon

namespace tinfer::model {
const Family families::chameleon{.read_all = chameleon::read, .bind_all = chameleon::bind};
}  // namespace tinfer::model
