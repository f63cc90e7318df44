// SPDX-License-Identifier: MIT
// What a node must read and write, from the meaning of its op alone: the second, independent opinion that coverage
// checks compare with the kernels' declarations. Nothing here looks at a kernel.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tinfer/trace.hpp"

namespace tinfer::trace {

/// Bytes of one tensor, as sorted disjoint intervals [begin, end).
struct ByteSet {
    struct Interval {
        std::uint64_t begin, end;
        bool operator==(const Interval&) const = default;
    };
    std::vector<Interval> intervals;
    void add(std::uint64_t begin, std::uint64_t end);  ///< any order; call normalize() before comparing
    void normalize();
    [[nodiscard]] std::uint64_t bytes() const noexcept;
    bool operator==(const ByteSet&) const = default;
};

struct ExpectedAccess {
    const TensorInfo* tensor = nullptr;
    AccessMode mode = AccessMode::read;
    ByteSet set;
};

/// Bytes of an i32 input of a node (ids, slots, tables, routing), by its TensorInfo; empty when unknown.
using DataOf = std::function<std::span<const std::byte>(const TensorInfo&)>;

/// Appends every access of the node. `data` must know the inputs that select rows: token ids, slots, kv tables,
/// experts.
void expect(const NodeView& node, const DataOf& data, std::vector<ExpectedAccess>& out);

/// Unique bytes of weights among the accesses of one step's nodes.
[[nodiscard]] std::uint64_t weight_bytes(std::span<const ExpectedAccess> accesses);

}  // namespace tinfer::trace
