// SPDX-License-Identifier: MIT
// The seeded draw. std::mt19937 is specified to the bit and everything after it is our own arithmetic, so a seed draws
// the same tokens with every compiler and on every machine.
#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "sampling/candidates.hpp"
#include "sampling/links.hpp"
#include "sampling/logit_row.hpp"

namespace tinfer::sampling {
namespace {

/// u = (r0 + r1 · 2^32) / 2^64 in [0, 1) of two outputs. Not std::generate_canonical, whose rounding libraries differ
/// in.
double uniform(std::mt19937& generator) {
    const std::uint64_t low = generator(), high = generator();
    return static_cast<double>(high << 32 | low) * 0x1p-64;
}

/// Chooses by probabilities. The running sum is formed from the sums of blocks, which are independent of each other;
/// for one block it is the plain running sum.
class Draw {
public:
    explicit Draw(std::size_t n) : sums_(n_blocks(n)) {}

    /// The first of n probabilities p(i) > 0 whose running sum reaches u times the whole; -1 where there is none.
    template <class P>
    std::ptrdiff_t operator()(std::size_t n, P p, double u) {
        if (sums_.size() < n_blocks(n)) sums_.resize(n_blocks(n));
        double total = 0;
        for (std::size_t b = 0; b < n_blocks(n); ++b) {
            double sum = 0;
            for (std::size_t i = b * kBlock; i < std::min(n, (b + 1) * kBlock); ++i) sum += p(i);
            total += sums_[b] = sum;
        }
        const double target = u * total;
        std::ptrdiff_t chosen = -1;
        double before = 0;
        for (std::size_t b = 0; b < n_blocks(n); before += sums_[b++]) {
            if (before + sums_[b] < target && b + 1 < n_blocks(n)) continue;
            double sum = 0;
            for (std::size_t i = b * kBlock; i < std::min(n, (b + 1) * kBlock); ++i) {
                if (!(p(i) > 0.0f)) continue;
                chosen = static_cast<std::ptrdiff_t>(i);
                sum += p(i);
                if (before + sum >= target) return chosen;
            }
        }
        return chosen;
    }

private:
    static constexpr std::size_t kBlock = 64;
    static constexpr std::size_t n_blocks(std::size_t n) noexcept { return (n + kBlock - 1) / kBlock; }
    std::vector<double> sums_;  // grows only where there are more candidates than foreseen
};

class Dist final : public RowLink {
public:
    Dist(std::size_t n_vocab, std::uint32_t seed, const RowOps& ops)
        : seed_(seed), generator_(seed), softmax_(n_vocab, ops), draw_(n_vocab) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "dist"; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<Dist>(*this); }

    void apply(CandidateArray& candidates) override {
        softmax_.apply(candidates.data);
        const auto p = [&](std::size_t i) { return candidates.data[i].p; };
        candidates.selected = draw_(candidates.data.size(), p, next());
    }

    /// False for a sorted row: its candidates are summed in another order.
    [[nodiscard]] bool can_use(const LogitRow& row) const noexcept override {
        return row.best() >= 0 && !row.is_ordered();
    }

    Left apply_to_row(LogitRow& row, std::vector<Candidate>&, CandidateArray& candidates) override {
        const auto p = softmax_.apply(row);
        candidates.selected = draw_(
            p.size(), [&](std::size_t i) { return p[i]; }, next());
        if (const auto i = static_cast<std::size_t>(candidates.selected); i < p.size())
            row.choose(static_cast<std::int32_t>(i), p[i]);
        return Left::row;
    }

    void reset() override {
        generator_.seed(seed_);
        again_ = false;
    }
    void undo() noexcept override { again_ = true; }

private:
    double next() {
        if (!std::exchange(again_, false)) last_ = uniform(generator_);
        return last_;
    }

    std::uint32_t seed_;
    std::mt19937 generator_;
    double last_ = 0;     ///< the number of the last draw
    bool again_ = false;  ///< that draw was taken back: its number is the next one, too
    Softmax softmax_;
    Draw draw_;
};

}  // namespace

LinkPtr make_dist(std::size_t n_vocab, std::uint32_t seed, const RowOps& ops) {
    return std::make_unique<Dist>(n_vocab, seed, ops);
}

}  // namespace tinfer::sampling
