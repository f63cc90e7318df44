// SPDX-License-Identifier: MIT
// The links a chain can be made of, one file each. Every one is a SamplerLink: it changes an array of candidates and
// has no other visible effect, save for the generator and the window it owns. `n_vocab` sizes scratch once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/row_ops.hpp"
#include "sampling/logit_row.hpp"
#include "tinfer/sampling.hpp"

namespace tinfer::sampling {

using LinkPtr = std::unique_ptr<RowLink>;

/// l += bias for each (id, bias), in order; -infinity bans. Ids that are no candidates are ignored.
[[nodiscard]] LinkPtr make_logit_bias(std::vector<std::pair<Token, float>> biases);

/// Window of accepted tokens and what being in it costs.
struct PenaltyOptions {
    int last_n = 64;         ///< tokens; 0: off, -1: all since the last reset
    float repeat = 1.0f;     ///< arXiv:1909.05858 §4.1
    float frequency = 0.0f;  ///< subtracted per occurrence
    float presence = 0.0f;   ///< subtracted once
};
/// For a token with count c > 0 in the window: l = l > 0 ? l / repeat : l · repeat, then l −= c · frequency + presence.
[[nodiscard]] LinkPtr make_penalties(std::size_t n_vocab, const PenaltyOptions& options);

/// The k most probable, sorted; k <= 0: all, sorted.
[[nodiscard]] LinkPtr make_top_k(int k);
/// The shortest sorted prefix with mass >= p and at least min_keep tokens (arXiv:1904.09751 §3.1); p >= 1: nothing.
[[nodiscard]] LinkPtr make_top_p(std::size_t n_vocab, float p, int min_keep, const RowOps& ops = reference_row_ops);
/// Those with l >= l_max + ln p, or the min_keep best if that is more (arXiv:2407.01082); p <= 0: nothing.
[[nodiscard]] LinkPtr make_min_p(float p, int min_keep);
/// l /= t; t <= 0: the best alone.
[[nodiscard]] LinkPtr make_temperature(float t);

/// Selects the best; the array stays as it is.
[[nodiscard]] LinkPtr make_greedy();
/// Selects by a draw from the softmax. The seed is used as it is.
[[nodiscard]] LinkPtr make_dist(std::size_t n_vocab, std::uint32_t seed, const RowOps& ops = reference_row_ops);

}  // namespace tinfer::sampling
