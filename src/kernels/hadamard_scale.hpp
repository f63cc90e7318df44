// SPDX-License-Identifier: MIT
// The factor of the normalized Hadamard transform, the same for the reference and every instruction set.
#pragma once

#include <cstdint>

namespace tinfer::kernels {

/// 1/sqrt(n) of a power of two, to the nearest float.
template <class Arch>
constexpr float hadamard_scale(std::int64_t n) noexcept {
    float scale = 1.0f;
    for (; n >= 4; n /= 4) scale *= 0.5f;
    return n == 2 ? scale * 0x1.6a09e6p-1f : scale;
}

}  // namespace tinfer::kernels
