// SPDX-License-Identifier: MIT
// Binding what the shared blocks read (blocks.hpp), under the names most files use. A family calls those that fit and
// binds by hand what is its own.
#pragma once

#include "model/weights.hpp"

namespace tinfer::model {

using Bias = WeightBinder::Bias;

/// token_embd, output_norm, output (or the tied head), RoPE factors; room for the layers.
enum class Head : std::uint8_t { tied_if_missing, required, always_tied };
[[nodiscard]] Weights bind_globals(WeightBinder& binder, const HParams& hp, Head head = Head::tied_if_missing, Bias norm_bias = Bias::none);
[[nodiscard]] Weights bind_globals(WeightBinder& binder, const HParams& hp, Head head, const Norm& output_norm);

/// attn_norm and ffn_norm.
void bind_norms(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, Bias bias = Bias::none);
/// attn_qkv, or attn_q, attn_k and attn_v; attn_output.
void bind_attention(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, Bias qkv = Bias::none, Bias out = Bias::none);
/// attn_q_norm {head_dim} and attn_k_norm {head_dim}.
void bind_head_norms(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w);
/// ffn_gate, ffn_up, ffn_down.
void bind_gated_ffn(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, Bias bias = Bias::none);
/// ffn_up with gate and up in one matrix, ffn_down; or the three of bind_gated_ffn, where the file has them.
void bind_fused_ffn(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, Bias down = Bias::none);
/// ffn_up, ffn_down.
void bind_plain_ffn(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, Bias bias);
/// cls.weight and cls.output.weight, as far as the file has them (pooling by rank).
void bind_classifier(WeightBinder& binder, const HParams& hp, Weights& w);
/// Router and experts; where n_ff_shared > 0 the shared expert, without a gate of its own.
void bind_experts(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, Bias bias = Bias::none);
/// Gated feed-forward in the layers in front, experts in the others, with exp_probs_b where the file has it.
void bind_dense_or_experts(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w);

}  // namespace tinfer::model
