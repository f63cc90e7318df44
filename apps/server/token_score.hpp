// SPDX-License-Identifier: MIT
// Log-probabilities of tokens as JSON.
#pragma once

#include <tinfer/tinfer.hpp>

#include <string>
#include <string_view>

#include "api_error.hpp"

namespace tinfer::server {

/// A log-probability; -9999 stands for -inf, which JSON does not have.
[[nodiscard]] Json finite(double value);
/// How a token is called in log-probabilities: by its bytes, or "token_id:5".
[[nodiscard]] std::string token_name(tinfer::Token token, std::string_view piece, bool by_id);
/// {"token", "logprob", "bytes", "top_logprobs"}, with at most `n_top` of the latter.
[[nodiscard]] Json token_score(const tinfer::Vocab& vocab, const tinfer::TokenChoice& token, int n_top,
                               bool by_ids = false);
/// The scores of a prompt's token by its id, and of the `n_top` most probable ones: {"5": {"logprob", "rank",
/// "decoded_token"}}; null for the first token.
[[nodiscard]] Json prompt_score(const tinfer::Vocab& vocab, const tinfer::TokenChoice& token, int n_top);

}  // namespace tinfer::server
