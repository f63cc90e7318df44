// SPDX-License-Identifier: MIT
// The passes over a row of logits (base/row_ops.hpp), sixteen lanes at a time.
#pragma once

#include "base/row_ops.hpp"
#include "kernels/elementwise/norm.hpp"

namespace tinfer::kernels {

/// A short piece, its first element repeated.
template <class Arch>
TINFER_INLINE f32x16<Arch> load_repeated(const float* p, int n) noexcept {
    alignas(64) float padded[16];
    for (int l = 0; l < 16; ++l) padded[l] = p[l < n ? l : 0];
    return f32x16<Arch>::load(padded);
}

template <class Arch>
bool block_max(const float* x, std::size_t n, float* maxima) noexcept {
    constexpr std::int32_t kInfinityBits = 0x7F800000;
    constexpr int kChains = 4;  // of comparisons that wait for each other
    i32v<Arch> largest_bits[kChains] = {i32v<Arch>(0), i32v<Arch>(0), i32v<Arch>(0), i32v<Arch>(0)};
    f32x16<Arch> max[kChains];
    const auto collect = [&](const f32x16<Arch>& piece, int chain) {
        max[chain] = greater(piece, max[chain]);
        // Of |x| as integers only those of a NaN exceed infinity's.
        for (int part = 0; part < f32x16<Arch>::kParts; ++part)
            largest_bits[chain] =
                xsimd::max(largest_bits[chain], bits(piece.part[part], Arch{}) & i32v<Arch>(0x7FFFFFFF));
    };
    for (std::size_t begin = 0; begin < n; begin += kRowBlock) {
        for (auto& each : max) each = f32x16<Arch>(-__builtin_inff());
        if (n - begin >= kRowBlock) {
            for (std::size_t i = begin; i < begin + kRowBlock; i += 16 * kChains)
                for (int chain = 0; chain < kChains; ++chain) collect(f32x16<Arch>::load(x + i + 16 * chain), chain);
        } else {
            each_piece<Arch>(static_cast<std::int64_t>(n - begin), [&](std::int64_t i, int count) {
                const float* from = x + begin + i;
                collect(count == 16 ? f32x16<Arch>::load(from) : load_repeated<Arch>(from, count), 0);
            });
        }
        *maxima++ = max_lane(greater(greater(max[0], max[1]), greater(max[2], max[3])));
    }
    bool has_nan = false;
    for (const auto& chain : largest_bits) {
        std::int32_t lanes[Arch::kLanes];
        chain.store_unaligned(lanes);
        for (const std::int32_t lane : lanes) has_nan |= lane > kInfinityBits;
    }
    return has_nan;
}

template <class Arch>
float exp_sum16(const float* x, std::size_t n, float max, float* p) noexcept {
    const f32x16<Arch> top(max);
    f32x16<Arch> sum(0.0f);
    each_piece<Arch>(static_cast<std::int64_t>(n), [&](std::int64_t i, int count) {
        store_piece(exp(load_piece<Arch>(x + i, count) - top), p + i, count);
        sum = sum + load_piece<Arch>(p + i, count);  // a short piece adds zeros
    });
    return reduce(sum);
}

template <class Arch>
inline constexpr RowOps kRowOps{block_max<Arch>, exp_sum16<Arch>};

}  // namespace tinfer::kernels
