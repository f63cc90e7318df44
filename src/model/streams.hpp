// SPDX-License-Identifier: MIT
// Several residual streams beside one another, of which a branch reads a mixture and to all of which it writes
// (hyper-connections, arXiv:2409.19606; with mixing matrices that are nearly doubly stochastic, arXiv:2512.24880).
#pragma once

#include "model/blocks.hpp"

namespace tinfer::model {

/// The streams of a token, {n · n_embd, T}, how a branch writes to them, {n, T}, and how they mix while it does,
/// {n · n, T}, a row for each stream that is written; absent where each stays what it is.
struct Streams {
    Tensor x, write, mix;
};

/// hyper_connection.count, .epsilon
void read_streams(KeyReader& keys, HParams& hp);
[[nodiscard]] StreamWeights bind_streams(WeightBinder& binder, const HParams& hp, std::string_view prefix,
                                         std::int64_t n_out, std::int64_t n_scale);
/// {n_embd, T} → {n · n_embd, T}: n copies of x, one per stream
[[nodiscard]] Tensor repeated(Graph& g, Tensor x, int n);
/// z = W·norm(x); read_i = σ(s0·z_i + b_i) + ε, h = Σ read_i·x_i; write_i = μ·σ(s1·z_{n+i} + b_{n+i});
/// mix = sinkhorn(s2·z_{2n…} + b_{2n…}), as far as z has so many numbers.
[[nodiscard]] Tensor mix_streams(const BuildContext& b, const StreamWeights& w, Streams& s);
/// x_i ← x_i + (write_i + ε)·y, or Σ_j mix_ij·x_j + write_i·y where they mix
void write_streams(const BuildContext& b, Streams& s, Tensor y);

}  // namespace tinfer::model
