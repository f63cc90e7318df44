// SPDX-License-Identifier: MIT
// Q8_0: 32 signed bytes with one scale. Quantizers never write −128, but files may hold it.
#pragma once

#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: d f16 · 2: codes int8 [32]; y = d · code
struct Q8_0 {
    static constexpr DType kType = DType::q8_0;
    static constexpr int kBlockElems = 32, kBlockBytes = 34;
    static constexpr int kUnit = 32, kScaleElems = 32;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 128;  // |S| ≤ 32 · 128 · 127 < 2^19

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes32& out) noexcept {
        for (int e = 0; e < 32; ++e) out.q[e] = static_cast<std::int8_t>(block[2 + e]);
        out.d[0] = out.d[1] = load_f16<Arch>(block);
    }
};

}  // namespace tinfer::kernels
