// SPDX-License-Identifier: MIT
// Limits on the ranges of a trace, so that no analysis of a damaged file hangs or runs out of memory.
#pragma once

#include <cstdint>

namespace cli {

/// Whether `count` pieces of `length` bytes, `stride` apart, lie in `size` bytes, apart from each other.
[[nodiscard]] bool is_inside(std::uint64_t offset, std::uint64_t length, std::uint64_t stride, std::uint32_t count,
                             std::uint64_t size);
/// What an analysis holds of a trace at most: a damaged file may ask for more than there is memory. Throws.
void check_touches(std::uint64_t n);

}  // namespace cli
