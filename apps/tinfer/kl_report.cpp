// SPDX-License-Identifier: MIT
#include "kl_report.hpp"

#include <algorithm>
#include <cmath>

#include "logit_rows.hpp"

namespace tinfer::app {

namespace {

constexpr double kLeastLogProb = -16;  ///< less probable tokens are ignored

/// The p-quantile of sorted values, with linear interpolation.
double quantile(std::span<const double> sorted, double p) {
    const double place = p * double(sorted.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, sorted.size() - 1);
    return sorted[below] + (sorted[above] - sorted[below]) * (place - double(below));
}

double mean_of(std::span<const double> values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / double(values.size());
}

/// Sample covariance (over n - 1); of a sample with itself, its variance.
double covariance(std::span<const double> a, std::span<const double> b) {
    if (a.size() < 2) return 0;
    const double mean_a = mean_of(a), mean_b = mean_of(b);
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - mean_a) * (b[i] - mean_b);
    return sum / double(a.size() - 1);
}

MeanOfSample mean_with_error(std::span<const double> values) {
    return {mean_of(values), std::sqrt(covariance(values, values) / double(values.size()))};
}

}  // namespace

struct KlReport::Summary {
    MeanOfSample kl, log_ratio, delta, top;
    double rms_delta = 0, ppl = 0, ppl_base = 0;
    std::vector<double> kl_sorted, delta_sorted;
};

template <class LogProb>
void KlReport::add_row(const LogProb& base_log_prob, bool same_top, std::span<const float> logits, tinfer::Token next) {
    const double sum = log_sum_exp(logits);
    double kl = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const double log_p = base_log_prob(i);
        if (log_p > kLeastLogProb) kl += std::exp(log_p) * (log_p - (double(logits[i]) - sum));
    }
    kl_.push_back(kl);
    const auto id = static_cast<std::size_t>(next);
    nll_.push_back(sum - double(logits[id]));
    base_.push_back(-base_log_prob(id));
    same_top_ += same_top ? 1 : 0;
}

void KlReport::add(const BaseRow& base, std::span<const float> logits, tinfer::Token next) {
    std::uint16_t most_code = 0;
    std::size_t top = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        most_code = std::max(most_code, base.codes[i]);
        if (logits[i] > logits[top]) top = i;
    }
    // Rounded codes may tie at the top: then any of them counts as the base's choice.
    add_row([&](std::size_t i) { return base.log_prob(i); }, base.codes[top] == most_code, logits, next);
}

void KlReport::add(std::span<const float> base, std::span<const float> logits, tinfer::Token next) {
    const double sum = log_sum_exp(base);
    const bool same_top = std::max_element(base.begin(), base.end()) - base.begin() ==
                          std::max_element(logits.begin(), logits.end()) - logits.begin();
    add_row([&](std::size_t i) { return double(base[i]) - sum; }, same_top, logits, next);
}

MeanOfSample KlReport::mean() const { return mean_with_error(kl_); }

KlReport::Summary KlReport::summarize() const {
    Summary s;
    const auto n = double(kl_.size());
    s.kl = mean_with_error(kl_);
    s.kl_sorted = kl_;
    std::sort(s.kl_sorted.begin(), s.kl_sorted.end());
    const MeanOfSample ours = mean_with_error(nll_), theirs = mean_with_error(base_);
    s.ppl = std::exp(ours.mean);
    s.ppl_base = std::exp(theirs.mean);
    const double variance = covariance(nll_, nll_) + covariance(base_, base_) - 2 * covariance(nll_, base_);
    s.log_ratio = {ours.mean - theirs.mean, std::sqrt(std::max(variance, 0.0) / n)};
    double squares = 0;
    for (std::size_t i = 0; i < nll_.size(); ++i) {
        s.delta_sorted.push_back(std::exp(-nll_[i]) - std::exp(-base_[i]));
        squares += s.delta_sorted.back() * s.delta_sorted.back();
    }
    s.delta = mean_with_error(s.delta_sorted);
    s.rms_delta = std::sqrt(squares / n);
    std::sort(s.delta_sorted.begin(), s.delta_sorted.end());
    const double share = double(same_top_) / n;
    s.top = {share, kl_.size() < 2 ? 0 : std::sqrt(share * (1 - share) / (n - 1))};
    return s;
}

Json KlReport::to_json() const {
    const Summary s = summarize();
    const auto kl = [&](double p) { return quantile(s.kl_sorted, p); };
    const auto delta = [&](double p) { return quantile(s.delta_sorted, p); };
    return {{"mean_kl", s.kl.mean},
            {"error", s.kl.error},
            {"median", kl(0.5)},
            {"p90", kl(0.9)},
            {"p95", kl(0.95)},
            {"p99", kl(0.99)},
            {"p999", kl(0.999)},
            {"max", kl(1)},
            {"top1", s.top.mean},
            {"top1_error", s.top.error},
            {"ppl_base", s.ppl_base},
            {"ppl_ratio", std::exp(s.log_ratio.mean)},
            {"ln_ppl_ratio", s.log_ratio.mean},
            {"ln_ppl_ratio_error", s.log_ratio.error},
            {"delta_p",
             {{"mean", s.delta.mean},
              {"error", s.delta.error},
              {"rms", s.rms_delta},
              {"min", delta(0)},
              {"p1", delta(0.01)},
              {"p5", delta(0.05)},
              {"median", delta(0.5)},
              {"p95", delta(0.95)},
              {"p99", delta(0.99)},
              {"max", delta(1)}}}};
}

std::string KlReport::text() const {
    const Summary s = summarize();
    const auto kl = [&](double p) { return fixed(quantile(s.kl_sorted, p), 6); };
    const auto delta = [&](double p) { return fixed(100 * quantile(s.delta_sorted, p), 3); };
    return "KL        mean " + fixed(s.kl.mean, 6) + " ± " + fixed(s.kl.error, 6) + ", median " + kl(0.5) + ", 90 % " +
           kl(0.9) + ", 99 % " + kl(0.99) + ", 99.9 % " + kl(0.999) + ", largest " + kl(1) + "\n" +  //
           "base      PPL " + fixed(s.ppl_base, 4) + ", ratio " + fixed(std::exp(s.log_ratio.mean), 6) + ", its ln " +
           fixed(s.log_ratio.mean, 6) + " ± " + fixed(s.log_ratio.error, 6) + "\n" +  //
           "next      probability mean " + fixed(100 * s.delta.mean, 3) + " ± " + fixed(100 * s.delta.error, 3) +
           " points, RMS " + fixed(100 * s.rms_delta, 3) + ", 1 % " + delta(0.01) + ", 99 % " + delta(0.99) + "\n" +
           "same top  " + fixed(100 * s.top.mean, 2) + " ± " + fixed(100 * s.top.error, 2) + " %\n";
}

}  // namespace tinfer::app
