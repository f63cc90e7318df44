// SPDX-License-Identifier: MIT
// The links a chain can be made of, one file each. Every one is a SamplerLink: it changes an array of candidates and
// has no other visible effect, save for the generator and the window it owns. `n_vocab` sizes scratch once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/row_ops.hpp"
#include "sampling/logit_row.hpp"
#include "tinfer/sampling.hpp"
#include "tinfer/text.hpp"

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

/// Temperature between t − range and t + range: low + (high − low) · (H / ln n)^exponent for n candidates of entropy H.
/// range <= 0: t.
[[nodiscard]] LinkPtr make_dynamic_temperature(std::size_t n_vocab, float t, float range, float exponent,
                                               const RowOps& ops = reference_row_ops);

/// Those within n standard deviations of the largest logit; n <= 0: nothing.
[[nodiscard]] LinkPtr make_top_n_sigma(float n);
/// The shortest list by ascending |−ln p − H| with mass above p and at least min_keep; p >= 1: nothing.
[[nodiscard]] LinkPtr make_typical(std::size_t n_vocab, float p, int min_keep, const RowOps& ops = reference_row_ops);

struct XtcOptions {
    float probability = 0.0f;  ///< of doing anything; 0: off
    float threshold = 0.1f;    ///< above 0.5: off
    int min_keep = 0;
};
[[nodiscard]] LinkPtr make_xtc(std::size_t n_vocab, const XtcOptions& options, std::uint32_t seed,
                               const RowOps& ops = reference_row_ops);

/// Sequences of tokens in which a text begins that ends repetitions.
class DryBreakers {
public:
    /// Of every text: the tokens that contain it, and those that end with a part of it, each with the tokens of the
    /// rest. Looks at every piece of the vocabulary.
    [[nodiscard]] static DryBreakers of(const Vocab& vocab, std::span<const std::string> texts);
    void add(std::vector<std::int32_t> sequence);
    [[nodiscard]] bool is_single(std::int32_t token) const;  ///< a breaker by itself
    /// Length of the longest sequence that begins with reversed[i] and goes on towards reversed[0]; 0: none.
    [[nodiscard]] std::size_t longest_at(std::span<const std::int32_t> reversed, std::size_t i) const;

private:
    std::unordered_map<std::int32_t, std::vector<std::vector<std::int32_t>>> by_first_;
};
struct DryOptions {
    float multiplier = 0.0f;  ///< 0: off
    float base = 1.75f;       ///< below 1: off
    int allowed_length = 2;   ///< of repetitions that cost nothing, in tokens
    int penalty_last_n = -1;  ///< tokens that are looked at, at most 65,536; 0: off, -1: as many
    int context_size = 0;     ///< bounds them, too; 0: does not
};
/// l −= multiplier · base^(length − allowed_length) for tokens that would extend a repetition of `length` tokens.
[[nodiscard]] LinkPtr make_dry(const DryOptions& options, std::shared_ptr<const DryBreakers> breakers);

/// Filling in the middle: ends rather than goes on where that is likely, and joins candidates of which one begins with
/// the other.
[[nodiscard]] LinkPtr make_infill(const Vocab& vocab, const RowOps& ops = reference_row_ops);

/// Selects the best; the array stays as it is.
[[nodiscard]] LinkPtr make_greedy();
/// Selects by a draw from the softmax. The seed is used as it is.
[[nodiscard]] LinkPtr make_dist(std::size_t n_vocab, std::uint32_t seed, const RowOps& ops = reference_row_ops);

struct MirostatOptions {
    int version = 2;
    float tau = 5.0f;  ///< mean surprise that is aimed at, in bits
    float eta = 0.1f;  ///< share of the error that mu moves by
    int m = 100;       ///< version 1: candidates from which the slope of probabilities is estimated
};
/// Cuts by surprise, draws and learns. The last link of a chain.
[[nodiscard]] LinkPtr make_mirostat(std::size_t n_vocab, const MirostatOptions& options, std::uint32_t seed,
                                    const RowOps& ops = reference_row_ops);
/// Candidates that version 1 keeps, before rounding down: of sorted candidates with p, of which it estimates s.
[[nodiscard]] double mirostat_k(std::span<const Candidate> sorted, double mu, std::size_t n_vocab);
/// What version 2 keeps of candidates with p: those of a surprise of at most mu, at least one, sorted.
void keep_surprise(CandidateArray& candidates, double mu);

struct AdaptiveOptions {
    float target = -1.0f;      ///< probability of chosen tokens that is aimed at
    float decay = 0.9f;        ///< of older tokens in the mean; at most 0.99
    bool use_current = false;  ///< the mean is of p before this link, not of the raw row
};
/// Prefers candidates with p near a target and draws. The last link of a chain.
[[nodiscard]] LinkPtr make_adaptive_p(std::size_t n_vocab, const AdaptiveOptions& options, std::uint32_t seed,
                                      const RowOps& ops = reference_row_ops);
/// What the next token should have for the mean to become `target`; and l = 5 − 10 x² / (1 + x) with
/// x = |p − target| / 0.3.
[[nodiscard]] double adaptive_target(double target, double weighted_sum, double total) noexcept;
void adaptive_transform(CandidateArray& candidates, double target) noexcept;

}  // namespace tinfer::sampling
