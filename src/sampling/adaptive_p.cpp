// SPDX-License-Identifier: MIT
// Adaptive-p: prefers candidates whose probability is near a target, and moves the target so that the probabilities of
// the chosen tokens have that mean. Selects by itself, as the last link.
#include <algorithm>
#include <cmath>
#include <limits>

#include "sampling/candidates.hpp"
#include "sampling/draw.hpp"
#include "sampling/links.hpp"
#include "sampling/logit_row.hpp"

namespace tinfer::sampling {
namespace {

class AdaptiveP final : public ArrayLink {
public:
    AdaptiveP(std::size_t n_vocab, const AdaptiveOptions& options, std::uint32_t seed, const RowOps& ops)
        : options_(options), ops_(&ops), decay_(std::clamp(static_cast<double>(options.decay), 0.0, 0.99)),
          numbers_(seed), softmax_(n_vocab, ops), draw_(n_vocab) {
        if (!options.use_current) exponentials_.resize(n_vocab);
        start();
    }
    [[nodiscard]] std::string_view name() const noexcept override { return "adaptive_p"; }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<AdaptiveP>(*this); }

    void begin(std::span<const float> logits) override { raw_ = logits; }

    void apply(CandidateArray& candidates) override {
        softmax_.apply(candidates.data);
        if (options_.use_current) {
            before_.clear();
            for (const Candidate& candidate : candidates.data) before_.push_back(candidate.p);
        }
        const double target = adaptive_target(static_cast<double>(options_.target), now_.weighted_sum, now_.total);
        adaptive_transform(candidates, target);
        softmax_.apply(candidates.data);
        const auto p = [&](std::size_t i) { return candidates.data[i].p; };
        candidates.selected = draw_(candidates.data.size(), p, numbers_.next());
        if (candidates.selected < 0) return;
        const auto chosen = static_cast<std::size_t>(candidates.selected);
        const double q =
            options_.use_current ? static_cast<double>(before_[chosen]) : raw_p(candidates.data[chosen].id);
        last_ = now_;
        now_ = {decay_ * now_.weighted_sum + q, decay_ * now_.total + 1.0};
    }
    void reset() override {
        start();
        numbers_.reset();
    }
    void redraw() noexcept override { now_ = last_; }
    void undo() noexcept override {
        now_ = last_;
        numbers_.undo();
    }

private:
    struct Mean {
        double weighted_sum, total;
    };
    void start() {
        now_ = {static_cast<double>(options_.target) / (1.0 - decay_), 1.0 / (1.0 - decay_)};
        last_ = now_;
    }
    /// Probability of a token before any link ran.
    [[nodiscard]] double raw_p(std::int32_t id) {
        const float max = *std::ranges::max_element(raw_);
        const float logit = raw_[static_cast<std::size_t>(id)];
        if (max == std::numeric_limits<float>::infinity()) return logit == max ? 1.0 : 0.0;
        if (exponentials_.size() < raw_.size()) exponentials_.resize(raw_.size());
        const float sum = ops_->exp_sum16(raw_.data(), raw_.size(), max, exponentials_.data());
        return static_cast<double>(exponentials_[static_cast<std::size_t>(id)] / sum);
    }

    AdaptiveOptions options_;
    const RowOps* ops_;
    double decay_;
    Mean now_{}, last_{};
    std::span<const float> raw_;  // of the running draw
    std::vector<float> exponentials_, before_;
    UniformNumbers numbers_;
    Softmax softmax_;
    Draw draw_;
};

}  // namespace

double adaptive_target(double target, double weighted_sum, double total) noexcept {
    return total == 0.0 ? target : std::clamp(2.0 * target - weighted_sum / total, 0.0, 1.0);
}

void adaptive_transform(CandidateArray& candidates, double target) noexcept {
    for (Candidate& candidate : candidates.data) {
        if (candidate.logit == -std::numeric_limits<float>::infinity()) continue;
        const double x = std::abs(static_cast<double>(candidate.p) - target) / 0.3;
        candidate.logit = static_cast<float>(5.0 - 10.0 * x * x / (1.0 + x));
    }
    candidates.sorted = false;
}

LinkPtr make_adaptive_p(std::size_t n_vocab, const AdaptiveOptions& options, std::uint32_t seed, const RowOps& ops) {
    return std::make_unique<AdaptiveP>(n_vocab, options, seed, ops);
}

}  // namespace tinfer::sampling
