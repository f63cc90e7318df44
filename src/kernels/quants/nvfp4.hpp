// SPDX-License-Identifier: MIT
// NVFP4: 64 values of FP4 E2M1 in sub-blocks of 16, each with a UE4M3 scale. (The scale per tensor that files may carry
// beside it belongs to the model, not to the block.)
#pragma once

#include "kernels/quants/codebook.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: scales UE4M3 [4] · 4: nibbles [32], 8 bytes for each 16 values, low ones first. A unit is two sub-blocks.
struct NVFP4 {
    static constexpr DType kType = DType::nvfp4;
    static constexpr int kBlockElems = 64, kBlockBytes = 36;
    static constexpr int kUnit = 32, kScaleElems = 16;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 12;  // per 16 values: |S| ≤ 16 · 12 · 127 < 2^15

    template <class Arch>
    static void unpack(const std::uint8_t* block, int unit, Codes32& out) noexcept {
        for (int e = 0; e < 32; ++e) {
            const int byte = block[4 + 16 * unit + e / 16 * 8 + e % 8];
            out.q[e] = kFp4Doubled[e % 16 < 8 ? byte & 15 : byte >> 4];
        }
        for (int half = 0; half < 2; ++half) out.d[half] = ue4m3_half<Arch>(block[2 * unit + half]);
    }
};

}  // namespace tinfer::kernels
