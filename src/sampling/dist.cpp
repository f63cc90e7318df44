// SPDX-License-Identifier: MIT
// The seeded draw. std::mt19937 is specified to the bit and everything after it is our own arithmetic, so a seed draws
// the same tokens with every compiler and on every machine.
#include <random>

#include "sampling/candidates.hpp"
#include "sampling/links.hpp"

namespace tinfer::sampling {
namespace {

/// u = (r0 + r1 · 2^32) / 2^64 in [0, 1) of two outputs. Not std::generate_canonical, whose rounding libraries differ
/// in.
double uniform(std::mt19937& generator) {
    const std::uint64_t low = generator(), high = generator();
    return static_cast<double>(high << 32 | low) * 0x1p-64;
}

class Dist final : public SamplerLink {
public:
    Dist(std::size_t n_vocab, std::uint32_t seed, const RowOps& ops)
        : seed_(seed), generator_(seed), softmax_(n_vocab, ops) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "dist"; }
    [[nodiscard]] LinkPtr clone() const override { return std::make_unique<Dist>(*this); }

    /// The first candidate, in array order, whose running sum of p reaches u times the whole.
    void apply(CandidateArray& candidates) override {
        softmax_.apply(candidates.data);
        double total = 0;
        for (const Candidate& candidate : candidates.data) total += candidate.p;
        const double target = uniform(generator_) * total;
        double sum = 0;
        for (std::size_t i = 0; i < candidates.data.size(); ++i) {
            if (candidates.data[i].p <= 0.0f) continue;
            candidates.selected = static_cast<std::ptrdiff_t>(i);
            sum += candidates.data[i].p;
            if (sum >= target) return;
        }
    }

    void reset() override { generator_.seed(seed_); }

private:
    std::uint32_t seed_;
    std::mt19937 generator_;
    Softmax softmax_;
};

}  // namespace

LinkPtr make_dist(std::size_t n_vocab, std::uint32_t seed, const RowOps& ops) {
    return std::make_unique<Dist>(n_vocab, seed, ops);
}

}  // namespace tinfer::sampling
