// SPDX-License-Identifier: MIT
// Keeps what is at least p times as probable as the best: a comparison of logits, so neither softmax nor sorting is
// needed.
#include <algorithm>

#include "base/math.hpp"
#include "sampling/candidates.hpp"
#include "sampling/links.hpp"
#include "sampling/logit_row.hpp"

namespace tinfer::sampling {
namespace {

class MinP final : public RowLink {
public:
    MinP(float p, int min_keep)
        : is_off_(p <= 0.0f), log_p_(is_off_ ? 0.0f : math::log(p)),
          min_keep_(static_cast<std::size_t>(std::max(min_keep, 0))) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "min_p"; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<MinP>(*this); }

    void apply(CandidateArray& candidates) override {
        const Candidate* const best = is_off_ ? nullptr : best_candidate(candidates.data);
        if (best == nullptr) return;
        const float threshold = best->logit + log_p_;
        const auto is_below = [threshold](const Candidate& candidate) { return candidate.logit < threshold; };
        const auto dropped = static_cast<std::size_t>(std::ranges::count_if(candidates.data, is_below));
        if (candidates.data.size() - dropped < min_keep_) {
            keep_front(candidates, min_keep_);
            return;
        }
        const auto end = std::remove_if(candidates.data.begin(), candidates.data.end(), is_below);
        candidates.data = {candidates.data.begin(), end};
    }

    Left apply_to_row(LogitRow& row, std::vector<Candidate>& out, CandidateArray& candidates) override {
        if (is_off_ || row.best() < 0) return Left::row;
        row.collect(row.max() + log_p_, out);
        const bool too_few = out.size() < min_keep_;
        if (too_few) row.collect_front(min_keep_, out);
        candidates.sorted = too_few || row.is_ordered();
        return Left::candidates;
    }

private:
    bool is_off_;
    float log_p_;
    std::size_t min_keep_;
};

}  // namespace

LinkPtr make_min_p(float p, int min_keep) { return std::make_unique<MinP>(p, min_keep); }

}  // namespace tinfer::sampling
