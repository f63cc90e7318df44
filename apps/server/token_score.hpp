// SPDX-License-Identifier: MIT
// Log-probabilities of tokens as JSON.
#pragma once

#include <tinfer/tinfer.hpp>

#include "api_error.hpp"

namespace tinfer::server {

/// A log-probability; -9999 stands for -inf, which JSON does not have.
[[nodiscard]] Json finite(double value);
/// {"token", "logprob", "bytes", "top_logprobs"}
[[nodiscard]] Json token_score(const tinfer::Vocab& vocab, const tinfer::TokenChoice& token);

}  // namespace tinfer::server
