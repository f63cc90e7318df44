// SPDX-License-Identifier: MIT
// What recurrent families share: the states of a layer, causal convolutions, the selective state space of Mamba, and
// the stack of models that have nothing but such layers.
#pragma once

#include "model/blocks.hpp"

namespace tinfer::model {

using graph::RecurrentState;

/// State k of a layer (Recurrent::states), as recurrent operations take it.
[[nodiscard]] RecurrentState state(const BuildContext& b, const Inputs& in, int il, std::size_t k);
/// y_t[c] = Σ_j K[j,c] · x_{t−n+1+j}[c] (+ b[c]) over the last n tokens; state 0 of the layer holds n − 1 of them.
[[nodiscard]] Tensor short_conv(const BuildContext& b, const Inputs& in, int il, Tensor x);

/// ssm.conv_kernel, .inner_size, .state_size, .time_step_rank, with their limits; the group count stays 1.
void read_state_space(KeyReader& keys, HParams& hp);

/// Which layers are recurrent: attention.recurrent_layers, else all but every full_attention_interval-th.
[[nodiscard]] std::vector<bool> read_recurrent_layers(KeyReader& keys, const HParams& hp, std::uint32_t interval);

/// The selective state space of Mamba (arXiv:2312.00752 §3): keys, states, weights and the way from the normed stream
/// to what is added to it.
void add_selective_states(HParams& hp, std::size_t il);
void bind_selective(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w);
[[nodiscard]] Tensor selective_state_space(const BuildContext& b, const Inputs& in, int il, Tensor h);

/// x += mixer(norm(x)), layer after layer, then the head.
void mixer_stack(const BuildContext& b, Tensor (&mixer)(const BuildContext&, const Inputs&, int, Tensor));

}  // namespace tinfer::model
