// SPDX-License-Identifier: MIT
// Mirostat (arXiv:2007.14966), versions 1 and 2: cuts the tail so that the surprise −log2 p of the chosen tokens has
// the mean tau, by feedback over mu, which bounds the surprise of a candidate.
#include <algorithm>
#include <cmath>

#include "base/math.hpp"
#include "sampling/candidates.hpp"
#include "sampling/draw.hpp"
#include "sampling/links.hpp"
#include "sampling/logit_row.hpp"

namespace tinfer::sampling {
namespace {

constexpr double kLn2 = 0x1.62e42fefa39efp-1;

/// Draws from what a version keeps and follows the error. A draw that is taken back leaves mu as it was before.
class Mirostat : public ArrayLink {
public:
    Mirostat(std::size_t n_vocab, const MirostatOptions& options, std::uint32_t seed, const RowOps& ops)
        : options_(options), mu_(2.0 * static_cast<double>(options.tau)), mu_before_(mu_), numbers_(seed),
          softmax_(n_vocab, ops), draw_(n_vocab) {}

    void apply(CandidateArray& candidates) override {
        softmax_.apply(candidates.data);
        keep(candidates);
        softmax_.apply(candidates.data);
        const auto p = [&](std::size_t i) { return candidates.data[i].p; };
        candidates.selected = draw_(candidates.data.size(), p, numbers_.next());
        if (candidates.selected < 0) return;
        const double chosen = candidates.data[static_cast<std::size_t>(candidates.selected)].p;
        mu_before_ = mu_;
        mu_ -= static_cast<double>(options_.eta) * (-math::log(chosen) / kLn2 - static_cast<double>(options_.tau));
    }
    void reset() override {
        mu_ = mu_before_ = 2.0 * static_cast<double>(options_.tau);
        numbers_.reset();
    }
    void redraw() noexcept override { mu_ = mu_before_; }
    void undo() noexcept override {
        mu_ = mu_before_;
        numbers_.undo();
    }

protected:
    virtual void keep(CandidateArray& candidates) = 0;  ///< with p set; sorts what stays
    const MirostatOptions options_;
    double mu_;

private:
    double mu_before_;
    UniformNumbers numbers_;
    Softmax softmax_;
    Draw draw_;
};

class Mirostat1 final : public Mirostat {
public:
    Mirostat1(std::size_t n_vocab, const MirostatOptions& options, std::uint32_t seed, const RowOps& ops)
        : Mirostat(n_vocab, options, seed, ops), n_vocab_(n_vocab) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "mirostat"; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<Mirostat1>(*this); }

protected:
    void keep(CandidateArray& candidates) override {
        const std::size_t n = candidates.data.size();
        const std::size_t n_head = std::min(n, static_cast<std::size_t>(options_.m));
        if (!candidates.sorted) sort_front(candidates.data, n_head);
        const double k = mirostat_k(candidates.data.first(n_head), mu_, n_vocab_);
        const std::size_t kept = std::isfinite(k) && k < static_cast<double>(n)
                                     ? std::max<std::size_t>(1, static_cast<std::size_t>(std::max(k, 0.0)))
                                     : n;
        keep_front(candidates, kept);
    }

private:
    std::size_t n_vocab_;
};

class Mirostat2 final : public Mirostat {
public:
    using Mirostat::Mirostat;
    [[nodiscard]] std::string_view name() const noexcept override { return "mirostat_v2"; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<Mirostat2>(*this); }

protected:
    void keep(CandidateArray& candidates) override { keep_surprise(candidates, mu_); }
};

}  // namespace

double mirostat_k(std::span<const Candidate> sorted, double mu, std::size_t n_vocab) {
    double tb = 0, tt = 0;
    for (std::size_t i = 0; i + 1 < sorted.size() && sorted[i + 1].p > 0.0f; ++i) {
        const auto rank = static_cast<double>(i + 1);
        const double t = math::log((rank + 1.0) / rank);
        tb += t * math::log(static_cast<double>(sorted[i].p) / static_cast<double>(sorted[i + 1].p));
        tt += t * t;
    }
    const double s = tb / tt, e = s - 1.0;
    const double k = e * math::exp2(mu) / (1.0 - math::pow(static_cast<double>(n_vocab), -e));
    return k > 0.0 ? math::pow(k, 1.0 / s) : k;
}

void keep_surprise(CandidateArray& candidates, double mu) {
    const auto is_above = [&](const Candidate& c) {
        return !(c.p > 0.0f) || -math::log(static_cast<double>(c.p)) / kLn2 > mu;
    };
    const auto above = static_cast<std::size_t>(std::ranges::count_if(candidates.data, is_above));
    keep_front(candidates, std::max<std::size_t>(1, candidates.data.size() - above));
}

LinkPtr make_mirostat(std::size_t n_vocab, const MirostatOptions& options, std::uint32_t seed, const RowOps& ops) {
    if (options.version == 1) return std::make_unique<Mirostat1>(n_vocab, options, seed, ops);
    return std::make_unique<Mirostat2>(n_vocab, options, seed, ops);
}

}  // namespace tinfer::sampling
