// SPDX-License-Identifier: MIT
// Keeps what lies within n standard deviations of the largest logit (arXiv:2411.07641): the noise of a row is near its
// mean whatever the temperature.
#include <cmath>
#include <limits>

#include "sampling/candidates.hpp"
#include "sampling/links.hpp"
#include "sampling/logit_row.hpp"

namespace tinfer::sampling {
namespace {

/// max − n · σ of n_logits logits, σ of the finite ones; −inf where there is none. An infinite logit wins alone.
template <class LogitAt>
float lowest_kept(std::size_t n_logits, LogitAt logit_at, float n) {
    double sum = 0;
    std::size_t n_finite = 0;
    float max = -std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < n_logits; ++i) {
        const float logit = logit_at(i);
        max = std::max(max, logit);
        if (!std::isfinite(logit)) continue;
        sum += static_cast<double>(logit);
        ++n_finite;
    }
    if (n_finite == 0 || std::isinf(max)) return max;
    const double mean = sum / static_cast<double>(n_finite);
    double squares = 0;
    for (std::size_t i = 0; i < n_logits; ++i)
        if (const auto logit = static_cast<double>(logit_at(i)); std::isfinite(logit))
            squares += (logit - mean) * (logit - mean);
    const double sigma = std::sqrt(squares / static_cast<double>(n_finite));
    return static_cast<float>(static_cast<double>(max) - static_cast<double>(n) * sigma);
}

class TopNSigma final : public RowLink {
public:
    explicit TopNSigma(float n) : n_(n) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "top_n_sigma"; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<TopNSigma>(*this); }

    void apply(CandidateArray& candidates) override {
        const std::span<Candidate> data = candidates.data;
        if (n_ <= 0.0f || data.size() <= 1) return;
        const auto logit_at = [&](std::size_t i) { return data[i].logit; };
        const float lowest = lowest_kept(data.size(), logit_at, n_);
        const auto end = std::remove_if(data.begin(), data.end(), [&](const Candidate& c) { return c.logit < lowest; });
        candidates.data = {data.begin(), end};
    }

    Left apply_to_row(LogitRow& row, std::vector<Candidate>& out, CandidateArray& candidates) override {
        if (n_ <= 0.0f || row.size() <= 1 || row.best() < 0) return Left::row;
        const auto logits = row.logits();
        row.collect(lowest_kept(
                        logits.size(), [&](std::size_t i) { return logits[i]; }, n_),
                    out);
        candidates.sorted = row.is_ordered();
        return Left::candidates;
    }

private:
    float n_;
};

}  // namespace

LinkPtr make_top_n_sigma(float n) { return std::make_unique<TopNSigma>(n); }

}  // namespace tinfer::sampling
