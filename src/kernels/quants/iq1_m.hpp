// SPDX-License-Identifier: MIT
// IQ1_M: the codebook of IQ1_S with a 3-bit scale per 16 values and the sign of the shift per eight.
#pragma once

#include "kernels/quants/codebook.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: low bytes of the row numbers [32] · 32: nibbles [16]: three upper bits and the sign of the shift · 48: u16 [4]:
/// four 3-bit scales each, and in the top nibbles, lowest first, the four parts of d f16; y = d/8 · (2s + 1) · (8 ·
/// value ± 1)
struct IQ1_M {
    static constexpr DType kType = DType::iq1_m;
    static constexpr int kBlockElems = 256, kBlockBytes = 56;
    static constexpr int kUnit = 256, kScaleElems = 16;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 9;  // |S| ≤ 256 · 9 · 127 · 15 < 2^23

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
        for (int group = 0; group < 32; ++group) {
            const int nibble = block[32 + group / 2] >> group % 2 * 4 & 15;
            write_shifted<Arch>(kIq1Grid[block[group] | (nibble & 7) << 8], nibble & 8 ? -1 : 1, out.q + 8 * group);
        }
        std::uint32_t d = 0;
        for (int w = 0; w < 4; ++w) {
            const std::uint32_t word = load_u16<Arch>(block + 48 + 2 * w);
            for (int j = 0; j < 4; ++j) out.scale[4 * w + j] = static_cast<std::int16_t>(2 * (word >> 3 * j & 7u) + 1);
            d |= word >> 12 << 4 * w;
        }
        out.d = f16_to_f32<Arch>(static_cast<std::uint16_t>(d)) * 0.125f;
    }
};

}  // namespace tinfer::kernels
