// SPDX-License-Identifier: MIT
// Q5_K: Q4_K with a fifth bit per value.
#pragma once

#include "kernels/quants/bit_layout.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"
#include "kernels/quants/q4_k.hpp"

namespace tinfer::kernels {

/// 0: d f16 · 2: dmin f16 · 4: scales and minima [12] · 16: fifth bits [32] · 48: nibbles [128]
struct Q5_K {
    static constexpr DType kType = DType::q5_k;
    static constexpr int kBlockElems = 256, kBlockBytes = 176;
    static constexpr int kUnit = 256, kScaleElems = 32;
    static constexpr bool kHasMin = true;
    static constexpr int kMaxCode = 31;  // |S| ≤ 256 · 31 · 127 · 63 < 2^26, |N| ≤ 16 · 63 · 16 · 127 < 2^21

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
        for (int e = 0; e < 256; ++e) {
            const int code = nibble_of_256<Arch>(block + 48, e) | bit_of_256<Arch>(block + 16, e) << 4;
            out.q[e] = static_cast<std::int8_t>(code);
        }
        (unpack_scales_and_mins<Arch>)(block + 4, out);  // of this namespace: the single header has several
        out.d = load_f16<Arch>(block);
        out.dmin = load_f16<Arch>(block + 2);
    }
};

}  // namespace tinfer::kernels
