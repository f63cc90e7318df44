// SPDX-License-Identifier: MIT
// Which slices of which tensors are in memory some of the time, and in how much memory (base/pager.hpp reads them).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tinfer/tensor.hpp"

namespace tinfer {

/// A tensor as the pager sees it: slices of equal size, one behind the other.
struct PagedSlices {
    std::string tensor;  ///< its name, for messages
    std::size_t file = 0;
    std::uint64_t offset = 0;  ///< of the first slice in its file
    std::uint64_t slice_bytes = 0;
    std::uint32_t id = 0;  ///< the caller's
};

/// What chooses a group's units: the largest products of these rows with a token's vector name them. It can be asked
/// before its turn, with the vector that the router before it has got.
struct PagedRouter {
    std::int64_t id = -1;  ///< of the tensor, the caller's; -1: there is none that can be asked
    DType type = DType::none;
    std::uint32_t n_in = 0, n_used = 0;
};

/// Tensors whose slices of one number are needed together. Unit u has slice u of each.
struct PagedGroup {
    std::vector<PagedSlices> tensors;
    std::uint32_t n_units = 0;
    std::int32_t layer = -1;
    PagedRouter router{};
};

/// What is paged, and in how much memory.
struct PagingPlan {
    std::vector<PagedGroup> groups;
    std::uint64_t limit = 0;           ///< that was asked for
    std::uint64_t resident_bytes = 0;  ///< of what is not paged
    std::uint64_t unit_bytes = 0;      ///< of the largest unit, with the pages that its ends share
    std::uint64_t fixed_bytes = 0;     ///< of the pager: tables, and buffers of its readers
    std::uint64_t slot_bytes = 0;      ///< for units: what the limit leaves
    std::uint32_t max_units = 0;       ///< of the largest group
    /// Each group is one tensor, and every pass needs all of them in the order of the groups. Else a step needs some
    /// units of its group.
    bool streamed = false;

    /// How many units of the largest size fit.
    [[nodiscard]] std::uint64_t n_slots() const noexcept { return unit_bytes > 0 ? slot_bytes / unit_bytes : 0; }
};

/// By id, of n tensors: whether it is paged. Null: none is.
[[nodiscard]] std::vector<bool> paged_tensors(std::size_t n, const PagingPlan* plan);
/// Bytes of memory that one unit of the group takes at most.
[[nodiscard]] std::uint64_t paged_unit_bytes(const PagedGroup& group) noexcept;

}  // namespace tinfer
