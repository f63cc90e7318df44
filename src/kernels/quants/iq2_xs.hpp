// SPDX-License-Identifier: MIT
// IQ2_XS: 256 values, eight at a time from a codebook of 512 rows, with signs of even parity and a 4-bit scale per 16.
#pragma once

#include "kernels/quants/codebook.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: d f16 · 2: u16 [32]: row number in the low 9 bits, sign number above · 66: scales [8], low nibble first;
/// y = d/8 · (2s + 1) · ±value
struct IQ2_XS {
    static constexpr DType kType = DType::iq2_xs;
    static constexpr int kBlockElems = 256, kBlockBytes = 74;
    static constexpr int kUnit = 256, kScaleElems = 16;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 43;  // |S| ≤ 256 · 43 · 127 · 31 < 2^26

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
        for (int group = 0; group < 32; ++group) {
            const std::uint32_t word = load_u16<Arch>(block + 2 + 2 * group);
            write_signed<Arch, 8>(kIq2XsGrid[word & 511u], even_signs<Arch>(word >> 9), out.q + 8 * group);
        }
        for (int j = 0; j < 16; ++j)
            out.scale[j] = static_cast<std::int16_t>(2 * (block[66 + j / 2] >> j % 2 * 4 & 15) + 1);
        out.d = load_f16<Arch>(block) * 0.125f;
    }
};

}  // namespace tinfer::kernels
