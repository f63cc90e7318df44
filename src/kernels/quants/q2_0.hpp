// SPDX-License-Identifier: MIT
// Q2_0: 64 values of 2 bits, −1 … 2 times one scale.
#pragma once

#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: d f16 · 2: bit pairs [16], four elements to a byte; y = d · (code − 1)
struct Q2_0 {
    static constexpr DType kType = DType::q2_0;
    static constexpr int kBlockElems = 64, kBlockBytes = 18;
    static constexpr int kUnit = 32, kScaleElems = 32;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 2;  // |S| ≤ 32 · 2 · 127 < 2^13

    template <class Arch>
    static void unpack(const std::uint8_t* block, int unit, Codes32& out) noexcept {
        for (int e = 0; e < 32; ++e)
            out.q[e] = static_cast<std::int8_t>((block[2 + 8 * unit + e / 4] >> e % 4 * 2 & 3) - 1);
        out.d[0] = out.d[1] = load_f16<Arch>(block);
    }
};

}  // namespace tinfer::kernels
