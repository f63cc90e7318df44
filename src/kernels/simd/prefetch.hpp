// SPDX-License-Identifier: MIT
// Requests for memory that a kernel will read, made early enough for memory to answer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simd/vec.hpp"

namespace tinfer::kernels {

/// Asks for memory that will be read soon, into the first level of the caches or the second. It may lie behind the file's or the
/// cache's end.
template <std::int64_t Bytes>
TINFER_INLINE void ask_for(const std::byte* p, bool near) noexcept {
    if (near) {
#pragma GCC unroll 4
        for (std::int64_t line = 0; line < Bytes; line += 64) __builtin_prefetch(p + line, 0, 3);
    } else {
#pragma GCC unroll 4
        for (std::int64_t line = 0; line < Bytes; line += 64) __builtin_prefetch(p + line, 0, 2);
    }
}

}  // namespace tinfer::kernels
