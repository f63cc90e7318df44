// SPDX-License-Identifier: MIT
// Sums over one row of logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

namespace tinfer::app {

/// ln Σ exp(logits), of finite values.
[[nodiscard]] inline double log_sum_exp(std::span<const float> logits) {
    const double most = double(*std::max_element(logits.begin(), logits.end()));
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double(logit) - most);
    return most + std::log(sum);
}

}  // namespace tinfer::app
