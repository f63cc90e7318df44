// SPDX-License-Identifier: MIT
// Kimi's delta attention (arXiv:2510.26692): a delta net with a convolution for each of q, k and v and one decay for
// each key of a head, beside layers of latent attention without positions.
#pragma once

#include "model/mla.hpp"
#include "model/recurrent.hpp"

namespace tinfer::model {

/// Keys that the families share: kinds of layers, latent attention, kda.head_dim, ssm.conv_kernel. RoPE is read for
/// its sizes, and stays or goes as the family says.
[[nodiscard]] HParams read_kimi(KeyReader& keys);
[[nodiscard]] inline bool is_delta_layer(const HParams& hp, int il) noexcept {
    return hp.n_head_kv[static_cast<std::size_t>(il)] == 0;
}

/// Maps of decays and of the output gate: through a narrow middle of kda.head_dim, or of full rank.
enum class Rank : std::uint8_t { low, full };
struct KimiParts {
    Rank decay = Rank::low, gate = Rank::low;
    std::string_view gate_name = "ssm_g_a";  ///< where its rank is full
    bool flat_rates = false;                 ///< ssm_a is {H}, not {1, H}
};
void bind_kimi_delta(WeightBinder& binder, const HParams& hp, int il, LayerWeights& w, const KimiParts& parts);

/// How the decay of a key follows from z = f(h) + bias and the head's rate a: γ = exp(a·softplus(z)),
/// exp(l·σ(a·z)) or exp(l·σ(−a·z)), l = kda.gate_lower_bound.
enum class Decay : std::uint8_t { open, bounded, bounded_negative };
[[nodiscard]] Tensor kimi_delta(const BuildContext& b, const Inputs& in, int il, Tensor h, Decay decay);

}  // namespace tinfer::model
