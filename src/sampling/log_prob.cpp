// SPDX-License-Identifier: MIT
// Log-probabilities of a row of logits.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/fp_env.hpp"
#include "base/math.hpp"
#include "tinfer/sampling.hpp"

namespace tinfer {

// ln softmax(x)_t = x_t − max − ln Σ exp(x_i − max)
double log_prob(std::span<const float> logits, Token token) {
    return reporting_memory("log_prob: an allocation failed", [&] {
        const FpEnvironment guard;
        const auto id = static_cast<std::int32_t>(token);
        if (id < 0 || static_cast<std::size_t>(id) >= logits.size())
            fail(ErrorCode::index_out_of_range, cat("log_prob: token ", id, " of a row of ", logits.size()));
        const auto refuse = [&](std::size_t i) {
            fail(ErrorCode::non_finite_logits, cat("log_prob: logit of token ", i, " is ", logits[i]));
        };
        for (std::size_t i = 0; i < logits.size(); ++i)
            if (!(logits[i] <= std::numeric_limits<float>::max())) refuse(i);  // NaN, +inf
        if (!std::isfinite(logits[static_cast<std::size_t>(id)])) refuse(static_cast<std::size_t>(id));
        const double max = *std::ranges::max_element(logits);
        double sum = 0;
        for (const float logit : logits) sum += math::exp(static_cast<double>(logit) - max);
        return static_cast<double>(logits[static_cast<std::size_t>(id)]) - max - math::log(sum);
    });
}

}  // namespace tinfer
