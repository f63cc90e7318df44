// SPDX-License-Identifier: MIT
// The layers of Qwen3-Next and Qwen3.5, for families that are built of them.
#pragma once

#include "model/blocks.hpp"

namespace tinfer::model {

/// Keys of Qwen3.5, its recurrent layers and their states.
[[nodiscard]] HParams read_qwen35(KeyReader& keys);
void bind_gated_attention(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w);
void bind_delta_net(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w);
/// Wo·(attend(q, k, v) ⊙ sigmoid(gate)); W_q gives [q | gate] per head.
[[nodiscard]] Tensor gated_attention(const BuildContext& b, const Inputs& in, int il, Tensor h, Tensor chosen = {});
/// Per value head: S ← γS + k ⊗ β(v − γSᵀk);  o = Sᵀq / sqrt(size);  W_out·(norm(o) ⊙ silu(z)), or σ(z) with
/// `plain_gate`.
[[nodiscard]] Tensor delta_net(const BuildContext& b, const Inputs& in, int il, Tensor h, bool plain_gate = false);

}  // namespace tinfer::model
