// SPDX-License-Identifier: MIT
// What Gemma 3n and Gemma 4 share: an input that every layer has of its own, and layers at the end that look at keys
// and values of others.
#pragma once

#include "model/bindings.hpp"
#include "model/blocks.hpp"

namespace tinfer::model {

/// Keys of Gemma 4's blocks: heads, windows, angles.
[[nodiscard]] HParams read_gemma4_blocks(KeyReader& keys, const CommonKeys& common);
/// The layers behind n_own look at keys and values of the last own ones, which must be one with a window and one
/// without; `key` is what says so.
void share_last_layers(KeyReader& keys, HParams& hp, int n_own, std::string_view key);
/// per_layer_token_embd, per_layer_model_proj, per_layer_proj_norm.
void bind_layer_inputs(WeightBinder& binder, const HParams& hp, Weights& w);
/// inp_gate, proj, post_norm.
void bind_layer_input(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w);
/// u = (norm(W·x/sqrt(n_embd)) + sqrt(P)·row of the token)/sqrt(2) of all layers, {P · n_layer, T}, of in.x. A part
/// that begins behind the first layer finds those of its layers and of all behind them in in.x, behind `n_before`
/// floats.
[[nodiscard]] Tensor layer_inputs(const BuildContext& b, const Inputs& in, std::int64_t n_before);
/// Of u, what the layers behind a part read; absent where there are none.
[[nodiscard]] Tensor layer_inputs_behind(const BuildContext& b, Tensor u);
/// Floats of a token that layer il and all behind it read.
[[nodiscard]] std::int64_t layer_inputs_width(const HParams& hp, int il) noexcept;
/// norm(W_proj·(gelu(W_gate·x) ⊙ u))
[[nodiscard]] Tensor add_layer_input(const BuildContext& b, const LayerWeights& w, int il, Tensor x, Tensor u);

/// Keys and values as the last own layers have written them; others look at them.
struct SharedKv {
    std::array<Qkv, 2> written;  ///< k and v: without a window, with one
};
/// Attention of normed heads: q and k with weights, v without; keys and values of a layer of its own, or shared ones.
[[nodiscard]] Tensor gemma_attention(const BuildContext& b, const Inputs& in, int il, Tensor h, SharedKv& shared);
/// attn_q with its norm, attn_output; of own layers attn_k with its norm and attn_v, which of others are ignored.
/// v_optional: a layer without attn_v takes its raw keys.
void bind_gemma_attention(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, bool v_optional);

}  // namespace tinfer::model
