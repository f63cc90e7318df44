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
/// attn_output. Sizes: hp.mla.
void bind_latent_attention(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w);
[[nodiscard]] Tensor latent_attention(const BuildContext& b, const Inputs& in, int il, Tensor h);

}  // namespace tinfer::model
