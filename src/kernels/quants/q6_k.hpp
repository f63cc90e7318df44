// SPDX-License-Identifier: MIT
// Q6_K: 256 values of 6 bits around zero in sixteen sub-blocks, each with a signed 8-bit scale.
#pragma once

#include "kernels/quants/bit_layout.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: nibbles [128] · 128: upper bit pairs [64] · 192: scales int8 [16] · 208: d f16. Of each 128 values the first 64
/// have the low nibbles, the last 64 the high ones.
struct Q6_K {
    static constexpr DType kType = DType::q6_k;
    static constexpr int kBlockElems = 256, kBlockBytes = 210;
    static constexpr int kUnit = 256, kScaleElems = 16;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 32;  // |S| ≤ 256 · 32 · 127 · 128 < 2^27

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
        for (int e = 0; e < 256; ++e) {
            const int nibble = block[e / 128 * 64 + e % 64] >> (e % 128 / 64 * 4) & 15;
            out.q[e] = static_cast<std::int8_t>((nibble | pair_of_256<Arch>(block + 128, e) << 4) - 32);
        }
        for (int j = 0; j < 16; ++j) out.scale[j] = static_cast<std::int8_t>(block[192 + j]);
        out.d = load_f16<Arch>(block + 208);
    }
};

}  // namespace tinfer::kernels
