// SPDX-License-Identifier: MIT
#include "sampling/candidates.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "sampling/logit_row.hpp"

namespace tinfer::sampling {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();

}  // namespace

void sort_front(std::span<Candidate> data, std::size_t k) noexcept {
    const auto middle = data.begin() + static_cast<std::ptrdiff_t>(std::min(k, data.size()));
    if (k * 8 <= data.size()) {  // one pass with a heap of k, which most candidates never enter
        std::partial_sort(data.begin(), middle, data.end(), comes_before);
        return;
    }
    if (k < data.size()) std::nth_element(data.begin(), middle, data.end(), comes_before);
    std::sort(data.begin(), middle, comes_before);
}

void keep_front(CandidateArray& candidates, std::size_t k) noexcept {
    k = std::min(k, candidates.data.size());
    if (!candidates.sorted) sort_front(candidates.data, k);
    while (k > 0 && candidates.data[k - 1].logit == kRemoved) --k;
    candidates.data = candidates.data.first(k);
    candidates.sorted = true;
}

Candidate* best_candidate(std::span<Candidate> data) noexcept {
    const auto best = std::ranges::min_element(data, comes_before);
    return best == data.end() || best->logit == kRemoved ? nullptr : &*best;
}

void Softmax::apply(std::span<Candidate> data) {
    const Candidate* const best = best_candidate(data);
    if (best == nullptr) fail(ErrorCode::no_candidates, "no candidate token is left");
    if (best->logit == std::numeric_limits<float>::infinity()) {
        for (Candidate& candidate : data) candidate.p = &candidate == best ? 1.0f : 0.0f;
        return;
    }
    if (values_.size() < data.size()) values_.resize(data.size());
    std::ranges::transform(data, values_.begin(), &Candidate::logit);
    const float sum = ops_->exp_sum16(values_.data(), data.size(), best->logit, values_.data());
    for (std::size_t i = 0; i < data.size(); ++i) data[i].p = values_[i] / sum;
}

std::span<const float> Softmax::apply(const LogitRow& row) {
    if (values_.size() < row.size()) values_.resize(row.size());
    const auto values = std::span(values_).first(row.size());
    if (row.max() == std::numeric_limits<float>::infinity()) {
        std::ranges::fill(values, 0.0f);
        values[static_cast<std::size_t>(row.best())] = 1.0f;
        return values;
    }
    const float sum = ops_->exp_sum16(row.logits().data(), row.size(), row.max(), values.data());
    for (float& value : values) value /= sum;
    return values;
}

}  // namespace tinfer::sampling
