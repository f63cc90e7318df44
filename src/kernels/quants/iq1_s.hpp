// SPDX-License-Identifier: MIT
// IQ1_S: 256 values, eight at a time from a codebook of 2048 rows of −1, 0, 1, shifted up or down by 1/8 per 32 values.
#pragma once

#include "kernels/quants/codebook.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: d f16 · 2: low bytes of the row numbers [32] · 34: u16 [8]: four times three upper bits, 3-bit scale, sign of the
/// shift; y = d · (2s + 1) · (value ± 1/8) = d/8 · (2s + 1) · (8 · value ± 1)
struct IQ1_S {
    static constexpr DType kType = DType::iq1_s;
    static constexpr int kBlockElems = 256, kBlockBytes = 50;
    static constexpr int kUnit = 256, kScaleElems = 32;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 9;  // |S| ≤ 256 · 9 · 127 · 15 < 2^23

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
        for (int ib = 0; ib < 8; ++ib) {
            const int word = load_u16<Arch>(block + 34 + 2 * ib);
            const int shift = word >> 15 ? -1 : 1;
            for (int l = 0; l < 4; ++l) {
                const int row = block[2 + 4 * ib + l] | (word >> 3 * l & 7) << 8;
                write_shifted<Arch>(kIq1Grid[row], shift, out.q + 32 * ib + 8 * l);
            }
            out.scale[2 * ib] = out.scale[2 * ib + 1] = static_cast<std::int16_t>(2 * (word >> 12 & 7) + 1);
        }
        out.d = load_f16<Arch>(block) * 0.125f;
    }
};

}  // namespace tinfer::kernels
