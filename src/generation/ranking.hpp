// SPDX-License-Identifier: MIT
// The order of the tokens by a row of logits: larger ones first, equal ones by id. Only the first n_tokens of the row
// count, those of the vocabulary: rows of a padded embedding follow them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tinfer/base.hpp"

namespace tinfer::generation {

/// 1 for the first token of the order.
[[nodiscard]] inline int rank_of(std::span<const float> row, std::size_t n_tokens, Token token) {
    const auto own = static_cast<std::size_t>(token);
    int rank = 1;
    for (std::size_t i = 0; i < std::min(n_tokens, row.size()); ++i)
        if (row[i] > row[own] || (row[i] == row[own] && i < own)) ++rank;
    return rank;
}

/// The first n ids of the order, or all if there are fewer; `ids` keeps its memory.
inline void top_ids(std::span<const float> row, std::size_t n_tokens, std::size_t n, std::vector<std::int32_t>& ids) {
    ids.resize(std::min(n_tokens, row.size()));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
    n = std::min(n, ids.size());
    std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n), ids.end(),
                      [&](std::int32_t x, std::int32_t y) {
                          const float a = row[static_cast<std::size_t>(x)], b = row[static_cast<std::size_t>(y)];
                          return a != b ? a > b : x < y;
                      });
    ids.resize(n);
}
[[nodiscard]] inline std::vector<std::int32_t> top_ids(std::span<const float> row, std::size_t n_tokens,
                                                       std::size_t n) {
    std::vector<std::int32_t> ids;
    top_ids(row, n_tokens, n, ids);
    return ids;
}

}  // namespace tinfer::generation
