// SPDX-License-Identifier: MIT
// Temperature, and its limit at zero: the best candidate alone.
#include <cmath>
#include <limits>

#include "sampling/candidates.hpp"
#include "sampling/links.hpp"
#include "sampling/logit_row.hpp"

namespace tinfer::sampling {
namespace {

class Temperature final : public RowLink {
public:
    explicit Temperature(float t) : t_(t) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "temperature"; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<Temperature>(*this); }

    void apply(CandidateArray& candidates) override { apply_temperature(candidates, t_); }

    /// Different logits may become equal: a sorted row would have them in the order they had before.
    [[nodiscard]] bool can_use(const LogitRow& row) const noexcept override {
        return t_ > 0.0f && !row.is_ordered() && std::isfinite(row.max() / t_);
    }
    Left apply_to_row(LogitRow& row, std::vector<Candidate>&, CandidateArray&) override {
        if (t_ != 1.0f) row.divide(t_);
        return Left::row;
    }

private:
    float t_;
};

class Greedy final : public RowLink {
public:
    [[nodiscard]] std::string_view name() const noexcept override { return "greedy"; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<Greedy>(*this); }

    void apply(CandidateArray& candidates) override {
        Candidate* const best = best_candidate(candidates.data);
        if (best == nullptr) return;
        best->p = 1.0f;  // what this link gives it; the logits stay
        candidates.selected = best - candidates.data.data();
    }

    Left apply_to_row(LogitRow& row, std::vector<Candidate>&, CandidateArray& candidates) override {
        candidates.selected = row.best();
        if (row.best() >= 0) row.choose(row.best(), 1.0f);
        return Left::row;
    }
};

}  // namespace

void apply_temperature(CandidateArray& candidates, float t) {
    const Candidate* const best = best_candidate(candidates.data);
    if (best == nullptr) return;
    // An infinite logit wins alone, whether it came so or t is small enough to make it so.
    if (t <= 0.0f || !std::isfinite(best->logit / t)) {
        for (Candidate& candidate : candidates.data)
            if (&candidate != best) candidate.logit = -std::numeric_limits<float>::infinity();
        candidates.sorted = candidates.sorted && best == candidates.data.data();
        return;
    }
    for (Candidate& candidate : candidates.data) candidate.logit /= t;
}

LinkPtr make_temperature(float t) { return std::make_unique<Temperature>(t); }
LinkPtr make_greedy() { return std::make_unique<Greedy>(); }

}  // namespace tinfer::sampling
