// SPDX-License-Identifier: MIT
// Filling in between a prefix and a suffix, for models with tokens for it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "reply.hpp"

namespace tinfer::server {

/// Text around a gap.
struct Gap {
    std::string prefix, suffix;
    std::string prefix_field = "prompt", suffix_field = "suffix";  ///< names in the request, for errors
};

/// Whether the model has tokens for a gap.
[[nodiscard]] bool can_infill(const tinfer::Vocab& vocab);
/// [BOS] PRE prefix SUF suffix MID, or with ServeOptions::spm_infill [BOS] SUF suffix PRE prefix MID; at most `most`
/// tokens of each text. The texts form no control tokens. Throws ApiError 400 where the model has no such tokens, or
/// for more tokens than that.
[[nodiscard]] std::vector<tinfer::Token> infill_tokens(const Service& service, const Gap& gap, std::size_t most);

/// Reads a body of /infill, which is changed: adapters, which it numbers, get their names. Throws ApiError.
[[nodiscard]] Job read_infill(Json& body, const Service& service);
/// `body`: its response_fields are read.
[[nodiscard]] std::unique_ptr<Protocol> infill_protocol(const Service& service, const Job& job, const Json& body);

}  // namespace tinfer::server
