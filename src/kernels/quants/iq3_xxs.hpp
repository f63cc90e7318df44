// SPDX-License-Identifier: MIT
// IQ3_XXS: 256 values, four at a time from a codebook of 256 rows, with signs of even parity and a 4-bit scale per 32.
#pragma once

#include "kernels/quants/codebook.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: d f16 · 2: row numbers [64] · 66: u32 [8]: four 7-bit sign numbers, the scale on top;
/// y = d · (s + 1/2)/2 · ±value = d/4 · (2s + 1) · ±value
struct IQ3_XXS {
    static constexpr DType kType = DType::iq3_xxs;
    static constexpr int kBlockElems = 256, kBlockBytes = 98;
    static constexpr int kUnit = 256, kScaleElems = 32;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 62;  // |S| ≤ 256 · 62 · 127 · 31 < 2^26

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
        for (int ib = 0; ib < 8; ++ib) {
            const std::uint8_t* rows = block + 2 + 8 * ib;
            const std::uint32_t word = load_u32<Arch>(block + 66 + 4 * ib);
            for (int k = 0; k < 8; ++k) {
                const int signs = even_signs<Arch>(word >> 7 * (k / 2) & 127u) >> 4 * (k % 2);
                write_signed<Arch, 4>(kIq3XxsGrid[rows[k]], signs, out.q + 32 * ib + 4 * k);
            }
            out.scale[2 * ib] = out.scale[2 * ib + 1] = static_cast<std::int16_t>(2 * (word >> 28) + 1);
        }
        out.d = load_f16<Arch>(block) * 0.25f;
    }
};

}  // namespace tinfer::kernels
