// SPDX-License-Identifier: MIT
// The seeded draw from the softmax.
#include <vector>

#include "sampling/candidates.hpp"
#include "sampling/draw.hpp"
#include "sampling/links.hpp"
#include "sampling/logit_row.hpp"

namespace tinfer::sampling {
namespace {

class Dist final : public RowLink {
public:
    Dist(std::size_t n_vocab, std::uint32_t seed, const RowOps& ops)
        : numbers_(seed), softmax_(n_vocab, ops), draw_(n_vocab) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "dist"; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<Dist>(*this); }

    void apply(CandidateArray& candidates) override {
        softmax_.apply(candidates.data);
        const auto p = [&](std::size_t i) { return candidates.data[i].p; };
        candidates.selected = draw_(candidates.data.size(), p, numbers_.next());
    }

    /// A sorted row would be summed in another order.
    [[nodiscard]] bool can_use(const LogitRow& row) const noexcept override {
        return row.best() >= 0 && !row.is_ordered();
    }

    Left apply_to_row(LogitRow& row, std::vector<Candidate>&, CandidateArray& candidates) override {
        const auto p = softmax_.apply(row);
        candidates.selected = draw_(
            p.size(), [&](std::size_t i) { return p[i]; }, numbers_.next());
        if (const auto i = static_cast<std::size_t>(candidates.selected); i < p.size())
            row.choose(static_cast<std::int32_t>(i), p[i]);
        return Left::row;
    }

    void reset() override { numbers_.reset(); }
    void undo() noexcept override { numbers_.undo(); }

private:
    UniformNumbers numbers_;
    Softmax softmax_;
    Draw draw_;
};

}  // namespace

LinkPtr make_dist(std::size_t n_vocab, std::uint32_t seed, const RowOps& ops) {
    return std::make_unique<Dist>(n_vocab, seed, ops);
}

}  // namespace tinfer::sampling
