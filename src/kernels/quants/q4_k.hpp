// SPDX-License-Identifier: MIT
// Q4_K: 256 values of 4 bits in eight sub-blocks of 32, each with a 6-bit scale and a 6-bit minimum. The main type of
// Q4_K_M files.
#pragma once

#include "kernels/quants/bit_layout.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// The 12 bytes that Q4_K and Q5_K share: eight 6-bit scales and eight 6-bit minima. The first four of each fill the
/// low six bits of bytes 0…7; the last four have their low nibbles in bytes 8…11 and their top bits in what bytes 0…7
/// leave.
template <class Arch>
constexpr void unpack_scales_and_mins(const std::uint8_t* s, Codes256& out) noexcept {
    for (int j = 0; j < 8; ++j) {
        const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        const int min = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4;
        out.scale[2 * j] = out.scale[2 * j + 1] = static_cast<std::int16_t>(scale);
        out.min[2 * j] = out.min[2 * j + 1] = static_cast<std::int16_t>(min);
    }
}

/// 0: d f16 · 2: dmin f16 · 4: scales and minima [12] · 16: nibbles [128], 32 bytes for each 64 values, low ones first
struct Q4_K {
    static constexpr DType kType = DType::q4_k;
    static constexpr int kBlockElems = 256, kBlockBytes = 144;
    static constexpr int kUnit = 256, kScaleElems = 32;
    static constexpr bool kHasMin = true;
    static constexpr int kMaxCode = 15;  // |S| ≤ 256 · 15 · 127 · 63 < 2^25, |N| ≤ 16 · 63 · 16 · 127 < 2^21

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
        for (int e = 0; e < 256; ++e) out.q[e] = static_cast<std::int8_t>(nibble_of_256<Arch>(block + 16, e));
        (unpack_scales_and_mins<Arch>)(block + 4, out);  // of this namespace: the single header has several
        out.d = load_f16<Arch>(block);
        out.dmin = load_f16<Arch>(block + 2);
    }
};

}  // namespace tinfer::kernels
