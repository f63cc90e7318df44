// SPDX-License-Identifier: MIT
// Q1_0: 128 signs with one magnitude.
#pragma once

#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: d f16 · 2: bits [16]; y = +d where the bit is set, else −d
struct Q1_0 {
    static constexpr DType kType = DType::q1_0;
    static constexpr int kBlockElems = 128, kBlockBytes = 18;
    static constexpr int kUnit = 32, kScaleElems = 32;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 1;  // |S| ≤ 32 · 1 · 127 < 2^12

    template <class Arch>
    static void unpack(const std::uint8_t* block, int unit, Codes32& out) noexcept {
        for (int e = 0; e < 32; ++e)
            out.q[e] = static_cast<std::int8_t>(2 * (block[2 + 4 * unit + e / 8] >> e % 8 & 1) - 1);
        out.d[0] = out.d[1] = load_f16<Arch>(block);
    }
};

}  // namespace tinfer::kernels
