// SPDX-License-Identifier: MIT
// IQ4_NL: 32 values of 4 bits that index a fixed, unevenly spaced set of levels (finer near zero), with one scale.
#pragma once

#include "kernels/quants/bit_layout.hpp"
#include "kernels/quants/codebook.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: d f16 · 2: nibbles [16]; y = d · level[nibble]
struct IQ4_NL {
    static constexpr DType kType = DType::iq4_nl;
    static constexpr int kBlockElems = 32, kBlockBytes = 18;
    static constexpr int kUnit = 32, kScaleElems = 32;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 127;  // |S| ≤ 32 · 127 · 127 < 2^19

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes32& out) noexcept {
        for (int e = 0; e < 32; ++e) out.q[e] = kIq4Levels[nibble_of_32<Arch>(block + 2, e)];
        out.d[0] = out.d[1] = load_f16<Arch>(block);
    }
};

}  // namespace tinfer::kernels
