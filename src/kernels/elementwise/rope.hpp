// SPDX-License-Identifier: MIT
// Rotary position embedding: sixteen pairs at a time, by the table of cosines and sines that one step made for all
// layers.
#pragma once

#include "kernels/elementwise/norm.hpp"

namespace tinfer::kernels {

/// Sixteen pairs: the first and the second element of each.
template <class Arch>
struct Pairs {
    f32x16<Arch> first, second;

    /// Pairs that lie side by side; the first n of them, then zeros.
    static TINFER_INLINE Pairs load_adjacent(const float* p, int n) noexcept {
        alignas(64) float padded[32] = {};
        if (n < 16) {
            for (int i = 0; i < 2 * n; ++i) padded[i] = p[i];
            p = padded;
        }
        Pairs out;
        for (int i = 0; i < f32x16<Arch>::kParts; ++i) {
            const float* at = p + 2 * i * Arch::kLanes;
            const f32v<Arch> low = load_f32<Arch>(at), high = load_f32<Arch>(at + Arch::kLanes);
            deinterleave(low, high, out.first.part[i], out.second.part[i], Arch{});
        }
        return out;
    }
    TINFER_INLINE void store_adjacent(float* p) const noexcept {
        for (int i = 0; i < f32x16<Arch>::kParts; ++i) {
            f32v<Arch> low, high;
            interleave(first.part[i], second.part[i], low, high, Arch{});
            low.store_unaligned(p + 2 * i * Arch::kLanes);
            high.store_unaligned(p + (2 * i + 1) * Arch::kLanes);
        }
    }
};

/// a' = fma(a, cos, −(c·sin)), c' = fma(a, sin, c·cos); angle.first = cos, angle.second = sin.
template <class Arch>
TINFER_INLINE Pairs<Arch> rotate(const Pairs<Arch>& x, const Pairs<Arch>& angle) noexcept {
    const f32x16<Arch> negated = f32x16<Arch>(-0.0f) - x.second * angle.second;
    return {fma(x.first, angle.first, negated), fma(x.first, angle.second, x.second * angle.first)};
}

/// Rotates the first n_rot elements of a head of d and passes the rest: put(channel, values, n) takes n ≤ 16 results
/// for consecutive channels. What a call of put overwrites has been read before, so in place works.
template <class Arch, class Put>
TINFER_INLINE void rotate_head(const float* x, const float* angles, const RopeParams& rope, std::int64_t d,
                               Put put) noexcept {
    const std::int64_t half = rope.n_rot / 2;
    each_piece<Arch>(half, [&](std::int64_t i, int n) {
        const auto angle = Pairs<Arch>::load_adjacent(angles + 2 * i, n);
        if (rope.neox != 0) {
            const auto y = rotate<Arch>({load_piece<Arch>(x + i, n), load_piece<Arch>(x + half + i, n)}, angle);
            put(i, y.first, n);
            put(half + i, y.second, n);
        } else {
            alignas(64) float y[32];
            rotate(Pairs<Arch>::load_adjacent(x + 2 * i, n), angle).store_adjacent(y);
            put(2 * i, f32x16<Arch>::load(y), 2 * n < 16 ? 2 * n : 16);
            if (2 * n > 16) put(2 * i + 16, f32x16<Arch>::load(y + 16), 2 * n - 16);
        }
    });
    each_piece<Arch>(d - rope.n_rot,
                     [&](std::int64_t i, int n) { put(rope.n_rot + i, load_piece<Arch>(x + rope.n_rot + i, n), n); });
}

template <class Arch>
void rope(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1], &table = call[2];
    const Range heads = slice.share(x.n_rows());
    for (std::int64_t i = heads.begin; i < heads.end; ++i) {
        auto* y = out.template flat_row<float>(i);
        const auto* in = x.template flat_row<const float>(i);
        const auto* angles = table.template row<const float>(i / x.ne[1]);
        const auto put = [&](std::int64_t channel, const f32x16<Arch>& values, int n) {
            store_piece(values, y + channel, n);
        };
        rotate_head<Arch>(in, angles, call.params.rope, x.ne[0], put);
    }
}

}  // namespace tinfer::kernels
