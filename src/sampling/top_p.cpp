// SPDX-License-Identifier: MIT
// Nucleus sampling. Nothing is sorted whole. From a row, a histogram selects the candidates that are needed; of an
// unsorted array the front is sorted, in growing pieces, until its mass is enough.
#include <algorithm>
#include <array>
#include <limits>

#include "sampling/candidates.hpp"
#include "sampling/links.hpp"
#include "sampling/logit_row.hpp"

namespace tinfer::sampling {
namespace {

constexpr std::size_t kFirstPiece = 128, kGrowth = 8;

class TopP final : public RowLink {
public:
    TopP(std::size_t n_vocab, float p, int min_keep, const RowOps& ops)
        : p_(p), min_keep_(static_cast<std::size_t>(std::max(min_keep, 1))), softmax_(p < 1.0f ? n_vocab : 0, ops) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "top_p"; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<TopP>(*this); }

    void apply(CandidateArray& candidates) override {
        if (p_ >= 1.0f) return;
        softmax_.apply(candidates.data);
        const std::size_t n = candidates.data.size();
        for (std::size_t piece = candidates.sorted ? n : std::min(n, kFirstPiece);;
             piece = std::min(n, piece * kGrowth)) {
            if (!candidates.sorted) sort_front(candidates.data, piece);
            const std::size_t kept = prefix(candidates.data.first(piece));
            if (kept == 0 && piece < n) continue;
            candidates.data = candidates.data.first(kept == 0 ? n : kept);
            candidates.sorted = true;
            return;
        }
    }

    /// False for a sorted row: its candidates are summed in another order, which changes the last bits.
    [[nodiscard]] bool can_use(const LogitRow& row) const noexcept override { return p_ >= 1.0f || !row.is_ordered(); }

    Left apply_to_row(LogitRow& row, std::vector<Candidate>& out, CandidateArray& candidates) override {
        if (p_ >= 1.0f || row.best() < 0) return Left::row;
        candidates.sorted = true;
        const auto p = softmax_.apply(row);
        for (float bound = mass_bound(row, p);; bound = -std::numeric_limits<float>::infinity()) {
            row.collect(bound, out);
            std::ranges::sort(out, comes_before);
            for (Candidate& candidate : out) candidate.p = p[static_cast<std::size_t>(candidate.id)];
            const std::size_t kept = prefix(out);
            if (kept == 0 && out.size() < row.size()) continue;
            if (kept != 0) out.resize(kept);
            return Left::candidates;
        }
    }

private:
    /// How many candidates from the front it takes for mass p_ and min_keep_ in number; 0 where all are too few.
    [[nodiscard]] std::size_t prefix(std::span<const Candidate> sorted) const noexcept {
        double mass = 0;
        for (std::size_t i = 0; i < sorted.size(); ++i) {
            mass += sorted[i].p;
            if (mass >= p_ && i + 1 >= min_keep_) return i + 1;
        }
        return 0;
    }

    /// A threshold: the candidates with this logit or a larger one have mass p_ and number min_keep_. It is found by a
    /// histogram over the distance from the largest logit. The histogram's sums may differ from those of prefix() in
    /// the last bits; one more step covers that nearly always, and the caller tries again with all where it does not.
    [[nodiscard]] float mass_bound(const LogitRow& row, std::span<const float> p) const noexcept {
        constexpr std::size_t kSteps = 512;
        constexpr float kStepsPerUnit = 16.0f;  // 512 steps reach 32 below the largest logit, where nothing has mass
        const float max = row.max();
        std::array<double, kSteps> mass{};
        std::array<std::uint32_t, kSteps> count{};
        for (std::size_t i = 0; i < row.size(); ++i) {
            const float distance = (max - row.logits()[i]) * kStepsPerUnit;
            if (!(distance < static_cast<float>(kSteps))) continue;
            mass[static_cast<std::size_t>(distance)] += p[i];
            ++count[static_cast<std::size_t>(distance)];
        }
        double total = 0;
        std::size_t n = 0, step = 0;
        for (; step < kSteps && (total < p_ || n < min_keep_); ++step) {
            total += mass[step];
            n += count[step];
        }
        return max - static_cast<float>(step + 2) / kStepsPerUnit;
    }

    float p_;
    std::size_t min_keep_;
    Softmax softmax_;
};

}  // namespace

LinkPtr make_top_p(std::size_t n_vocab, float p, int min_keep, const RowOps& ops) {
    return std::make_unique<TopP>(n_vocab, p, min_keep, ops);
}

}  // namespace tinfer::sampling
