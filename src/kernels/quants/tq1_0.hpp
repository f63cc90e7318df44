// SPDX-License-Identifier: MIT
// TQ1_0: 256 values −1, 0, 1 with one scale, five base-3 digits to a byte (1.69 bits per weight).
#pragma once

#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// Digit n of a byte, minus one. The byte is the fraction 0.d0 d1 d2 … in base 3, in 256ths rounded up: dropping what
/// is above the point after n multiplications by 3 leaves digit n first behind it.
template <class Arch>
constexpr std::int8_t base3_digit(int byte, int n) noexcept {
    constexpr int kPowers[5] = {1, 3, 9, 27, 81};
    const int fraction = byte * kPowers[n] & 255;
    return static_cast<std::int8_t>((fraction * 3 >> 8) - 1);
}

/// 0: bytes of five digits [48] · 48: bytes of four digits [4] · 52: d f16. Digit n of the bytes 0…31 gives the
/// elements from 32n on, of the bytes 32…47 those from 160 + 16n, of the last four those from 240 + 4n.
struct TQ1_0 {
    static constexpr DType kType = DType::tq1_0;
    static constexpr int kBlockElems = 256, kBlockBytes = 54;
    static constexpr int kUnit = 256, kScaleElems = 256;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 1;  // |S| ≤ 256 · 127 < 2^15

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
        for (int e = 0; e < 160; ++e) out.q[e] = base3_digit<Arch>(block[e % 32], e / 32);
        for (int e = 0; e < 80; ++e) out.q[160 + e] = base3_digit<Arch>(block[32 + e % 16], e / 16);
        for (int e = 0; e < 16; ++e) out.q[240 + e] = base3_digit<Arch>(block[48 + e % 4], e / 4);
        for (int j = 0; j < 16; ++j) out.scale[j] = 1;
        out.d = load_f16<Arch>(block + 52);
    }
};

}  // namespace tinfer::kernels
