// SPDX-License-Identifier: MIT
// Activation rows as 8-bit codes, the other factor of every quantized product (numerics rule 6): per block of 32 or 256
// values d = max|x| / 127 in float32 and q = x/d rounded half to even, with the sums of codes that products need.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.hpp"

namespace tinfer::kernels {

/// The parts of one activation row (layout: base/dtype.hpp). x8_32 has s and sum, x8_256 the other three.
struct Activations {
    std::int8_t* q;                  ///< codes, −127 … 127
    float* d;                        ///< scale per block
    float* s;                        ///< d · sum
    std::int32_t* sum;               ///< sum of the codes per 32
    std::uint16_t* max_partial_sum;  ///< two bounds per super-block: at most 32 · 127 and 16 · 127
    std::int16_t* sum32;             ///< sum of the codes per 32: at most 32 · 127 = 4064 in magnitude
    std::int16_t* sum16;             ///< and per 16
};

template <class Arch>
[[nodiscard]] Activations activation_parts(DType type, std::int64_t k, std::byte* row) noexcept {
    const ActivationLayout at = activation_layout(type, k);
    Activations parts{
        reinterpret_cast<std::int8_t*>(row), reinterpret_cast<float*>(row + at.d_offset), {}, {}, {}, {}, {}};
    if (type == DType::x8_32) {
        parts.s = reinterpret_cast<float*>(row + at.s_offset);
        parts.sum = reinterpret_cast<std::int32_t*>(row + at.sum_offset);
    } else {
        parts.max_partial_sum = reinterpret_cast<std::uint16_t*>(row + at.max_partial_sum_offset);
        parts.sum32 = reinterpret_cast<std::int16_t*>(row + at.sum32_offset);
        parts.sum16 = reinterpret_cast<std::int16_t*>(row + at.sum_offset);
    }
    return parts;
}

/// One block of n values: writes the codes and returns d. A value that is not finite makes d NaN and all codes zero.
template <class Arch>
float quantize_block(const float* x, int n, std::int8_t* q) noexcept {
    // Magnitudes compare as integers: infinities and NaNs are above all finite values, so none is lost in the maximum.
    std::uint32_t amax = 0;
    for (int i = 0; i < n; ++i) {
        const std::uint32_t magnitude = __builtin_bit_cast(std::uint32_t, x[i]) & 0x7FFFFFFFu;
        if (magnitude > amax) amax = magnitude;
    }
    const bool finite = amax < 0x7F800000u;
    const float d = (finite ? __builtin_bit_cast(float, amax) : __builtin_bit_cast(float, 0x7FC00000u)) / 127.0f;
    const float inverse = d >= 0x1p-126f ? 1.0f / d : 0.0f;  // NaN compares false
    // |x · inverse| ≤ 127 (1 + 3 · 2^-24), so the nearest integer is within ±127. Adding 1.5 · 2^23 rounds half to even
    // and leaves the integer in the low bits.
    for (int i = 0; i < n; ++i) {
        const float shifted = (finite ? x[i] * inverse : 0.0f) + 0x1.8p23f;
        q[i] = static_cast<std::int8_t>(__builtin_bit_cast(std::int32_t, shifted) - 0x4B400000);
    }
    return d;
}

template <class Arch>
std::int32_t sum_codes(const std::int8_t* q, int n) noexcept {
    std::int32_t sum = 0;
    for (int i = 0; i < n; ++i) sum += q[i];
    return sum;
}

/// What products need to know of the codes of block b, besides its d: their sums, and how large partial products get.
template <class Arch>
void sum_block(DType type, const Activations& row, std::int64_t b) noexcept {
    if (type == DType::x8_32) {
        row.sum[b] = sum_codes<Arch>(row.q + 32 * b, 32);
        row.s[b] = row.d[b] * static_cast<float>(row.sum[b]);
        return;
    }
    int max_partial_sum32 = 0, max_partial_sum16 = 0;
    for (std::int64_t j = 8 * b; j < 8 * b + 8; ++j) {
        int sum[2] = {0, 0}, magnitude[2] = {0, 0};  // of each half
        for (int half = 0; half < 2; ++half) {
            const std::int8_t* q = row.q + 32 * j + 16 * half;
            for (int i = 0; i < 16; ++i) {
                sum[half] += q[i];
                magnitude[half] += q[i] < 0 ? -q[i] : q[i];
            }
            row.sum16[2 * j + half] = static_cast<std::int16_t>(sum[half]);
            max_partial_sum16 = max_partial_sum16 < magnitude[half] ? magnitude[half] : max_partial_sum16;
        }
        const int sum32 = sum[0] + sum[1], magnitude32 = magnitude[0] + magnitude[1];
        row.sum32[j] = static_cast<std::int16_t>(sum32);
        const int one_side =
            (magnitude32 + (sum32 < 0 ? -sum32 : sum32)) / 2;  // of positive codes, or of negative ones
        max_partial_sum32 = max_partial_sum32 < one_side ? one_side : max_partial_sum32;
    }
    row.max_partial_sum[2 * b] = static_cast<std::uint16_t>(max_partial_sum32);
    row.max_partial_sum[2 * b + 1] = static_cast<std::uint16_t>(max_partial_sum16);
}

/// Blocks first … end-1 of a row of k values; `x` is the whole row.
template <class Arch>
void quantize_activation(DType type, const float* x, std::int64_t k, std::byte* row, std::int64_t first,
                         std::int64_t end) noexcept {
    const Activations out = activation_parts<Arch>(type, k, row);
    const int n = type == DType::x8_32 ? 32 : 256;
    for (std::int64_t b = first; b < end; ++b) {
        out.d[b] = quantize_block<Arch>(x + n * b, n, out.q + n * b);
        sum_block<Arch>(type, out, b);
    }
}

/// A whole row.
template <class Arch>
void quantize_activation(DType type, const float* x, std::int64_t k, std::byte* row) noexcept {
    quantize_activation<Arch>(type, x, k, row, 0, k / (type == DType::x8_32 ? 32 : 256));
}

}  // namespace tinfer::kernels
