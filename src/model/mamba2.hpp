// SPDX-License-Identifier: MIT
// The state space of Mamba-2 (arXiv:2405.21060) as a part of other models' layers.
#pragma once

#include "model/bindings.hpp"
#include "model/recurrent.hpp"

namespace tinfer::model {

/// ssm.conv_kernel, .inner_size, .state_size, .time_step_rank (heads) and .group_count, which must divide one another.
void read_grouped_state_space(KeyReader& keys, HParams& hp);
void add_grouped_states(HParams& hp, std::size_t il);
/// attn_norm is bound by the caller. The norm behind the gate may be missing where `norm_required` is false.
void bind_grouped(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, Bias conv, bool norm_required);
[[nodiscard]] Tensor grouped_state_space(const BuildContext& b, const Inputs& in, int il, Tensor h);

}  // namespace tinfer::model
