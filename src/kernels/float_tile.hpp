// SPDX-License-Identifier: MIT
// The micro-kernel of products with float weights (numerics rules 3 and 7): weights widened exactly, sixteen lanes per
// output, a few rows times a few columns at once so that no chain of fused multiply-adds waits for itself.
#pragma once

#include "kernels/simd.hpp"
#include "tinfer/tinfer.hpp"

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

template <class Arch, DType Type, int Columns>
[[gnu::noinline]] void float_tile(const std::byte* const* w, const float* const* x, std::int64_t k,
                                  float (*results)[kFloatRows<Arch>]) noexcept {
    constexpr int kRows = kFloatRows<Arch>;
    f32x16<Arch> acc[Columns][kRows];
    for (int c = 0; c < Columns; ++c)
        for (int r = 0; r < kRows; ++r) acc[c][r] = f32x16<Arch>(0.0f);
    std::int64_t i = 0;
    for (; i + 16 <= k; i += 16) {
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
        for (int r = 0; r < kRows; ++r) results[c][r] = fold(acc[c][r]);
}

/// results[c][r] = ⟨w[r], x[c]⟩ for the first n columns.
template <class Arch, DType Type, int Columns = kFloatColumns<Arch>>
inline void run_float_tile(const std::byte* const* w, const float* const* x, std::int64_t k, int n,
                           float (*results)[kFloatRows<Arch>]) noexcept {
    if constexpr (Columns > 1)
        if (n < Columns) return run_float_tile<Arch, Type, Columns - 1>(w, x, k, n, results);
    float_tile<Arch, Type, Columns>(w, x, k, results);
}

// ---- slices of K ----------------------------------------------------------------------------------------------------

inline constexpr int kFloatSlice = 512;   ///< weights of a row that are widened together

/// n ≤ kFloatSlice weights, widened; zeros up to a multiple of 16.
template <class Arch, DType Type>
TINFER_INLINE void widen_slice(const std::byte* from, int n, float* to) noexcept {
    int i = 0;
    for (; i + 16 <= n; i += 16) load_weights<Arch, Type>(from + i * kFloatBytes<Type>).store(to + i);
    if (i < n) load_weights<Arch, Type>(from + i * kFloatBytes<Type>, n - i).store(to + i);
}

/// sums[c][r] += w[r] · x[c], lane by lane, over n_k values, or begins them. Lines at `ahead` are asked for meanwhile.
template <class Arch, int Columns>
[[gnu::noinline]] void float_slice(const float* const* w, const float* const* x, int n_k, bool begins,
                                   float (*sums)[kFloatRows<Arch>][16], const float* ahead, const float* ahead_too) noexcept {
    constexpr int kRows = kFloatRows<Arch>;
    f32x16<Arch> acc[Columns][kRows];
#pragma GCC unroll 8
    for (int c = 0; c < Columns; ++c)
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) acc[c][r] = begins ? f32x16<Arch>(0.0f) : f32x16<Arch>::load(sums[c][r]);
    int i = 0;
    for (; i + 16 <= n_k; i += 16) {
        __builtin_prefetch(ahead + i);
        __builtin_prefetch(ahead_too + i);
        f32x16<Arch> weights[kRows];
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) weights[r] = f32x16<Arch>::load(w[r] + i);
#pragma GCC unroll 8
        for (int c = 0; c < Columns; ++c) {
            const auto a = f32x16<Arch>::load(x[c] + i);
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) acc[c][r] = fma(weights[r], a, acc[c][r]);
        }
    }
    if (i < n_k) {
#pragma GCC unroll 8
        for (int c = 0; c < Columns; ++c) {
            const auto a = f32x16<Arch>::load(x[c] + i, n_k - i);
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) acc[c][r] = fma(f32x16<Arch>::load(w[r] + i), a, acc[c][r]);
        }
    }
#pragma GCC unroll 8
    for (int c = 0; c < Columns; ++c)
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) acc[c][r].store(sums[c][r]);
}

/// The same for the first n columns.
template <class Arch, int Columns = kFloatColumns<Arch>>
inline void run_float_slice(const float* const* w, const float* const* x, int n_k, int n, bool begins,
                            float (*sums)[kFloatRows<Arch>][16], const float* ahead, const float* ahead_too) noexcept {
    if constexpr (Columns > 1)
        if (n < Columns) return run_float_slice<Arch, Columns - 1>(w, x, n_k, n, begins, sums, ahead, ahead_too);
    float_slice<Arch, Columns>(w, x, n_k, begins, sums, ahead, ahead_too);
}

}  // namespace tinfer::kernels
