// SPDX-License-Identifier: MIT
// IQ2_S: 256 values, eight at a time from a codebook of 1024 rows, with a free sign byte and a 4-bit scale per 16.
#pragma once

#include "kernels/quants/codebook.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: d f16 · 2: low bytes of the row numbers [32] · 34: signs [32] · 66: upper two bits [8] · 74: scales [8], low
/// nibble first; y = d/8 · (2s + 1) · ±value
struct IQ2_S {
    static constexpr DType kType = DType::iq2_s;
    static constexpr int kBlockElems = 256, kBlockBytes = 82;
    static constexpr int kUnit = 256, kScaleElems = 16;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 43;  // |S| ≤ 256 · 43 · 127 · 31 < 2^26

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
        for (int group = 0; group < 32; ++group) {
            const int high = block[66 + group / 4] >> 2 * (group % 4) & 3;
            write_signed<Arch, 8>(kIq2SGrid[block[2 + group] | high << 8], block[34 + group], out.q + 8 * group);
        }
        for (int j = 0; j < 16; ++j)
            out.scale[j] = static_cast<std::int16_t>(2 * (block[74 + j / 2] >> j % 2 * 4 & 15) + 1);
        out.d = load_f16<Arch>(block) * 0.125f;
    }
};

}  // namespace tinfer::kernels
