// SPDX-License-Identifier: MIT
// Log-probabilities of a token and of the most probable ones, from one pass over a row of logits.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tinfer/engine.hpp"

namespace tinfer::serving {

/// Works on rows of any length and keeps its memory. One thread at a time.
class LogProbs {
public:
    /// The token with its log-probability and the n most probable ones of a vocabulary of n_tokens, which may have
    /// fewer than there are logits. The same value as tinfer::log_prob, and -inf for tokens whose logit is. Throws
    /// non_finite_logits for logits that are NaN or +inf.
    [[nodiscard]] TokenChoice choice(std::span<const float> logits, Token token, std::size_t n, std::size_t n_tokens);

private:
    std::vector<std::int32_t> order_;
};

}  // namespace tinfer::serving
