// SPDX-License-Identifier: MIT
// Nucleus sampling. An unsorted array is not sorted whole: the front is sorted in growing pieces until its mass is
// enough.
#include <algorithm>

#include "sampling/candidates.hpp"
#include "sampling/links.hpp"

namespace tinfer::sampling {
namespace {

constexpr std::size_t kFirstPiece = 128, kGrowth = 8;

class TopP final : public SamplerLink {
public:
    TopP(std::size_t n_vocab, float p, int min_keep)
        : p_(p), min_keep_(static_cast<std::size_t>(std::max(min_keep, 1))), softmax_(p < 1.0f ? n_vocab : 0) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "top_p"; }
    [[nodiscard]] LinkPtr clone() const override { return std::make_unique<TopP>(*this); }

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

private:
    /// Candidates until both conditions hold, 0 where they never do.
    [[nodiscard]] std::size_t prefix(std::span<const Candidate> sorted) const noexcept {
        double mass = 0;
        for (std::size_t i = 0; i < sorted.size(); ++i) {
            mass += sorted[i].p;
            if (mass >= p_ && i + 1 >= min_keep_) return i + 1;
        }
        return 0;
    }

    float p_;
    std::size_t min_keep_;
    Softmax softmax_;
};

}  // namespace

LinkPtr make_top_p(std::size_t n_vocab, float p, int min_keep) { return std::make_unique<TopP>(n_vocab, p, min_keep); }

}  // namespace tinfer::sampling
