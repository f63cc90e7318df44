// SPDX-License-Identifier: MIT
// Multi-head latent attention (arXiv:2405.04434 §2.1): keys and values are made from one short latent vector per token,
// and positions enter by a small rotated part that all heads of K share. With the matrices of the latent split (k_b,
// v_b) it is absorbed into query and output, so that the cache holds the latent alone; with the joined one (kv_b) keys
// and values are written out per head.
#pragma once

#include "model/bindings.hpp"
#include "model/blocks.hpp"

namespace tinfer::model {

/// attn_q, or attn_q_a with its norm and attn_q_b; attn_kv_a_mqa with its norm; attn_k_b and attn_v_b, or attn_kv_b;
/// attn_output. Sizes: hp.attention.mla.
void bind_latent_attention(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w);
/// `chosen`: what the last indexer in front has chosen; a layer with one writes its own choice there. Null: attention
/// sees everything.
[[nodiscard]] Tensor latent_attention(const BuildContext& b, const Inputs& in, int il, Tensor h, Tensor* chosen);
[[nodiscard]] Tensor latent_attention(const BuildContext& b, const Inputs& in, int il, Tensor h);
/// A block that drafts: this attention, then experts. Weights of an indexer may be there, and are not used.
void bind_latent_block(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w);

/// The sizes of the split layout, of two kinds of layers where some have a window, and 1/sqrt(head size) as scale.
void read_split_latent(KeyReader& keys, HParams& hp, bool has_windows = false);
/// YaRN's magnitude divided by 1 + a·ln(1/s), a = rope.scaling.yarn_log_multiplier, and given back to the scores.
void share_yarn_magnitude(KeyReader& keys, HParams& hp);
/// Heads, their width and how many keys are chosen: attention.indexer.*.
IndexerParams& read_indexer_sizes(KeyReader& keys, HParams& hp);
/// The same, in every layer.
void read_indexer(KeyReader& keys, HParams& hp, bool neox);
/// Which layers have an indexer: attention.indexer.types; false where the file does not say.
bool read_indexer_types(KeyReader& keys, HParams& hp);
void bind_indexer(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w);

}  // namespace tinfer::model
