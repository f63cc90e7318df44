// SPDX-License-Identifier: MIT
// What research asks of a response beside its text: the experts of its tokens, and scores of chosen tokens along its
// prompt.
#pragma once

#include <tinfer/tinfer.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fields.hpp"
#include "service.hpp"

namespace tinfer::server {

/// `return_routed_experts` and the fields beside it.
struct RoutedAsk {
    std::size_t start = 0;  ///< tokens that are left out at the begin
    bool is_flat = false;   ///< flat int32 numbers, at the top of the document
};

/// `prompt_logprob_token_ids` and the field beside it.
struct ScoredAsk {
    std::vector<tinfer::Token> tokens;
    std::size_t start = 0;
};

/// Nullopt where they are not asked for. Throws ApiError 400 where the server does not keep them, or the model has no
/// experts; `n_answers` is 0 where it is not known to be one.
[[nodiscard]] std::optional<RoutedAsk> read_routed(Fields& fields, const Service& service, int n_answers);
[[nodiscard]] std::optional<ScoredAsk> read_scored(Fields& fields, const Service& service, bool is_stream);

/// The experts of an answer as base64: a NumPy file {tokens, layers, experts of a token} of the least of uint8 and
/// uint16, or flat int32 numbers. The last token of the answer has none, because nothing was computed for it.
[[nodiscard]] std::string routed_text(const tinfer::EngineEvent& last, const RoutedAsk& ask);
/// Bytes of routed_text() at most.
[[nodiscard]] std::size_t routed_text_bytes(const tinfer::EngineEvent& last) noexcept;

/// Adds the rows of a prompt's tokens that were scored. Token i + 1 has row i; those of the first `start` are left out.
void add_scored(std::string& rows, const ScoredAsk& ask, std::size_t& n_seen,
                const std::vector<tinfer::TokenChoice>& prompt);
/// Such rows as base64 of a NumPy file {rows, tokens of the list} of float32.
[[nodiscard]] std::string scored_text(const ScoredAsk& ask, const std::string& rows);

}  // namespace tinfer::server
