// SPDX-License-Identifier: MIT
// IQ3_S: 256 values, four at a time from a codebook of 512 rows, with a free sign byte per eight and a 4-bit scale per
// 32.
#pragma once

#include "kernels/quants/codebook.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: d f16 · 2: low bytes of the row numbers [64] · 66: their ninth bits [8] · 74: signs [32] · 106: scales [4], low
/// nibble first; y = d · (2s + 1) · ±value
struct IQ3_S {
    static constexpr DType kType = DType::iq3_s;
    static constexpr int kBlockElems = 256, kBlockBytes = 110;
    static constexpr int kUnit = 256, kScaleElems = 32;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 15;  // |S| ≤ 256 · 15 · 127 · 31 < 2^24

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
        for (int group = 0; group < 64; ++group) {
            const int high = block[66 + group / 8] >> group % 8 & 1;
            const int signs = block[74 + group / 2] >> 4 * (group % 2);
            write_signed<Arch, 4>(kIq3SGrid[block[2 + group] | high << 8], signs, out.q + 4 * group);
        }
        for (int ib = 0; ib < 8; ++ib) {
            const int s = block[106 + ib / 2] >> ib % 2 * 4 & 15;
            out.scale[2 * ib] = out.scale[2 * ib + 1] = static_cast<std::int16_t>(2 * s + 1);
        }
        out.d = load_f16<Arch>(block);
    }
};

}  // namespace tinfer::kernels
