// SPDX-License-Identifier: MIT
// The token that a draft takes from a row of logits, and how probable it is.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

#include "tinfer/base.hpp"

namespace tinfer::runtime {

/// exp(max − log Σ exp): the probability of the best token, without the others'. Only the first n_tokens of the row
/// count, those of the vocabulary: rows of a padded embedding follow them.
struct BestToken {
    Token token{};
    float p = 0;
};
[[nodiscard]] inline BestToken best_token(std::span<const float> row, std::size_t n_tokens) {
    const auto logits = row.first(std::min(n_tokens, row.size()));
    std::size_t best = 0;
    for (std::size_t i = 1; i < logits.size(); ++i)
        if (logits[i] > logits[best]) best = i;
    float sum = 0;
    for (const float logit : logits)
        if (logit > logits[best] - 16.0f) sum += std::exp(logit - logits[best]);  // others are below 1e-7
    return {Token{static_cast<std::int32_t>(best)}, sum > 0 ? 1.0f / sum : 0.0f};
}

}  // namespace tinfer::runtime
