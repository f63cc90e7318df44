// SPDX-License-Identifier: MIT
// Chameleon (arXiv:2405.09818), its text: llama's block with a layer norm over each head of q and k. Tokens of images
// are words of the same vocabulary; they may be read, but their logits are the lowest float, so none is written. The
// larger model norms what a branch gives instead of what it gets ("swin norm").
#include <algorithm>

#include "model/families.hpp"

namespace tinfer::model {

namespace {

constexpr float kHeadNormEps = 1e-5f;        // no key says it
constexpr TokenRange kImageTokens{4, 8196};  // of every released vocabulary

void read_chameleon(KeyReader& keys, HParams& hp) {
    hp.attention.head_norm = NormKind::layer;
    hp.layer_norm_eps = kHeadNormEps;
    hp.norms_behind = keys.boolean("swin_norm", false);
    hp.suppressed = {kImageTokens.begin, std::min(kImageTokens.end, hp.n_vocab)};
}

void place_norms(WeightBinder&, const HParams& hp, int, LayerWeights& layer) {
    if (!hp.norms_behind) return;  // the tensors have the names of norms before
    std::swap(layer.attn_norm, layer.attn_post_norm);
    std::swap(layer.ffn_norm, layer.ffn_post_norm);
}

}  // namespace

const Family families::chameleon{
    .keys = read_chameleon, .block = {.head_norms = HeadNorms::per_head}, .layer = place_norms};

}  // namespace tinfer::model
