// SPDX-License-Identifier: MIT
#include "generation/draft_length.hpp"

#include <algorithm>
#include <cmath>

namespace tinfer::generation {

namespace {

// In terms of a step of one token. The credit at the start and its growth bound what rejected tokens cost a text of n
// tokens: 1.5 + 0.008 n.
constexpr double kFirstCredit = 1.5, kCreditPerToken = 0.008, kMaxCredit = 12.0;
constexpr double kCostPerToken = 0.12;    // of a verification, until it is measured
constexpr std::size_t kFirstSize = 4;     // larger ones are tried once the next smaller one is measured
constexpr double kLeastGain = 1.03;       // what a verification has to promise
constexpr double kPriorWeight = 4.0;      // drafted tokens that what is expected of a degree counts for
constexpr double kSure = 0.9;             // of forced tokens: all that are known are verified at once
constexpr std::size_t kFirstForced = 15;  // of them, before any was right
// Times are noisy, and a step of one token that was measured too slow makes verifying look free: after so many times it
// is measured again.
constexpr int kMaxVerifications = 16;
constexpr double kOlder = 1.0 - 1.0 / 32, kSkipped = 1.0 - 1.0 / 64;

// Sizes of verifications: each has a plan of its own, and there are not many places for plans.
constexpr std::array<std::size_t, 11> kSizes{2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

constexpr std::array<double, DraftLength::kDegrees> kExpected{0.4, 0.55, 0.7, 0.75, 0.8, 0.85, 0.9, 0.9,  //
                                                              0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.85, 0.95};
constexpr double kExpectedOfHead = 0.7;

}  // namespace

double touched(const StepShape& shape, std::size_t n_tokens) noexcept {
    const double used = std::clamp(shape.experts_used, 1e-6, 1.0);
    const double of_union = (1.0 - std::pow(1.0 - used, static_cast<double>(n_tokens))) / used;
    return 1.0 - shape.expert_fraction + shape.expert_fraction * of_union;
}

void DraftLength::Mean::add(double value) noexcept {
    if (n == 0) seconds = value;
    else if (n < 4) seconds = std::min(seconds, value);  // the first ones make plans and warm caches
    else seconds += (std::min(value, 2 * seconds) - seconds) / 16;
    ++n;
}

// Measured, or from the nearest smaller one that is.
double DraftLength::cost(std::size_t n_tokens) const noexcept {
    const auto expected = [&](std::size_t n) {
        return plain_.seconds * (touched(shape_, n) + kCostPerToken * static_cast<double>(n - 1));
    };
    if (verifications_[n_tokens - 1].n > 0) return verifications_[n_tokens - 1].seconds;
    for (std::size_t n = n_tokens - 1; n > 1; --n)
        if (verifications_[n - 1].n > 0)
            return std::max(verifications_[n - 1].seconds,
                            verifications_[n - 1].seconds * expected(n_tokens) / expected(n));
    return expected(n_tokens);
}

double DraftLength::chance(int degree) const noexcept {
    const auto d = static_cast<std::size_t>(degree);
    return (kExpected[d] * kPriorWeight + degrees_[d].accepted) / (kPriorWeight + degrees_[d].tried);
}

double DraftLength::promise(int degree, std::size_t n) const noexcept {
    if (plain_.n == 0 || n == 0) return 1;
    const Choice choice = best(chance(degree), n);
    return choice.n == 0 ? 1 : choice.rate * plain_.seconds;
}

double DraftLength::promise_of_head(std::size_t n) const noexcept {
    if (plain_.n == 0) return 1;
    double accepted = kExpectedOfHead * kPriorWeight, tried = kPriorWeight;
    for (std::size_t d = kOfHead; d < kForced; ++d) {
        accepted += degrees_[d].accepted;
        tried += degrees_[d].tried;
    }
    const Choice choice = best(accepted / tried, n);
    return choice.n == 0 ? 1 : choice.rate * plain_.seconds;
}

DraftLength::Choice DraftLength::best(double chance, std::size_t n) const noexcept {
    std::size_t chosen = 0;
    double best_rate = kLeastGain / plain_.seconds, emitted = 1, power = 1;
    std::size_t n_drafted = 0;
    bool knows_smaller = true;
    for (const std::size_t size : kSizes) {
        if (size > n + 1 || (size > kFirstSize && !knows_smaller)) break;
        knows_smaller = verifications_[size - 1].n > 0;
        for (; n_drafted + 1 < size; ++n_drafted) emitted += power *= chance;
        const double seconds = cost(size);
        if (seconds - plain_.seconds > credit_) break;
        if (emitted / seconds > best_rate) {
            best_rate = emitted / seconds;
            chosen = size - 1;
        }
    }
    return {chosen, best_rate};
}

std::size_t DraftLength::wanted(std::size_t limit) const noexcept {
    if (plain_.n == 0 || credit_ <= asking_.seconds || n_verifications_ >= kMaxVerifications) return 0;
    double highest = 0;
    for (int degree = 0; degree < kForced; ++degree) highest = std::max(highest, chance(degree));
    return best(highest, limit).n;
}

std::size_t DraftLength::worth(int degree, std::size_t n) noexcept {
    if (n == 0) return 0;
    if (degree == kForced && chance(kForced) >= kSure)
        return std::min({n, verifications_.size() - 1, degrees_[kForced].accepted > 0 ? n : kFirstForced});
    if (plain_.n == 0) return 0;
    const std::size_t chosen = best(chance(degree), n).n;
    if (chosen == 0) {
        Degree& d = degrees_[static_cast<std::size_t>(degree)];
        d.accepted *= kSkipped;
        d.tried *= kSkipped;
    }
    return chosen;
}

void DraftLength::note_plain(double seconds, double asking) noexcept {
    const bool is_first = plain_.n == 0;
    n_verifications_ = 0;
    if (asking > 0) asking_.add(asking);
    plain_.add(seconds - asking);
    credit_ += (is_first ? kFirstCredit : kCreditPerToken) * plain_.seconds - asking;
    credit_ = std::min(credit_, kMaxCredit * plain_.seconds);
}

void DraftLength::note_verification(int degree, std::size_t n, std::size_t n_accepted, double seconds) noexcept {
    const std::size_t n_tokens = std::min(n + 1, verifications_.size());
    ++n_verifications_;
    verifications_[n_tokens - 1].add(seconds);
    Degree& d = degrees_[static_cast<std::size_t>(degree)];
    d.accepted = d.accepted * kOlder + static_cast<double>(n_accepted);
    d.tried = d.tried * kOlder + static_cast<double>(std::min(n, n_accepted + 1));
    if (plain_.n == 0) return;  // what a step of one token takes is not known
    plain_.seconds =
        std::min(plain_.seconds, verifications_[n_tokens - 1].seconds);  // it takes no more than a verification does
    credit_ += (static_cast<double>(n_accepted + 1) + kCreditPerToken) * plain_.seconds - seconds;
    credit_ = std::min(credit_, kMaxCredit * plain_.seconds);
}

}  // namespace tinfer::generation
