// SPDX-License-Identifier: MIT
// Filling in between a prefix and a suffix, for models with tokens for it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "job.hpp"

namespace tinfer::server {

/// Text around a gap.
struct Gap {
    std::string prefix, suffix;
    std::string prefix_field = "prompt", suffix_field = "suffix";  ///< names in the request, for errors
};

/// Whether the model has tokens for a gap.
[[nodiscard]] bool can_infill(const tinfer::Vocab& vocab);
/// [BOS] PRE prefix SUF suffix MID, at most `most` tokens of each text. The texts form no control tokens. Throws
/// ApiError 400 where the model has no such tokens, or for more tokens than that.
[[nodiscard]] std::vector<tinfer::Token> infill_tokens(const Service& service, const Gap& gap, std::size_t most);

}  // namespace tinfer::server
