// SPDX-License-Identifier: MIT
// Q5_1: 32 values of 5 bits above a minimum, with one scale.
#pragma once

#include "kernels/quants/bit_layout.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: d f16 · 2: m f16 · 4: fifth bits u32, bit e of element e · 8: nibbles [16]; y = d · code + m
struct Q5_1 {
    static constexpr DType kType = DType::q5_1;
    static constexpr int kBlockElems = 32, kBlockBytes = 24;
    static constexpr int kUnit = 32, kScaleElems = 32;
    static constexpr bool kHasMin = true;
    static constexpr int kMaxCode = 31;  // |S| ≤ 32 · 31 · 127 < 2^17

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes32& out) noexcept {
        const std::uint32_t high = load_u32<Arch>(block + 4);
        for (int e = 0; e < 32; ++e) {
            const int code = nibble_of_32<Arch>(block + 8, e) | static_cast<int>(high >> e & 1u) << 4;
            out.q[e] = static_cast<std::int8_t>(code);
        }
        out.d[0] = out.d[1] = load_f16<Arch>(block);
        out.m = load_f16<Arch>(block + 2);
    }
};

}  // namespace tinfer::kernels
