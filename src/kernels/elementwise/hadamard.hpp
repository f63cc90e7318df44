// SPDX-License-Identifier: MIT
// The Walsh-Hadamard transform of blocks; the order of operations as in reference/hadamard.cpp. Butterflies of strides
// below sixteen stay within registers of four lanes, which every instruction set has; others take sixteen at a time.
#pragma once

#include <cstring>

#include "kernels/hadamard_scale.hpp"
#include "kernels/kernel.hpp"
#include "kernels/simd/vec.hpp"

namespace tinfer::kernels {

using Lanes4 = float __attribute__((vector_size(16)));

/// The lanes that the four numbers name, 0 … 3 of a and 4 … 7 of b.
template <class Arch, int I0, int I1, int I2, int I3>
TINFER_INLINE Lanes4 pick_lanes(Lanes4 a, Lanes4 b) noexcept {
#if defined(__clang__)
    return __builtin_shufflevector(a, b, I0, I1, I2, I3);
#else
    using Numbers = int __attribute__((vector_size(16)));
    return __builtin_shuffle(a, b, Numbers{I0, I1, I2, I3});
#endif
}

/// Strides 1, 2, 4 and 8 of sixteen values.
template <class Arch>
TINFER_INLINE void hadamard_16(const float* x, float* y) noexcept {
    Lanes4 r[4];
    std::memcpy(r, x, sizeof r);
    for (Lanes4& v : r) {
        const Lanes4 neighbours = pick_lanes<Arch, 1, 0, 3, 2>(v, v);
        const Lanes4 once = pick_lanes<Arch, 0, 5, 2, 7>(v + neighbours, neighbours - v);
        const Lanes4 pairs = pick_lanes<Arch, 2, 3, 0, 1>(once, once);
        v = pick_lanes<Arch, 0, 1, 6, 7>(once + pairs, pairs - once);
    }
    const Lanes4 a = r[0] + r[1], b = r[0] - r[1], c = r[2] + r[3], d = r[2] - r[3];
    const Lanes4 out[4] = {a + c, b + d, a - c, b - d};
    std::memcpy(y, out, sizeof out);
}

template <class Arch>
inline void hadamard_block(const float* x, std::int64_t n, float* y) noexcept {
    for (std::int64_t i = 0; i < n; i += 16) hadamard_16<Arch>(x + i, y + i);
    for (std::int64_t h = 16; h < n; h *= 2)
        for (std::int64_t first = 0; first < n; first += 2 * h)
            for (std::int64_t i = first; i < first + h; i += 16) {
                const auto a = f32x16<Arch>::load(y + i), b = f32x16<Arch>::load(y + i + h);
                (a + b).store(y + i);
                (a - b).store(y + i + h);
            }
    const f32x16<Arch> scale(hadamard_scale<Arch>(n));
    for (std::int64_t i = 0; i < n; i += 16) (f32x16<Arch>::load(y + i) * scale).store(y + i);
}

template <class Arch>
void hadamard(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1];
    const std::int64_t block = call.params.block, n_blocks = x.ne[0] / block;
    const Range share = slice.share(n_blocks * x.n_rows());
    for (std::int64_t i = share.begin; i < share.end; ++i) {
        const std::int64_t row = i / n_blocks, first = i % n_blocks * block;
        hadamard_block<Arch>(x.template flat_row<const float>(row) + first, block,
                             out.template flat_row<float>(row) + first);
    }
}

}  // namespace tinfer::kernels
