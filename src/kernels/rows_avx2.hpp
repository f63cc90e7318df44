// SPDX-License-Identifier: MIT
// A row of quantized weights times a token, for x86-64 without byte dot products: each block is unpacked into the first
// level, as for a panel, but meets the activations at once instead of being turned. The float steps are those of
// kernels/quants/format.hpp.
#pragma once

#include "kernels/quants/quantize_activation.hpp"
#include "kernels/unpack.hpp"

namespace tinfer::kernels {

#if defined(__AVX2__)

/// The products of 32 codes and 32 activations, added in pairs: exact while |q| ≤ 128, |a| ≤ 127.
static TINFER_INLINE __m256i pairs_of_32(const std::int8_t* q, const std::int8_t* a) {
    return dot_signed_bytes(i32v<avx2>(load_bytes32(q)), i32v<avx2>(load_bytes32(a)), avx2{});
}
static TINFER_INLINE std::int32_t sum_of_lanes(__m128i four) {
    const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
}
static TINFER_INLINE std::int32_t sum_of_lanes(__m256i v) {
    return sum_of_lanes(_mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}

/// acc and super-block b of a row.
template <class Format>
static TINFER_INLINE float add_unpacked(const Codes256& w, const Activations& x, std::int64_t b, float acc) noexcept {
    const __m256i scales = load_bytes32(w.scale);   // sixteen: one for each half of eight pieces of 32 values
    const __m256i eight[2] = {_mm256_permute2x128_si256(scales, scales, 0x00), _mm256_permute2x128_si256(scales, scales, 0x11)};
    // Word 0 to all of the low half, word 1 to all of the high half; four bytes further for every piece.
    const __m256i first = _mm256_setr_epi32(0x01000100, 0x01000100, 0x01000100, 0x01000100, 0x03020302, 0x03020302, 0x03020302, 0x03020302);
    __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
        const __m256i scale = _mm256_shuffle_epi8(eight[j / 4], _mm256_add_epi8(first, _mm256_set1_epi8(static_cast<char>(4 * (j % 4)))));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs_of_32(w.q + 32 * j, x.q + 256 * b + 32 * j), scale));
    }
    acc = __builtin_fmaf(w.d * x.d[b], static_cast<float>(sum_of_lanes(sum)), acc);
    if constexpr (Format::kHasMin) {
        const std::int32_t n = sum_of_lanes(_mm256_madd_epi16(load_bytes32(w.min), load_bytes32(x.sum16 + 16 * b)));
        acc = __builtin_fmaf(-(w.dmin * x.d[b]), static_cast<float>(n), acc);
    }
    return acc;
}
/// The same of block b of 32 values.
template <class Format>
static TINFER_INLINE float add_unpacked(const Codes32& w, const Activations& x, std::int64_t b, float acc) noexcept {
    const __m256i fours = _mm256_madd_epi16(pairs_of_32(w.q, x.q + 32 * b), _mm256_set1_epi16(1));
    if constexpr (Format::kScaleElems == 16) {
        acc = __builtin_fmaf(w.d[0] * x.d[b], static_cast<float>(sum_of_lanes(_mm256_castsi256_si128(fours))), acc);
        acc = __builtin_fmaf(w.d[1] * x.d[b], static_cast<float>(sum_of_lanes(_mm256_extracti128_si256(fours, 1))), acc);
    } else {
        acc = __builtin_fmaf(w.d[0] * x.d[b], static_cast<float>(sum_of_lanes(fours)), acc);
    }
    if constexpr (Format::kHasMin) acc = __builtin_fmaf(w.m, x.s[b], acc);
    return acc;
}

/// acc[t] = ⟨row, x[t]⟩ for T tokens. Memory is asked for a kilobyte ahead.
template <class Arch, class Format, int T>
inline void multiply_unpacked_row(const std::uint8_t* block, std::int64_t k, const Activations (&x)[T], float (&acc)[T]) noexcept {
    constexpr int kUnits = Format::kBlockElems / Format::kUnit;
    for (int t = 0; t < T; ++t) acc[t] = 0.0f;
    for (std::int64_t b = 0; b < k / Format::kBlockElems; ++b, block += Format::kBlockBytes) {
        for (int line = 0; line < Format::kBlockBytes; line += 64) __builtin_prefetch(block + 1024 + line);
        for (int unit = 0; unit < kUnits; ++unit) {
            std::conditional_t<Format::kUnit == 256, Codes256, Codes32> codes;
            unpack_block<Arch, Format>(block, unit, codes);
            for (int t = 0; t < T; ++t) acc[t] = add_unpacked<Format>(codes, x[t], kUnits * b + unit, acc[t]);
        }
    }
}

#endif

}  // namespace tinfer::kernels
