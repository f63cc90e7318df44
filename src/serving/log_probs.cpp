// SPDX-License-Identifier: MIT
#include "serving/log_probs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/fp_env.hpp"
#include "base/math.hpp"
#include "generation/ranking.hpp"

namespace tinfer::serving {

// ln softmax(x)_t = x_t − max − ln Σ exp(x_i − max)
TokenChoice LogProbs::choice(std::span<const float> logits, Token token, std::size_t n, std::size_t n_tokens,
                             std::span<const Token> also) {
    const FpEnvironment guard;
    const auto id = static_cast<std::size_t>(token);
    if (id >= logits.size())
        fail(ErrorCode::index_out_of_range, cat("log-probability of token ", id, " of a row of ", logits.size()));
    for (std::size_t i = 0; i < logits.size(); ++i)
        if (!(logits[i] <= std::numeric_limits<float>::max()))  // NaN, +inf
            fail(ErrorCode::non_finite_logits, cat("log-probabilities: logit of token ", i, " is ", logits[i]));
    const double max = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float logit : logits) sum += math::exp(static_cast<double>(logit) - max);
    const double log_sum = math::log(sum);
    const auto log_prob = [&](std::size_t i) { return static_cast<double>(logits[i]) - max - log_sum; };

    TokenChoice choice{.token = token, .piece = {}, .log_prob = log_prob(id), .top = {}};
    const float logit = logits[id];
    choice.rank = 1;
    for (std::size_t i = 0; i < std::min(logits.size(), n_tokens); ++i)
        choice.rank += logits[i] > logit || (logits[i] == logit && i < id) ? 1 : 0;
    for (const Token one : also) {
        const auto other = static_cast<std::size_t>(one);
        TINFER_ASSERT(other < logits.size());
        choice.asked.push_back(static_cast<float>(log_prob(other)));
    }
    if (n == 0) return choice;
    generation::top_ids(logits, n_tokens, n, ids_);
    for (const std::int32_t i : ids_) choice.top.emplace_back(Token{i}, log_prob(static_cast<std::size_t>(i)));
    return choice;
}

}  // namespace tinfer::serving
