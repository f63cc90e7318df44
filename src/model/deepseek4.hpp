// SPDX-License-Identifier: MIT
// Blocks of DeepSeek V4 as draft heads have them: four streams, a window everywhere, no groups of older tokens.
#pragma once

#include "model/bindings.hpp"
#include "model/blocks.hpp"

namespace tinfer::model::deepseek4 {

/// The model's keys without those of groups, which may be left out or say that there are none.
[[nodiscard]] HParams read_without_groups(KeyReader& keys);
/// All tensors of a block.
void bind_any_block(WeightBinder& binder, const HParams& hp, int il, LayerWeights& layer);
/// Writes the keys of rows h {n_embd, T}, which are their values.
void write_keys(const BuildContext& b, const Inputs& in, Tensor h);
/// x {n_embd, T} through all blocks and the mixer behind them: {n_embd, n_outputs}, not normed. Absent without outputs.
[[nodiscard]] Tensor run_blocks(const BuildContext& b, const Inputs& in, Tensor x);

}  // namespace tinfer::model::deepseek4
