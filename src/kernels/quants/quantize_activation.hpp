// SPDX-License-Identifier: MIT
// Activation rows as 8-bit codes, the other factor of every quantized product (numerics rule 6): per block of 32 or 256
// values d = max|x| / 127 in float32 and q = x/d rounded half to even, with the sums of codes that products need.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.hpp"

namespace tinfer::kernels {

/// The parts of one activation row (layout: base/dtype.hpp). x8_32 has s and sum32, x8_256 has sum16.
struct Activations {
    std::int8_t* q;           ///< codes, −127 … 127
    float* d;                 ///< scale per block
    float* s;                 ///< d · sum32
    std::int32_t* sum32;      ///< sum of the codes per 32
    std::int16_t* sum16;      ///< sum of the codes per 16: at most 16 · 127 = 2032 in magnitude
};

template <class Arch>
[[nodiscard]] Activations activation_parts(DType type, std::int64_t k, std::byte* row) noexcept {
    const ActivationLayout at = activation_layout(type, k);
    const bool by_32 = type == DType::x8_32;
    return {reinterpret_cast<std::int8_t*>(row), reinterpret_cast<float*>(row + at.d_offset),
            by_32 ? reinterpret_cast<float*>(row + at.s_offset) : nullptr,
            by_32 ? reinterpret_cast<std::int32_t*>(row + at.sum_offset) : nullptr,
            by_32 ? nullptr : reinterpret_cast<std::int16_t*>(row + at.sum_offset)};
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
    const float inverse = d >= 0x1p-126f ? 1.0f / d : 0.0f;   // NaN compares false
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

/// Blocks first … end-1 of a row of k values; `x` is the whole row.
template <class Arch>
void quantize_activation(DType type, const float* x, std::int64_t k, std::byte* row, std::int64_t first,
                                   std::int64_t end) noexcept {
    const Activations out = activation_parts<Arch>(type, k, row);
    for (std::int64_t b = first; b < end; ++b) {
        if (type == DType::x8_32) {
            out.d[b] = quantize_block<Arch>(x + 32 * b, 32, out.q + 32 * b);
            out.sum32[b] = sum_codes<Arch>(out.q + 32 * b, 32);
            out.s[b] = out.d[b] * static_cast<float>(out.sum32[b]);
        } else {
            out.d[b] = quantize_block<Arch>(x + 256 * b, 256, out.q + 256 * b);
            for (std::int64_t j = 16 * b; j < 16 * b + 16; ++j)
                out.sum16[j] = static_cast<std::int16_t>(sum_codes<Arch>(out.q + 16 * j, 16));
        }
    }
}

/// A whole row.
template <class Arch>
void quantize_activation(DType type, const float* x, std::int64_t k, std::byte* row) noexcept {
    quantize_activation<Arch>(type, x, k, row, 0, k / (type == DType::x8_32 ? 32 : 256));
}

}  // namespace tinfer::kernels
