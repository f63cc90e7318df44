// SPDX-License-Identifier: MIT
// Binding what the shared blocks read (blocks.hpp), under the names most files use. A family calls those that fit and
// binds by hand what is its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "model/weights.hpp"

namespace tinfer::model {

using Bias = WeightBinder::Bias;

/// token_embd, output_norm, output (or the tied head), RoPE factors; room for the layers.
enum class Head : std::uint8_t { tied_if_missing, required, always_tied };
[[nodiscard]] Weights bind_globals(WeightBinder& binder, const HParams& hp, Head head = Head::tied_if_missing,
                                   Bias norm_bias = Bias::none);
[[nodiscard]] Weights bind_globals(WeightBinder& binder, const HParams& hp, Head head, const Norm& output_norm);

/// attn_qkv, or attn_q, attn_k and attn_v; attn_output.
void bind_attention(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, Bias qkv = Bias::none,
                    Bias out = Bias::none);
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

/// exp_probs_b must be there.
void require_choice_bias(const WeightBinder& binder, int il, const LayerWeights& w);
/// Experts where the layer has a router, else a gated feed-forward.
void bind_by_router(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w);
/// RoPE factors have no meaning here.
void refuse_factors(const WeightBinder& binder);
/// A norm's weight, stored with or without ".weight".
[[nodiscard]] Norm bare_norm(WeightBinder& binder, std::string_view name, WeightBinder::Shape shape);
/// The norms behind both branches, as bare_norm finds them.
void bind_bare_post_norms(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w);
/// attn_gate {n_embd, n_head} or {n_embd, n_head · head_dim_v}, by its shape; required.
void bind_attention_gate(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w);

/// Norms of a block: attn_norm and ffn_norm; attn_norm alone; post_attention_norm and post_ffw_norm; those four; before
/// each branch without weights, and behind the last layer too; the family's.
enum class BlockNorms : std::uint8_t { before, one, after, around, bare, own };
/// Norms of q and k: one for all heads {head_dim}, one a head {head_dim, n_head}, one over all {head_dim · n_head},
/// which has a bias where the block's norms have one. `per_head` takes biases as the file gives them.
enum class HeadNorms : std::uint8_t {
    none,
    shared,
    shared_if_given,
    per_head,
    per_head_if_given,
    whole,
    whole_if_given
};
/// Attention in the layers that have heads of keys and values; or the family's in all.
enum class Mixer : std::uint8_t { attention, own };
/// The bind_… of that name; `experts_if_any` is gated where the model has none.
enum class FeedForward : std::uint8_t {
    gated,
    fused,
    plain,
    experts,
    experts_if_any,
    dense_or_experts,
    by_router,
    own
};

/// What every block of a family reads; as it stands here, llama's without a bias.
struct BlockParts {
    BlockNorms norms = BlockNorms::before;
    std::string_view ffn_norm = "ffn_norm";  ///< stored under this name
    Bias norm_bias = Bias::none;
    Mixer mixer = Mixer::attention;
    Bias qkv_bias = Bias::none;
    Bias out_bias = Bias::none;
    HeadNorms head_norms = HeadNorms::none;
    FeedForward ffn = FeedForward::gated;
    Bias ffn_bias = Bias::none;  ///< of `fused`: ffn_down's; routed by count or by layer: of the dense ones
};

/// Biases at every norm and product, a feed-forward without a gate: GPT-2's block.
inline constexpr BlockParts kBiasedBlock{.norm_bias = Bias::required,
                                         .qkv_bias = Bias::required,
                                         .out_bias = Bias::required,
                                         .ffn = FeedForward::plain,
                                         .ffn_bias = Bias::required};
/// Biases at the products that have them in the file; experts where the model has any.
inline constexpr BlockParts kBiasesAsGiven{.qkv_bias = Bias::optional,
                                           .out_bias = Bias::optional,
                                           .ffn = FeedForward::experts_if_any,
                                           .ffn_bias = Bias::optional};

void bind_block(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, const BlockParts& parts);

/// What a block has beside its parts, bound after them.
using OwnParts = std::function<void(int il, LayerWeights& layer)>;
void bind_blocks(WeightBinder& binder, const HParams& hp, Weights& w, const BlockParts& parts,
                 const OwnParts& own = {});
/// bind_globals, with the bias of the block's norms at output_norm, and bind_blocks.
[[nodiscard]] Weights bind_stack(WeightBinder& binder, const HParams& hp, Head head, const BlockParts& parts = {},
                                 const OwnParts& own = {});

}  // namespace tinfer::model
