// SPDX-License-Identifier: MIT
// MXFP4 (OCP Microscaling, v1.0): 32 values of FP4 E2M1 under one power-of-two scale.
#pragma once

#include "kernels/quants/bit_layout.hpp"
#include "kernels/quants/codebook.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: scale E8M0 · 1: nibbles [16]; y = half the scale · doubled FP4 value
struct MXFP4 {
    static constexpr DType kType = DType::mxfp4;
    static constexpr int kBlockElems = 32, kBlockBytes = 17;
    static constexpr int kUnit = 32, kScaleElems = 32;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 12;  // |S| ≤ 32 · 12 · 127 < 2^16

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes32& out) noexcept {
        for (int e = 0; e < 32; ++e) out.q[e] = kFp4Doubled[nibble_of_32<Arch>(block + 1, e)];
        out.d[0] = out.d[1] = e8m0_half<Arch>(block[0]);
    }
};

}  // namespace tinfer::kernels
