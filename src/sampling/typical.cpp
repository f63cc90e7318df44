// SPDX-License-Identifier: MIT
// Locally typical sampling (arXiv:2202.00666): keeps the candidates whose information −ln p is nearest to its mean, the
// entropy, until they have mass p.
#include <algorithm>
#include <cmath>

#include "base/math.hpp"
#include "sampling/candidates.hpp"
#include "sampling/links.hpp"
#include "sampling/logit_row.hpp"

namespace tinfer::sampling {
namespace {

class Typical final : public ArrayLink {
public:
    Typical(std::size_t n_vocab, float p, int min_keep, const RowOps& ops)
        : p_(p), min_keep_(static_cast<std::size_t>(std::max(min_keep, 1))), softmax_(p < 1.0f ? n_vocab : 0, ops) {
        if (p < 1.0f) ranked_.reserve(n_vocab);
    }
    [[nodiscard]] std::string_view name() const noexcept override { return "typical_p"; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<Typical>(*this); }

    void apply(CandidateArray& candidates) override {
        if (is_off() || candidates.data.empty()) return;
        softmax_.apply(candidates.data);
        double entropy = 0;
        for (const Candidate& candidate : candidates.data)
            if (candidate.p > 0.0f) entropy += static_cast<double>(candidate.p) * information(candidate);
        ranked_.clear();
        for (const Candidate& candidate : candidates.data)
            ranked_.push_back({std::abs(information(candidate) - entropy), candidate});
        std::ranges::sort(ranked_, [](const Ranked& a, const Ranked& b) {
            if (a.distance != b.distance) return a.distance < b.distance;
            return a.candidate.p != b.candidate.p ? a.candidate.p > b.candidate.p : a.candidate.id < b.candidate.id;
        });
        double mass = 0;
        std::size_t kept = 0;
        while (kept < ranked_.size() && !(mass > p_ && kept >= min_keep_)) {
            mass += ranked_[kept].candidate.p;
            candidates.data[kept] = ranked_[kept].candidate;
            ++kept;
        }
        candidates.data = candidates.data.first(kept);
        candidates.sorted = false;
    }

private:
    struct Ranked {
        double distance;
        Candidate candidate;
    };
    [[nodiscard]] bool is_off() const noexcept override { return p_ >= 1.0f; }
    /// −ln p; +inf for probability 0.
    static double information(const Candidate& candidate) noexcept {
        return candidate.p > 0.0f ? -math::log(static_cast<double>(candidate.p)) : HUGE_VAL;
    }

    float p_;
    std::size_t min_keep_;
    Softmax softmax_;
    std::vector<Ranked> ranked_;
};

}  // namespace

LinkPtr make_typical(std::size_t n_vocab, float p, int min_keep, const RowOps& ops) {
    return std::make_unique<Typical>(n_vocab, p, min_keep, ops);
}

}  // namespace tinfer::sampling
