// SPDX-License-Identifier: MIT
#include "sampling/logit_row.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/error.hpp"
#include "sampling/candidates.hpp"

namespace tinfer::sampling {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

void sort_and_cut(std::vector<Candidate>& out, std::size_t k) {
    CandidateArray candidates{out, -1, false};
    keep_front(candidates, k);
    out.resize(candidates.data.size());
}

constexpr std::size_t block_count(std::size_t n) noexcept { return (n + kRowBlock - 1) / kRowBlock; }

}  // namespace

LogitRow::LogitRow(const LogitRow& other) : ops_(other.ops_), is_ordered_(other.is_ordered_) {
    reserve(other.changed_.capacity());
    if (other.logits_.empty() || other.logits_.data() != other.changed_.data()) return;
    changed_ = other.changed_;
    maxima_ = other.maxima_;
    logits_ = changed_;
}

void LogitRow::reserve(std::size_t n) {
    changed_.reserve(n);
    maxima_.reserve(block_count(n));
    scratch_.reserve(block_count(n));
}

void LogitRow::assign(std::span<const float> logits) {
    if (logits.empty()) fail(ErrorCode::no_candidates, "a row of 0 logits has no candidate tokens");
    if (logits.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
        fail(ErrorCode::bad_parameter, cat("a row of ", logits.size(), " logits exceeds 31-bit token ids"));
    logits_ = logits;
    is_ordered_ = false;
    maxima_.resize(block_count(logits.size()));
    if (!ops_->block_max(logits.data(), logits.size(), maxima_.data())) return;
    const auto first = std::ranges::find_if(logits, [](float x) { return std::isnan(x); }) - logits.begin();
    fail(ErrorCode::non_finite_logits, cat("logit of token ", first, " is NaN"));
}

std::span<const float> LogitRow::block(std::size_t b) const noexcept {
    const std::size_t begin = b * kRowBlock;
    return logits_.subspan(begin, std::min(kRowBlock, size() - begin));
}

void LogitRow::hold() {
    if (logits_.data() == changed_.data()) return;
    changed_.assign(logits_.begin(), logits_.end());
    logits_ = changed_;
}

void LogitRow::divide(float t) {
    if (logits_.data() != changed_.data()) changed_.resize(size());
    std::ranges::transform(logits_, changed_.begin(), [t](float logit) { return logit / t; });
    logits_ = changed_;
    for (float& max : maxima_) max /= t;  // rounding keeps the order
}

void LogitRow::mask(std::span<const std::uint64_t> allowed) {
    hold();
    for (std::size_t b = 0; b < maxima_.size(); ++b) {
        float max = kLowest;
        for (std::size_t i = b * kRowBlock; i < std::min(size(), (b + 1) * kRowBlock); ++i) {
            const bool is_allowed = i / 64 < allowed.size() && (allowed[i / 64] >> (i % 64) & 1) != 0;
            if (!is_allowed) changed_[i] = kLowest;
            max = std::max(max, changed_[i]);
        }
        maxima_[b] = max;
    }
}

void LogitRow::set(std::size_t id, float logit) {
    hold();
    float& max = maxima_[id / kRowBlock];
    const bool was_max = changed_[id] == max;
    changed_[id] = logit;
    if (logit >= max) max = logit;
    else if (was_max) max = std::ranges::max(block(id / kRowBlock));
}

float LogitRow::max() const noexcept { return std::ranges::max(maxima_); }

std::int32_t LogitRow::best() const noexcept {
    const auto first = std::ranges::max_element(maxima_);
    if (*first == kLowest) return -1;
    const auto b = static_cast<std::size_t>(first - maxima_.begin());
    const auto within = std::ranges::find(block(b), *first) - block(b).begin();
    return static_cast<std::int32_t>(b * kRowBlock + static_cast<std::size_t>(within));
}

void LogitRow::collect(std::vector<Candidate>& out) const {
    out.resize(size());
    for (std::size_t i = 0; i < size(); ++i) out[i] = {static_cast<std::int32_t>(i), logits_[i], 0.0f};
    if (is_ordered_) sort_and_cut(out, size());
}

void LogitRow::collect(float threshold, std::vector<Candidate>& out) const {
    out.clear();
    for (std::size_t b = 0; b < maxima_.size(); ++b) {
        if (maxima_[b] < threshold) continue;
        auto id = static_cast<std::int32_t>(b * kRowBlock);
        for (const float logit : block(b)) {
            if (logit >= threshold) out.push_back({id, logit, 0.0f});
            ++id;
        }
    }
    if (is_ordered_) sort_and_cut(out, out.size());
}

// The k-th largest maximum of a block is a bound: at least k logits reach it, so a logit below it is not among the k
// largest.
void LogitRow::collect_front(std::size_t k, std::vector<Candidate>& out) {
    float bound = kLowest;
    if (k > 0 && k < maxima_.size()) {
        scratch_ = maxima_;
        const auto kth = scratch_.begin() + static_cast<std::ptrdiff_t>(k - 1);
        std::ranges::nth_element(scratch_, kth, std::greater<>());
        bound = *kth;
    }
    collect(bound, out);
    sort_and_cut(out, k);
}

}  // namespace tinfer::sampling
