// SPDX-License-Identifier: MIT
// Q2_K: 256 values of 2 bits in sixteen sub-blocks, each with a 4-bit scale and a 4-bit minimum.
#pragma once

#include "kernels/quants/bit_layout.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: scales and minima [16], scale in the low nibble · 16: bit pairs [64] · 80: d f16 · 82: dmin f16
struct Q2_K {
    static constexpr DType kType = DType::q2_k;
    static constexpr int kBlockElems = 256, kBlockBytes = 84;
    static constexpr int kUnit = 256, kScaleElems = 16;
    static constexpr bool kHasMin = true;
    static constexpr int kMaxCode = 3;  // |S| ≤ 256 · 3 · 127 · 15 < 2^21, |N| ≤ 16 · 15 · 16 · 127 < 2^19

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
        for (int e = 0; e < 256; ++e) out.q[e] = static_cast<std::int8_t>(pair_of_256<Arch>(block + 16, e));
        for (int j = 0; j < 16; ++j) {
            out.scale[j] = block[j] & 15;
            out.min[j] = block[j] >> 4;
        }
        out.d = load_f16<Arch>(block + 80);
        out.dmin = load_f16<Arch>(block + 82);
    }
};

}  // namespace tinfer::kernels
