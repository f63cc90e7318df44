// SPDX-License-Identifier: MIT
// Log-probabilities of a token and of the most probable tokens, from a row of logits.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tinfer/engine.hpp"

namespace tinfer::serving {

/// Keeps its buffers between calls; not thread-safe.
class LogProbs {
public:
    /// The token with its log-probability, and the n most probable ones of a vocabulary of n_tokens, which may be fewer
    /// than there are logits. Values equal tinfer::log_prob; -inf if the logit is -inf. Throws non_finite_logits for
    /// logits that are NaN or +inf. `also`: further tokens whose values are wanted, below the number of logits.
    [[nodiscard]] TokenChoice choice(std::span<const float> logits, Token token, std::size_t n, std::size_t n_tokens,
                                     std::span<const Token> also = {});

private:
    std::vector<std::int32_t> ids_;
};

}  // namespace tinfer::serving
