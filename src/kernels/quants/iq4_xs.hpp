// SPDX-License-Identifier: MIT
// IQ4_XS: the levels of IQ4_NL in 256 values: eight sub-blocks of 32, each with a signed 6-bit scale.
#pragma once

#include "kernels/quants/bit_layout.hpp"
#include "kernels/quants/codebook.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: d f16 · 2: upper two bits of the scales u16 · 4: their low nibbles [4] · 8: nibbles [128], 16 bytes for each 32
/// values
struct IQ4_XS {
    static constexpr DType kType = DType::iq4_xs;
    static constexpr int kBlockElems = 256, kBlockBytes = 136;
    static constexpr int kUnit = 256, kScaleElems = 32;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 127;  // |S| ≤ 256 · 127 · 127 · 32 < 2^27

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
        const int high = load_u16<Arch>(block + 2);
        for (int j = 0; j < 8; ++j) {
            for (int e = 0; e < 32; ++e) out.q[32 * j + e] = kIq4Levels[nibble_of_32<Arch>(block + 8 + 16 * j, e)];
            const int scale = (block[4 + j / 2] >> j % 2 * 4 & 15) | (high >> 2 * j & 3) << 4;
            out.scale[2 * j] = out.scale[2 * j + 1] = static_cast<std::int16_t>(scale - 32);
        }
        out.d = load_f16<Arch>(block);
    }
};

}  // namespace tinfer::kernels
