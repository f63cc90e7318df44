// SPDX-License-Identifier: MIT
// Products of a few tokens straight from rows of the file, for the formats whose rows are decoded one by one: as many
// rows as a register has lanes are read side by side, sums lie along the lanes of each, and are horizontally reduced
// together, so that float steps have rows in lanes as those of kernels/gemv/skinny.hpp. A format gives its decoder
// (kernels/dequantize/codes_neon.hpp) and nothing else. With more than one token a pass is for two or four: decoding
// is most of the work, and each piece of codes meets all of them.
#pragma once

#include "kernels/dequantize/block_codes.hpp"
#include "kernels/gemv/skinny.hpp"

#if defined(__aarch64__)

namespace tinfer::kernels {

/// The words that blocks of the rows begin with, and half floats of which scales are made.
static TINFER_INLINE int32x4_t first_words(const RowBlocks<4>& blocks) { return load_words32(blocks, 0); }
template <class Format>
TINFER_INLINE float32x4_t scales_d(const RowBlocks<4>& blocks) noexcept {
    const auto half = [&](int r) { return static_cast<std::int32_t>(NeonCodes<Format>::half_d(blocks[r])); };
    return vmulq_n_f32(low_f16(int32x4_t{half(0), half(1), half(2), half(3)}), NeonCodes<Format>::kFactor);
}

/// A row's super-block against T tokens: S of each, still in the lanes of a register.
template <class Arch, class Format, int T>
struct AlongSuperSums {
    static constexpr int kSubs = 256 / Format::kScaleElems, kTogether = kSubs == 1 ? 1 : Format::kScaleElems / 16;
    const std::int8_t* const* q;
    int32x4_t scales[kSubs == 1 ? 1 : kSubs / 4];
    mutable i32v<Arch> part[T], sum[T];

    TINFER_INLINE AlongSuperSums(const std::int8_t* const* tokens, const std::uint8_t* block) noexcept : q(tokens) {
        if constexpr (kSubs != 1) NeonCodes<Format>::scales(block, scales);
#    pragma GCC unroll 4
        for (int t = 0; t < T; ++t) sum[t] = i32v<Arch>(0);
    }
    TINFER_INLINE void operator()(int i, uint8x16_t codes) const noexcept {
        const i32v<Arch> c(as_words(codes));
#    pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const i32v<Arch> a = load_i32<Arch>(q[t] + 16 * i);
            if constexpr (kSubs == 1) {
                sum[t] = dot4(sum[t], c, a, Arch{});
            } else {
                part[t] = dot4(i % kTogether == 0 ? i32v<Arch>(0) : part[t], c, a, Arch{});
                if (i % kTogether == kTogether - 1) sum[t] = add_scaled(sum[t], part[t], i / kTogether);
            }
        }
    }

private:
    TINFER_INLINE i32v<Arch> add_scaled(i32v<Arch> to, i32v<Arch> of, int j) const noexcept {
        switch (j % 4) {
            case 0: return vmlaq_laneq_s32(to, of, scales[j / 4], 0);
            case 1: return vmlaq_laneq_s32(to, of, scales[j / 4], 1);
            case 2: return vmlaq_laneq_s32(to, of, scales[j / 4], 2);
            default: return vmlaq_laneq_s32(to, of, scales[j / 4], 3);
        }
    }
};

/// results[t][r] = ⟨row r, x[t]⟩ of T tokens, super-blocks.
template <class Arch, class Format, int T>
[[gnu::noinline]] void multiply_rows_along(const LaneRows<Arch>& rows, std::int64_t k, const Activations* x,
                                           float (*results)[Arch::kLanes]) noexcept requires(Format::kUnit == 256) {
    constexpr int N = Arch::kLanes;
    RowBlocks<N> blocks = blocks_of(rows);
    f32v<Arch> acc[T];
    for (int t = 0; t < T; ++t) acc[t] = f32v<Arch>(0.0f);
    for (std::int64_t b = 0; b < k / 256; ++b, blocks.at += Format::kBlockBytes) {
        i32v<Arch> sums[T][N];
        const std::int8_t* q[T];
        for (int t = 0; t < T; ++t) q[t] = x[t].q + 256 * b;
        for (int r = 0; r < N; ++r) {
            rows.template prefetch<Format::kBlockBytes>(r, blocks.at);
            const AlongSuperSums<Arch, Format, T> row(q, blocks[r]);
            NeonCodes<Format>::codes(blocks[r], 0, row);
            for (int t = 0; t < T; ++t) sums[t][r] = row.sum[t];
        }
        const f32v<Arch> d = scales_d<Format>(blocks);
        for (int t = 0; t < T; ++t)
            acc[t] = fma(d * f32v<Arch>(x[t].d[b]), as_float(sum_rows(sums[t], Arch{}), Arch{}), acc[t], Arch{});
    }
    for (int t = 0; t < T; ++t) acc[t].store_unaligned(results[t]);
}

/// The same of blocks of 32 behind their d.
template <class Arch, class Format, int T>
[[gnu::noinline]] void multiply_rows_along(const LaneRows<Arch>& rows, std::int64_t k, const Activations* x,
                                           float (*results)[Arch::kLanes]) noexcept requires(Format::kUnit == 32) {
    constexpr int N = Arch::kLanes;
    RowBlocks<N> blocks = blocks_of(rows);
    f32v<Arch> acc[T];
    for (int t = 0; t < T; ++t) acc[t] = f32v<Arch>(0.0f);
    for (std::int64_t u = 0; u < k / 32; ++u, blocks.advance(Format::kBlockBytes)) {
        const int next_row = static_cast<int>(u % N);  // so many blocks of a row, one row in each step
        rows.template prefetch<N * Format::kBlockBytes>(next_row, (u - next_row) * Format::kBlockBytes);
        i32v<Arch> sums[T][N];
#    pragma GCC unroll 4
        for (int r = 0; r < N; ++r)
            NeonCodes<Format>::codes(blocks[r], 0, [&](int i, uint8x16_t codes) {
                const i32v<Arch> c(as_words(codes));
#    pragma GCC unroll 4
                for (int t = 0; t < T; ++t)
                    sums[t][r] =
                        dot4(i == 0 ? i32v<Arch>(0) : sums[t][r], c, load_i32<Arch>(x[t].q + 32 * u + 16 * i), Arch{});
            });
        const f32v<Arch> d = low_f16(first_words(blocks));
#    pragma GCC unroll 4
        for (int t = 0; t < T; ++t)
            acc[t] = fma(d * f32v<Arch>(x[t].d[u]), as_float(sum_rows(sums[t], Arch{}), Arch{}), acc[t], Arch{});
    }
    for (int t = 0; t < T; ++t) acc[t].store_unaligned(results[t]);
}

}  // namespace tinfer::kernels

#endif
