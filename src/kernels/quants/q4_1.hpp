// SPDX-License-Identifier: MIT
// Q4_1: 32 values of 4 bits above a minimum, with one scale.
#pragma once

#include "kernels/quants/bit_layout.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: d f16 · 2: m f16 · 4: nibbles [16]; y = d · nibble + m
struct Q4_1 {
    static constexpr DType kType = DType::q4_1;
    static constexpr int kBlockElems = 32, kBlockBytes = 20;
    static constexpr int kUnit = 32, kScaleElems = 32;
    static constexpr bool kHasMin = true;
    static constexpr int kMaxCode = 15;  // |S| ≤ 32 · 15 · 127 < 2^16

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes32& out) noexcept {
        for (int e = 0; e < 32; ++e) out.q[e] = static_cast<std::int8_t>(nibble_of_32<Arch>(block + 4, e));
        out.d[0] = out.d[1] = load_f16<Arch>(block);
        out.m = load_f16<Arch>(block + 2);
    }
};

}  // namespace tinfer::kernels
