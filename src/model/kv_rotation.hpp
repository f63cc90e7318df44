// SPDX-License-Identifier: MIT
// Heads multiplied by a Hadamard matrix before a cache of codes takes them (QuaRot, arXiv:2404.00456). Outliers of
// single channels, which would spoil the scale of the 32 around them, spread over the head. The matrix H is orthogonal
// and symmetric: ⟨H·q, H·k⟩ = ⟨q, k⟩, so queries are multiplied like keys; H·Σ p·(H·v) = Σ p·v, so what attention
// gives is multiplied once more.
//
// H covers blocks of the largest power of two that divides the head size. Nothing is multiplied where
// ContextOptions::kv_rotation is off, for caches of floats, for an indexer's keys, and where keys and values are the
// same vectors (compressed attention).
#pragma once

#include <cstdint>

#include "graph/graph.hpp"

namespace tinfer::model {

struct BuildContext;

/// Channels of a block: heads in caches of codes are multiples of 32.
[[nodiscard]] constexpr std::int32_t rotation_block(std::int32_t head_dim) noexcept { return head_dim & -head_dim; }

/// Keys or queries {head_dim_k, …} as the K cache of this context takes them.
[[nodiscard]] graph::Tensor hadamard_keys(const BuildContext& b, graph::Tensor x, const AttentionParams& p,
                                          std::string_view name);
/// The same of values {head_dim_v, …}.
[[nodiscard]] graph::Tensor hadamard_values(const BuildContext& b, graph::Tensor x, const AttentionParams& p,
                                            std::string_view name);
/// Undoes hadamard_values in the result of attention, {head_dim_v · n_head, T}. The returned tensor is called `name`;
/// the result of attention is called `name_in_cache` where the two differ.
[[nodiscard]] graph::Tensor undo_hadamard(const BuildContext& b, graph::Tensor x, const AttentionParams& p,
                                          std::string_view name, std::string_view name_in_cache);

}  // namespace tinfer::model
