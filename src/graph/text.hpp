// SPDX-License-Identifier: MIT
// How values and nodes are written in messages and exports: "attn_norm-0", "{32,5}",
// "mul_mat(blk.0.attn_q.weight {64,64}, attn_norm-0 {32,5})".
#pragma once

#include <span>
#include <string>

#include "graph/graph.hpp"

namespace tinfer::graph {

/// "attn_norm-0" for results of a layer; weights, caches and inputs have their own names. Not escaped.
[[nodiscard]] std::string name_of(const Value& value);
/// "{32,5}": extents after the last one above 1 are left out.
[[nodiscard]] std::string shape_text(const std::array<std::int64_t, 4>& ne);
/// Op, operands and shapes of a node; names escaped, absent operands as "-".
[[nodiscard]] std::string call_text(Op op, std::span<const std::uint32_t> inputs, std::span<const Value> values);

}  // namespace tinfer::graph
