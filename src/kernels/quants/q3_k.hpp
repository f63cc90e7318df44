// SPDX-License-Identifier: MIT
// Q3_K: 256 values of 3 bits in sixteen sub-blocks, each with a signed 6-bit scale.
#pragma once

#include "kernels/quants/bit_layout.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: third bits [32] · 32: bit pairs [64] · 96: scales [12] · 108: d f16. A third bit that is clear takes 4 away.
struct Q3_K {
    static constexpr DType kType = DType::q3_k;
    static constexpr int kBlockElems = 256, kBlockBytes = 110;
    static constexpr int kUnit = 256, kScaleElems = 16;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 4;  // |S| ≤ 256 · 4 · 127 · 32 < 2^22

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
        const std::uint8_t* s = block + 96;
        for (int e = 0; e < 256; ++e) {
            const int code = pair_of_256<Arch>(block + 32, e) + 4 * bit_of_256<Arch>(block, e);
            out.q[e] = static_cast<std::int8_t>(code - 4);
        }
        for (int j = 0; j < 16; ++j) {  // low four bits in bytes 0…7, upper two in bytes 8…11
            const int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
            const int high = s[8 + j % 4] >> (2 * (j / 4)) & 3;
            out.scale[j] = static_cast<std::int16_t>((low | high << 4) - 32);
        }
        out.d = load_f16<Arch>(block + 108);
    }
};

}  // namespace tinfer::kernels
