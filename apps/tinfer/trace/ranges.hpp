// SPDX-License-Identifier: MIT
// Limits on the ranges of a trace, so that analyses of damaged files do not hang or exhaust memory.
#pragma once

#include <cstdint>

namespace tinfer::app {

/// Whether `count` disjoint pieces of `length` bytes, `stride` apart, lie within `size` bytes.
[[nodiscard]] bool is_inside(std::uint64_t offset, std::uint64_t length, std::uint64_t stride, std::uint32_t count,
                             std::uint64_t size);
/// Throws if an analysis would hold too many touches: a damaged file may claim any number.
void check_touches(std::uint64_t n);

}  // namespace tinfer::app
