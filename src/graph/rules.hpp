// SPDX-License-Identifier: MIT
// What is legal for each op. The builder asks while a node is appended, the verifier afterwards: one table serves both.
#pragma once

#include <span>

#include "graph/graph.hpp"

namespace tinfer::graph {

/// The rule that a node breaks ("inner extents differ"), or null. All value ids must be in range.
[[nodiscard]] const char* broken_rule(const Node& node, std::span<const Value> values) noexcept;

/// Byte strides of a value without gaps.
[[nodiscard]] std::array<std::int64_t, 4> contiguous_strides(DType type,
                                                             const std::array<std::int64_t, 4>& ne) noexcept;

}  // namespace tinfer::graph
