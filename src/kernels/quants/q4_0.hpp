// SPDX-License-Identifier: MIT
// Q4_0: 32 values of 4 bits around zero with one scale, the oldest format still in use.
#pragma once

#include "kernels/quants/bit_layout.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: d f16 · 2: nibbles [16]; y = d · (nibble − 8)
struct Q4_0 {
    static constexpr DType kType = DType::q4_0;
    static constexpr int kBlockElems = 32, kBlockBytes = 18;
    static constexpr int kUnit = 32, kScaleElems = 32;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 8;  // |S| ≤ 32 · 8 · 127 < 2^15

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes32& out) noexcept {
        for (int e = 0; e < 32; ++e) out.q[e] = static_cast<std::int8_t>(nibble_of_32<Arch>(block + 2, e) - 8);
        out.d[0] = out.d[1] = load_f16<Arch>(block);
    }
};

}  // namespace tinfer::kernels
