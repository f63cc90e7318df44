// SPDX-License-Identifier: MIT
// Requests for memory that a kernel will read, made early enough for memory to answer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simd/vec.hpp"

namespace tinfer::kernels {

/// Prefetches memory that will be read soon, into L1 or L2. It may lie behind the file's or the
/// cache's end.
template <std::int64_t Bytes>
TINFER_INLINE void prefetch_lines(const std::byte* p, bool to_l1) noexcept {
#if defined(__aarch64__)
    to_l1 = false;  // of no processor is it known to be better (Processor)
#endif
    if (to_l1) {
#pragma GCC unroll 4
        for (std::int64_t line = 0; line < Bytes; line += 64) __builtin_prefetch(p + line, 0, 3);
    } else {
#pragma GCC unroll 4
        for (std::int64_t line = 0; line < Bytes; line += 64) __builtin_prefetch(p + line, 0, 2);
    }
}

}  // namespace tinfer::kernels
