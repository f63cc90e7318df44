// SPDX-License-Identifier: MIT
// Seeded numbers and draws, for every link that draws. std::mt19937 is specified to the bit and everything after it is
// our own arithmetic, so a seed draws the same tokens with every compiler and on every machine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace tinfer::sampling {

/// u = (r0 + r1 · 2^32) / 2^64 in [0, 1) of two outputs. Not std::generate_canonical, whose rounding libraries differ
/// in.
inline double uniform(std::mt19937& generator) {
    const std::uint64_t low = generator(), high = generator();
    return static_cast<double>(high << 32 | low) * 0x1p-64;
}

/// A choice by probabilities. Their running sum goes by blocks, whose own sums do not wait for one another; up to a
/// block it is the plain one.
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

/// Uniform numbers of one seed. A number can be taken back: then it is the next one, too.
class UniformNumbers {
public:
    explicit UniformNumbers(std::uint32_t seed) : seed_(seed), generator_(seed) {}
    double next() {
        if (!std::exchange(again_, false)) last_ = uniform(generator_);
        return last_;
    }
    void undo() noexcept { again_ = true; }
    void reset() {
        generator_.seed(seed_);
        again_ = false;
    }

private:
    std::uint32_t seed_;
    std::mt19937 generator_;
    double last_ = 0;
    bool again_ = false;
};

}  // namespace tinfer::sampling
