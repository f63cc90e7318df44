// SPDX-License-Identifier: MIT
// The fusion pass: which nodes of a graph share one step. The graph is not changed; the result is a partition of its
// nodes. Fusing changes no bit of any result (every fused kernel computes what its nodes say, in their order), hides no
// operand, and never crosses a result that somebody else needs.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "graph/graph.hpp"

namespace tinfer::graph {

inline constexpr std::size_t kMaxFused = 3;

/// The nodes that become one step. A group sits at the place of its last node, where everything it reads is there.
struct FusedGroup {
    Op op = Op::none;  ///< none: no step here (a view, or part of a later group)
    std::uint32_t n_nodes = 0;
    std::array<std::uint32_t, kMaxFused> nodes{};  ///< ascending; the last one is the group's own number
};

/// The ops a fused step stands for, in order; empty for steps of one node.
[[nodiscard]] std::span<const Op> fused_ops(Op step) noexcept;

/// Direct readers of a value; views count as readers.
struct ValueUses {
    std::uint32_t count = 0;
    std::uint32_t first = kNone;  ///< first node that reads the memory, through views too
};

/// Working memory of the pass, kept between plans.
struct Fusion {
    std::vector<FusedGroup> groups;  ///< per node
    std::vector<ValueUses> uses;     ///< per value

    void reserve(std::uint32_t max_nodes, std::uint32_t max_values);
    void run(const Graph& graph, bool fuse);
};

}  // namespace tinfer::graph
