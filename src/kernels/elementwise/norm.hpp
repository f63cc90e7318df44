// SPDX-License-Identifier: MIT
// What normalizes or quantizes whole rows, sixteen lanes at a time; orders of operations as in reference/norm.cpp.
#pragma once

#include "kernels/kernel.hpp"
#include "kernels/quants/activation_q8_avx512.hpp"
#include "kernels/simd/math.hpp"

namespace tinfer::kernels {

/// Calls fn(first, n) for pieces of up to 16 elements, n = 16 in all but the last.
template <class Arch, class Fn>
TINFER_INLINE void each_piece(std::int64_t n, Fn fn) noexcept {
    std::int64_t i = 0;
    for (; i + 16 <= n; i += 16) fn(i, 16);
    if (i < n) fn(i, static_cast<int>(n - i));
}
/// A piece, padded with zeros, and back; nothing outside it is touched.
template <class Arch>
TINFER_INLINE f32x16<Arch> load_piece(const float* p, int n) noexcept {
    return n == 16 ? f32x16<Arch>::load(p) : f32x16<Arch>::load(p, n);
}
template <class Arch>
TINFER_INLINE void store_piece(const f32x16<Arch>& x, float* p, int n) noexcept {
    if (n == 16) x.store(p);
    else x.store(p, n);
}

/// y = (x · 1/sqrt(Σ x² / n + eps)) · weight, weight null for none.
template <class Arch>
inline void norm_row(const float* x, const float* weight, std::int64_t n, float eps, float* y) noexcept {
    f32x16<Arch> squares(0.0f);
    each_piece<Arch>(n, [&](std::int64_t i, int count) {
        const auto piece = load_piece<Arch>(x + i, count);
        squares = fma(piece, piece, squares);
    });
    const float mean = reduce(squares) / static_cast<float>(n);
    const f32x16<Arch> factor(1.0f / root(mean + eps, Arch{}));
    each_piece<Arch>(n, [&](std::int64_t i, int count) {
        auto piece = load_piece<Arch>(x + i, count) * factor;
        if (weight != nullptr) piece = piece * load_piece<Arch>(weight + i, count);
        store_piece(piece, y + i, count);
    });
}

/// The weight row of row i: shared by all rows, or one per head.
template <class Arch>
inline const float* norm_weight(const Operand& weight, const Operand& x, std::int64_t i) noexcept {
    if (!weight.present()) return nullptr;
    return weight.template row<const float>(weight.ne[1] == 1 ? 0 : i % x.ne[1]);
}

template <class Arch>
void rms_norm(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1], &weight = call[2];
    const Range rows = slice.share(x.n_rows());
    for (std::int64_t i = rows.begin; i < rows.end; ++i)
        norm_row<Arch>(x.template flat_row<const float>(i), norm_weight<Arch>(weight, x, i), x.ne[0], call.params.eps,
                       out.template flat_row<float>(i));
}

/// y = x / sqrt(Σ x² + eps), or x / max(sqrt(Σ x²), eps), by the reciprocal.
template <class Arch>
void l2_norm(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1];
    const float eps = call.params.eps;
    const Range rows = slice.share(x.n_rows());
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        const auto* in = x.template flat_row<const float>(i);
        auto* y = out.template flat_row<float>(i);
        f32x16<Arch> squares(0.0f);
        each_piece<Arch>(x.ne[0], [&](std::int64_t j, int count) {
            const auto piece = load_piece<Arch>(in + j, count);
            squares = fma(piece, piece, squares);
        });
        const float sum = reduce(squares), length = root(call.params.eps_is_floor == 0 ? sum + eps : sum, Arch{});
        const f32x16<Arch> factor(1.0f / (call.params.eps_is_floor != 0 && length < eps ? eps : length));
        each_piece<Arch>(x.ne[0], [&](std::int64_t j, int count) {
            store_piece(load_piece<Arch>(in + j, count) * factor, y + j, count);
        });
    }
}

template <class Arch>
void rms_norm_quantize(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1], &weight = call[2], &norm = call[3];
    const Range rows = slice.share(x.n_rows());
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        auto* y = reinterpret_cast<float*>(call.scratch(slice.thread));
        if (norm.present()) y = norm.template flat_row<float>(i);
        const auto* in = x.template flat_row<const float>(i);
        norm_row<Arch>(in, norm_weight<Arch>(weight, x, i), x.ne[0], call.params.eps, y);
        quantize_blocks<Arch>(out.type, y, x.ne[0], out.template flat_row<std::byte>(i));
    }
}

/// c = x − Σ x / n;  y = c · 1/sqrt(Σ c² / n + eps), then · weight, then + bias, either null for none.
template <class Arch>
inline void layer_norm_row(const float* x, const float* weight, const float* bias, std::int64_t n, float eps,
                           float* y) noexcept {
    f32x16<Arch> sum(0.0f), squares(0.0f);
    each_piece<Arch>(n, [&](std::int64_t i, int count) { sum = sum + load_piece<Arch>(x + i, count); });
    const f32x16<Arch> mean(reduce(sum) / static_cast<float>(n));
    each_piece<Arch>(n, [&](std::int64_t i, int count) {
        store_piece(load_piece<Arch>(x + i, count) - mean, y + i, count);
        const auto piece = load_piece<Arch>(y + i, count);  // padded with zeros again
        squares = fma(piece, piece, squares);
    });
    const f32x16<Arch> factor(1.0f / root(reduce(squares) / static_cast<float>(n) + eps, Arch{}));
    each_piece<Arch>(n, [&](std::int64_t i, int count) {
        auto piece = load_piece<Arch>(y + i, count) * factor;
        if (weight != nullptr) piece = piece * load_piece<Arch>(weight + i, count);
        if (bias != nullptr) piece = piece + load_piece<Arch>(bias + i, count);
        store_piece(piece, y + i, count);
    });
}

template <class Arch>
void layer_norm(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1], &weight = call[2], &bias = call[3];
    const Range rows = slice.share(x.n_rows());
    for (std::int64_t i = rows.begin; i < rows.end; ++i)
        layer_norm_row<Arch>(x.template flat_row<const float>(i), norm_weight<Arch>(weight, x, i),
                             norm_weight<Arch>(bias, x, i), x.ne[0], call.params.eps, out.template flat_row<float>(i));
}

/// Threads share blocks, not rows, because one token has one row.
template <class Arch>
void quantize(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1];
    const std::int64_t k = x.ne[0], n_blocks = k / (out.type == DType::x8_32 ? 32 : 256);
    const Range blocks = slice.share(n_blocks * x.n_rows());
    for (std::int64_t b = blocks.begin; b < blocks.end;) {
        const std::int64_t r = b / n_blocks, left = blocks.end - r * n_blocks, end = left < n_blocks ? left : n_blocks;
        quantize_blocks<Arch>(out.type, x.template flat_row<const float>(r), k, out.template flat_row<std::byte>(r),
                              b % n_blocks, end);
        b = r * n_blocks + end;
    }
}

/// The largest lane, NaN ignored.
template <class Arch>
TINFER_INLINE float max_lane(const f32x16<Arch>& x) noexcept {
    alignas(64) float lanes[16];
    x.store(lanes);
    float max = lanes[0];
    for (int l = 1; l < 16; ++l) max = max < lanes[l] ? lanes[l] : max;
    return max;
}

/// p = exp(x − max) · (1 / Σ exp(x − max)).
template <class Arch>
inline void softmax_row(const float* x, std::int64_t n, float* p) noexcept {
    const f32x16<Arch> lowest(-__builtin_inff()), zero(0.0f);
    f32x16<Arch> max = lowest;
    each_piece<Arch>(n, [&](std::int64_t i, int count) {
        alignas(64) float padded[16];
        lowest.store(padded);
        for (int l = 0; count < 16 && l < count; ++l) padded[l] = x[i + l];
        max = greater(count == 16 ? f32x16<Arch>::load(x + i) : f32x16<Arch>::load(padded), max);
    });
    const f32x16<Arch> top(max_lane(max));
    f32x16<Arch> sum = zero;
    each_piece<Arch>(n, [&](std::int64_t i, int count) {
        store_piece(exp(load_piece<Arch>(x + i, count) - top), p + i, count);
        sum = sum + load_piece<Arch>(p + i, count);
    });
    const f32x16<Arch> inverse(1.0f / reduce(sum));
    each_piece<Arch>(
        n, [&](std::int64_t i, int count) { store_piece(load_piece<Arch>(p + i, count) * inverse, p + i, count); });
}

template <class Arch>
void softmax(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1];
    const Range rows = slice.share(x.n_rows());
    for (std::int64_t i = rows.begin; i < rows.end; ++i)
        softmax_row<Arch>(x.template flat_row<const float>(i), x.ne[0], out.template flat_row<float>(i));
}

}  // namespace tinfer::kernels
