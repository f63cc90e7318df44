// SPDX-License-Identifier: MIT
// Activation rows as codes, by AVX-512: sixteen blocks of 32 side by side, so that one division serves them all, and
// super-blocks with their sums taken from whole registers of codes. The bits are those of activation_q8.hpp, which
// does what is left over and rows with values that are not finite.
#pragma once

#include "kernels/quants/activation_q8.hpp"
#include "kernels/simd/reduce_avx512.hpp"

namespace tinfer::kernels {

#if defined(__AVX512BW__)

inline constexpr std::uint32_t kNotFinite = 0x7F800000u;  ///< magnitudes from here on

static TINFER_INLINE __m512i magnitude_bits(const float* x) {
    return _mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi32(0x7FFFFFFF));
}
/// 64 values, 32 times each of the two inverse scales, as codes: |x · inverse| ≤ 127, rounded half to even.
static TINFER_INLINE __m512i codes_of_64(const float* x0, const float* x1, __m512 inverse0, __m512 inverse1) {
    const auto rounded = [](const float* x, __m512 inverse) {
        return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), inverse));
    };
    const __m512i first = _mm512_packs_epi32(rounded(x0, inverse0), rounded(x0 + 16, inverse0));
    const __m512i second = _mm512_packs_epi32(rounded(x1, inverse1), rounded(x1 + 16, inverse1));
    // Packing keeps to quarters: dword i of quarter q holds values 4q … 4q + 3 of register i.
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(first, second));
}
/// 1/d, or 0 where d is no normal number.
static TINFER_INLINE __m512 inverse_scales(__m512 d) {
    const __mmask16 normal = _mm512_cmp_ps_mask(d, _mm512_set1_ps(0x1p-126f), _CMP_GE_OQ);
    return _mm512_maskz_div_ps(normal, _mm512_set1_ps(1.0f), d);
}
/// Sums of 4 codes in each lane.
static TINFER_INLINE __m512i sums_of_4(__m512i codes) {
    return _mm512_madd_epi16(_mm512_maddubs_epi16(_mm512_set1_epi8(1), codes), _mm512_set1_epi16(1));
}

/// Blocks first … first + n-1 of 32 values, n ≤ 16; missing ones repeat the last. False where a value is not finite.
static inline bool quantize_sixteen_blocks(const float* x, const Activations& out, std::int64_t first, int n) noexcept {
    const auto block = [&](int j) { return first + (j < n ? j : n - 1); };
    __m512i quarters[4], most[4];
#    pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
#    pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            const float* at = x + 32 * block(4 * g + j);
            most[j] = _mm512_max_epu32(magnitude_bits(at), magnitude_bits(at + 16));
        }
        quarters[g] = reduce_quarters(most[0], most[1], most[2], most[3], MaxLanes{});
    }
    const __m512i amax = reduce_results(quarters, MaxLanes{});
    if (_mm512_cmpge_epu32_mask(amax, _mm512_set1_epi32(static_cast<int>(kNotFinite))) != 0) return false;
    const __m512 d = _mm512_div_ps(_mm512_castsi512_ps(amax), _mm512_set1_ps(127.0f)), inverses = inverse_scales(d);
    alignas(64) float inverse[16];
    _mm512_store_ps(inverse, inverses);

    __m512i sums[8];  // of two blocks, four codes in a lane
#    pragma GCC unroll 8
    for (int j = 0; j < 16; j += 2) {
        const std::int64_t a = block(j), b = block(j + 1);
        const __m512i codes =
            codes_of_64(x + 32 * a, x + 32 * b, _mm512_set1_ps(inverse[j]), _mm512_set1_ps(inverse[j + 1]));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.q + 32 * a), _mm512_castsi512_si256(codes));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.q + 32 * b), _mm512_extracti64x4_epi64(codes, 1));
        sums[j / 2] = sums_of_4(codes);
    }
    // Quarters 0 and 1 belong to the even block of a pair, 2 and 3 to the odd one.
    const __m512i low = reduce_quarters(sums[0], sums[1], sums[2], sums[3]),
                  high = reduce_quarters(sums[4], sums[5], sums[6], sums[7]);
    const __m512i pairs =
        _mm512_add_epi32(_mm512_shuffle_i32x4(low, high, 0x88), _mm512_shuffle_i32x4(low, high, 0xDD));
    // pairs: even blocks 0 2 4 6, odd 1 3 5 7, even 8 …, odd 9 …
    const __m512i order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    const __m512i sum = _mm512_permutexvar_epi32(order, pairs);
    const auto there = static_cast<__mmask16>((1u << n) - 1);
    _mm512_mask_storeu_ps(out.d + first, there, d);
    _mm512_mask_storeu_ps(out.s + first, there, _mm512_mul_ps(d, _mm512_cvtepi32_ps(sum)));
    _mm512_mask_storeu_epi32(out.sum + first, there, sum);
    return true;
}

/// Sums of sixteen bytes each of 256 unsigned bytes: word i belongs to bytes 16i … 16i + 15.
static TINFER_INLINE __m256i sums_of_16(const __m512i (&bytes)[4]) {
    __m512i eights[4];
    for (int i = 0; i < 4; ++i) eights[i] = _mm512_sad_epu8(bytes[i], _mm512_setzero_si512());
    const auto add_pairs = [](__m512i a, __m512i b) {
        return _mm512_add_epi64(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    };
    const __m512i a = add_pairs(eights[0], eights[1]),
                  b = add_pairs(eights[2], eights[3]);  // qword 2q + i: quarter q of register i
    const __m512i order =
        _mm512_zextsi256_si512(_mm256_setr_epi16(0, 8, 16, 24, 4, 12, 20, 28, 32, 40, 48, 56, 36, 44, 52, 60));
    return _mm512_castsi512_si256(_mm512_permutex2var_epi16(a, order, b));
}
/// The largest of eight unsigned words.
static TINFER_INLINE std::uint16_t largest_word(__m128i x) {
    const __m128i least = _mm_minpos_epu16(_mm_xor_si128(x, _mm_set1_epi16(-1)));
    return static_cast<std::uint16_t>(~_mm_cvtsi128_si32(least));
}

/// Super-block b. False where a value is not finite.
static inline bool quantize_super_block(const float* x, const Activations& out, std::int64_t b) noexcept {
    x += 256 * b;
    __m512i most[4];
#    pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        most[i] = magnitude_bits(x + 16 * i);
        for (int j = i + 4; j < 16; j += 4) most[i] = _mm512_max_epu32(most[i], magnitude_bits(x + 16 * j));
    }
    const std::uint32_t amax = _mm512_reduce_max_epu32(
        _mm512_max_epu32(_mm512_max_epu32(most[0], most[1]), _mm512_max_epu32(most[2], most[3])));
    if (amax >= kNotFinite) return false;
    const float d = __builtin_bit_cast(float, amax) / 127.0f;
    const __m512 inverse = _mm512_set1_ps(d >= 0x1p-126f ? 1.0f / d : 0.0f);
    __m512i unsigned_codes[4], magnitudes[4];
#    pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const __m512i codes = codes_of_64(x + 64 * i, x + 64 * i + 32, inverse, inverse);
        _mm512_storeu_si512(out.q + 256 * b + 64 * i, codes);
        unsigned_codes[i] = _mm512_xor_si512(codes, _mm512_set1_epi8(static_cast<char>(0x80)));
        magnitudes[i] = _mm512_abs_epi8(codes);
    }
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i sum16 = _mm256_sub_epi16(sums_of_16(unsigned_codes), _mm256_set1_epi16(16 * 128)),
                  magnitude16 = sums_of_16(magnitudes);
    const __m256i sum32 = _mm256_madd_epi16(sum16, ones), magnitude32 = _mm256_madd_epi16(magnitude16, ones);
    const __m256i one_side = _mm256_srli_epi32(_mm256_add_epi32(magnitude32, _mm256_abs_epi32(sum32)), 1);
    out.d[b] = d;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.sum16 + 16 * b), sum16);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out.sum32 + 8 * b), _mm256_cvtepi32_epi16(sum32));
    out.max_partial_sum[2 * b] = largest_word(_mm256_cvtepi32_epi16(one_side));
    out.max_partial_sum[2 * b + 1] =
        largest_word(_mm_max_epu16(_mm256_castsi256_si128(magnitude16), _mm256_extracti128_si256(magnitude16, 1)));
    return true;
}

#endif

/// quantize_activation by the widest registers there are.
template <class Arch>
inline void quantize_blocks(DType type, const float* x, std::int64_t k, std::byte* row, std::int64_t first,
                            std::int64_t end) noexcept {
#if defined(__AVX512BW__)
    if constexpr (Arch::kLanes == 16) {
        constexpr std::int64_t kWorthwhile = 5;
        const Activations out = activation_parts<Arch>(type, k, row);
        while (type == DType::x8_32 && end - first >= kWorthwhile) {
            const int n = end - first < 16 ? static_cast<int>(end - first) : 16;
            if (!quantize_sixteen_blocks(x, out, first, n))
                quantize_activation<Arch>(type, x, k, row, first, first + n);
            first += n;
        }
        while (type == DType::x8_256 && first < end) {
            if (!quantize_super_block(x, out, first)) quantize_activation<Arch>(type, x, k, row, first, first + 1);
            ++first;
        }
    }
#endif
    quantize_activation<Arch>(type, x, k, row, first, end);
}

/// A whole row.
template <class Arch>
inline void quantize_blocks(DType type, const float* x, std::int64_t k, std::byte* row) noexcept {
    quantize_blocks<Arch>(type, x, k, row, 0, k / (type == DType::x8_32 ? 32 : 256));
}

}  // namespace tinfer::kernels
