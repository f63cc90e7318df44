// SPDX-License-Identifier: MIT
// TQ2_0: 256 values −1, 0, 1 with one scale, two bits each. (The spare code means 2.)
#pragma once

#include "kernels/quants/bit_layout.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: bit pairs [64] · 64: d f16; y = d · (code − 1)
struct TQ2_0 {
    static constexpr DType kType = DType::tq2_0;
    static constexpr int kBlockElems = 256, kBlockBytes = 66;
    static constexpr int kUnit = 256, kScaleElems = 256;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 2;  // |S| ≤ 256 · 2 · 127 < 2^16

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
        for (int e = 0; e < 256; ++e) out.q[e] = static_cast<std::int8_t>(pair_of_256<Arch>(block, e) - 1);
        for (int j = 0; j < 16; ++j) out.scale[j] = 1;
        out.d = load_f16<Arch>(block + 64);
    }
};

}  // namespace tinfer::kernels
