// SPDX-License-Identifier: MIT
// Q5_0: 32 values of 5 bits around zero with one scale; the fifth bits lie together in one word.
#pragma once

#include "kernels/quants/bit_layout.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/quants/half.hpp"

namespace tinfer::kernels {

/// 0: d f16 · 2: fifth bits u32, bit e of element e · 6: nibbles [16]; y = d · (code − 16)
struct Q5_0 {
    static constexpr DType kType = DType::q5_0;
    static constexpr int kBlockElems = 32, kBlockBytes = 22;
    static constexpr int kUnit = 32, kScaleElems = 32;
    static constexpr bool kHasMin = false;
    static constexpr int kMaxCode = 16;  // |S| ≤ 32 · 16 · 127 < 2^16

    template <class Arch>
    static void unpack(const std::uint8_t* block, int /*unit*/, Codes32& out) noexcept {
        const std::uint32_t high = load_u32<Arch>(block + 2);
        for (int e = 0; e < 32; ++e) {
            const int code = nibble_of_32<Arch>(block + 6, e) | static_cast<int>(high >> e & 1u) << 4;
            out.q[e] = static_cast<std::int8_t>(code - 16);
        }
        out.d[0] = out.d[1] = load_f16<Arch>(block);
    }
};

}  // namespace tinfer::kernels
