// SPDX-License-Identifier: MIT
// IQ2_XXS: 256 values, eight at a time from a codebook of 256 rows, with signs of even parity and a 4-bit scale per 32.
#pragma once

#include "kernels/quants/codebook.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: d f16 · 2: per 32 values 8 bytes: four row numbers, then a word of four 7-bit sign numbers and the scale on top;
/// y = d · (s + 1/2)/4 · ±value = d/8 · (2s + 1) · ±value
struct IQ2_XXS {
    static constexpr DType kType = DType::iq2_xxs;
    static constexpr int kBlockElems = 256, kBlockBytes = 66;
    static constexpr int kUnit = 256, kScaleElems = 32;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 43;  // |S| ≤ 256 · 43 · 127 · 31 < 2^26

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
        for (int ib = 0; ib < 8; ++ib) {
            const std::uint8_t* rows = block + 2 + 8 * ib;
            const std::uint32_t word = load_u32<Arch>(rows + 4);
            for (int l = 0; l < 4; ++l) {
                const int signs = even_signs<Arch>(word >> 7 * l & 127u);
                write_signed<Arch, 8>(kIq2XxsGrid[rows[l]], signs, out.q + 32 * ib + 8 * l);
            }
            out.scale[2 * ib] = out.scale[2 * ib + 1] = static_cast<std::int16_t>(2 * (word >> 28) + 1);
        }
        out.d = load_f16<Arch>(block) * 0.125f;
    }
};

}  // namespace tinfer::kernels
