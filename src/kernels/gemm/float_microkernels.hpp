// SPDX-License-Identifier: MIT
// The micro-kernel of products with float weights (numerics rules 3 and 7): weights widened exactly, sixteen lanes per
// output, a few rows times a few columns at once so that no chain of fused multiply-adds waits for itself.
#pragma once

#include "kernels/simd/prefetch.hpp"
#include "kernels/simd/vec.hpp"
#include "tinfer/tensor.hpp"

namespace tinfer::kernels {

/// Rows and columns of a tile: as many accumulators as registers allow.
template <class Arch>
inline constexpr int kFloatRows = Arch::kLanes == 16 ? 4 : 2;
template <class Arch>
inline constexpr int kFloatColumns = Arch::kLanes == 16 ? 5 : 2;

template <DType Type>
inline constexpr int kFloatBytes = Type == DType::f32 ? 4 : 2;

/// 16 weights of a row, widened.
template <class Arch, DType Type>
TINFER_INLINE f32x16<Arch> load_weights(const std::byte* p) noexcept {
    if constexpr (Type == DType::f32) return f32x16<Arch>::load(reinterpret_cast<const float*>(p));
    else if constexpr (Type == DType::f16) return f32x16<Arch>::load_f16(reinterpret_cast<const std::uint16_t*>(p));
    else return f32x16<Arch>::load_bf16(reinterpret_cast<const std::uint16_t*>(p));
}
/// The last n < 16 of them, then zeros; nothing behind them is read.
template <class Arch, DType Type>
TINFER_INLINE f32x16<Arch> load_weights(const std::byte* p, std::int64_t n) noexcept {
    alignas(64) std::byte padded[64] = {};
    for (std::int64_t i = 0; i < n * kFloatBytes<Type>; ++i) padded[i] = p[i];
    return load_weights<Arch, Type>(padded);
}

/// Prefetches `ahead` bytes in front of each row, a line of a few rows at a time.
template <class Arch, DType Type, int Columns>
[[gnu::noinline]] void float_microkernel(const std::byte* const* w, const float* const* x, std::int64_t k,
                                         std::int64_t ahead, float (*results)[kFloatRows<Arch>]) noexcept {
    constexpr int kRows = kFloatRows<Arch>, kLinePieces = 4 / kFloatBytes<Type>,
                  kPrefetchedRows = kRows / kLinePieces;  // a line has kLinePieces pieces
    f32x16<Arch> acc[Columns][kRows];
    for (int c = 0; c < Columns; ++c)
        for (int r = 0; r < kRows; ++r) acc[c][r] = f32x16<Arch>(0.0f);
    std::int64_t i = 0;
    for (; i + 16 <= k; i += 16) {
        const std::byte* const* prefetched = w + i / 16 % kLinePieces * kPrefetchedRows;
#pragma GCC unroll 4
        for (int r = 0; r < kPrefetchedRows; ++r)
            prefetch_lines<64>(prefetched[r] + i * kFloatBytes<Type> + ahead, false);
        f32x16<Arch> weights[kRows];
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) weights[r] = load_weights<Arch, Type>(w[r] + i * kFloatBytes<Type>);
#pragma GCC unroll 8
        for (int c = 0; c < Columns; ++c) {
            const auto a = f32x16<Arch>::load(x[c] + i);
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) acc[c][r] = fma(weights[r], a, acc[c][r]);
        }
    }
    if (i < k)
        for (int c = 0; c < Columns; ++c) {
            const auto a = f32x16<Arch>::load(x[c] + i, static_cast<int>(k - i));
            for (int r = 0; r < kRows; ++r)
                acc[c][r] = fma(load_weights<Arch, Type>(w[r] + i * kFloatBytes<Type>, k - i), a, acc[c][r]);
        }
    for (int c = 0; c < Columns; ++c)
        for (int r = 0; r < kRows; ++r) results[c][r] = reduce(acc[c][r]);
}

/// results[c][r] = ⟨w[r], x[c]⟩ for the first n columns.
template <class Arch, DType Type, int Columns = kFloatColumns<Arch>>
inline void run_float_microkernel(const std::byte* const* w, const float* const* x, std::int64_t k, std::int64_t ahead,
                                  int n, float (*results)[kFloatRows<Arch>]) noexcept {
    if constexpr (Columns > 1)
        if (n < Columns) return run_float_microkernel<Arch, Type, Columns - 1>(w, x, k, ahead, n, results);
    float_microkernel<Arch, Type, Columns>(w, x, k, ahead, results);
}

// ---- Sums of one lane -----------------------------------------------------------------------------------------------
//
// With many columns the sixteen sums of an output are worked one after the other, so that the lanes of a register are
// columns: weights and activations are put in order by lanes first (value k belongs to lane k mod 16, numerics rule 3),
// then a product is sixteen outer products. Its sums begin and end in registers and are added to each other as the tree
// of rule 3 asks, lane 0 and 8, 4 and 12, …; nothing is ever added across a register.

/// Rows and registers of columns of an outer product. Rows are put side by side by registers (kLanes), of which this is
/// a part.
template <class Arch>
inline constexpr int kOuterRows = Arch::kLanes == 16 ? 8 : 4;
template <class Arch>
inline constexpr int kOuterVectors = Arch::kLanes == 4 ? 4 : 3;

/// The order in which lanes are worked: each is added to what stands before it as soon as that is its partner in the
/// tree.
inline constexpr int kLaneOrder[16] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};
/// Sums that wait at once: one per level of the tree, and those of a lane that is not at its end.
inline constexpr int kLevels = 5;

/// Puts one register of rows in order by lanes, from step j on: load(i, j) gives values 16 j … 16 j + 15 of row i; they
/// go to to[lane][j][i], where lanes lie lane_stride floats apart and steps step_stride.
template <class Arch, class Load>
TINFER_INLINE void order_by_lanes(Load load, std::int64_t j, std::int64_t n_steps, float* to, std::int64_t lane_stride,
                                  std::int64_t step_stride) noexcept {
    constexpr int kLanes = Arch::kLanes;
    for (to += j * step_stride; j < n_steps; ++j, to += step_stride) {
        i32v<Arch> m[f32x16<Arch>::kParts][kLanes];
        for (int i = 0; i < kLanes; ++i) {
            const f32x16<Arch> row = load(i, j);
            for (int part = 0; part < f32x16<Arch>::kParts; ++part) m[part][i] = bits(row.part[part], Arch{});
        }
        for (int part = 0; part < f32x16<Arch>::kParts; ++part) {
            transpose(m[part], Arch{});
            for (int i = 0; i < kLanes; ++i)
                from_bits(m[part][i], Arch{}).store_aligned(to + (part * kLanes + i) * lane_stride);
        }
    }
}

/// The same of `rows` of bfloat16, whole pieces of 32 values: pairs are transposed, then widened, which transposes half
/// as much. The steps that are done.
template <class Arch>
TINFER_INLINE std::int64_t order_pairs_by_lanes(const std::byte* const* rows, std::int64_t k, float* to,
                                                std::int64_t lane_stride, std::int64_t step_stride) noexcept {
    constexpr int kLanes = Arch::kLanes;
    const std::int64_t end = k / 32 * 32;
    const i32v<Arch> odd_half(static_cast<std::int32_t>(0xFFFF0000u));
    for (std::int64_t first = 0; first < end; first += 2 * kLanes) {
        i32v<Arch> m[kLanes];
        for (int i = 0; i < kLanes; ++i) m[i] = load_i32<Arch>(rows[i] + 2 * first);
        transpose(m, Arch{});
        for (int pair = 0; pair < kLanes; ++pair) {
            const std::int64_t value = first + 2 * pair;
            float* at = to + value % 16 * lane_stride + value / 16 * step_stride;
            from_bits(m[pair] << 16, Arch{}).store_aligned(at);
            from_bits(m[pair] & odd_half, Arch{}).store_aligned(at + lane_stride);
        }
    }
    return end / 16;
}

/// One lane of a tile of outputs, over n steps: sums[level][row][vector of columns].
struct LaneJob {
    const float* w;  ///< [step][kLanes], of which the first kOuterRows are meant
    const float* x;  ///< [step][vectors][kLanes]
    std::int64_t n;
    float* running;             ///< where the lane's sums wait between k-blocks
    bool begins, ends;          ///< the lane
    float* below;               ///< the sums that were finished last, then, level_stride before each, those before them
    std::int64_t level_stride;  ///< floats
    int n_partners;             ///< so many of them are its partners, one after the other
    const std::byte* ahead;     ///< prefetched meanwhile, ahead_step bytes a step
    std::int64_t ahead_step;
};

template <class Arch, int Vectors>
[[gnu::noinline]] void outer_product(const LaneJob& job) noexcept {
    constexpr int kRows = kOuterRows<Arch>, kLanes = Arch::kLanes;
    f32v<Arch> acc[kRows][Vectors];
    const auto at = [](float* sums, int r, int v) { return sums + (r * Vectors + v) * kLanes; };
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v)
            acc[r][v] = job.begins ? f32v<Arch>(0.0f) : f32v<Arch>::load_aligned(at(job.running, r, v));

    const float *w = job.w, *x = job.x;
    const std::byte* ahead = job.ahead;
    for (std::int64_t j = job.n; j > 0; --j, w += kLanes, x += Vectors * kLanes, ahead += job.ahead_step) {
        __builtin_prefetch(ahead);
        f32v<Arch> columns[Vectors];
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) columns[v] = f32v<Arch>::load_aligned(x + v * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
            const f32v<Arch> weight(w[r]);
#pragma GCC unroll 4
            for (int v = 0; v < Vectors; ++v) acc[r][v] = fma(weight, columns[v], acc[r][v], Arch{});
        }
    }

    float* to = job.running;
    if (job.ends) {
        to = job.below + job.level_stride;
        for (int i = 0; i < job.n_partners; ++i) {
            to -= job.level_stride;
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
                for (int v = 0; v < Vectors; ++v) acc[r][v] = f32v<Arch>::load_aligned(at(to, r, v)) + acc[r][v];
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) acc[r][v].store_aligned(at(to, r, v));
}

/// The same for n_vectors ≤ Vectors.
template <class Arch, int Vectors = kOuterVectors<Arch>>
inline void run_outer_product(const LaneJob& job, int n_vectors) noexcept {
    if constexpr (Vectors > 1)
        if (n_vectors < Vectors) return run_outer_product<Arch, Vectors - 1>(job, n_vectors);
    outer_product<Arch, Vectors>(job);
}

}  // namespace tinfer::kernels
