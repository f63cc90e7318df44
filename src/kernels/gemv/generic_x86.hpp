// SPDX-License-Identifier: MIT
// A token times eight rows of blocks of 32, for x86-64: each block is unpacked into L1, as for a panel, but meets the
// activations at once instead of being transposed: the formats that have no row streams of their own
// (kernels/gemv/skinny.hpp, kernels/gemv/common_avx512.hpp). Float steps have rows in lanes; they are those of
// kernels/quants/format.hpp.
#pragma once

#include "kernels/dequantize/block_codes.hpp"
#include "kernels/quants/activation_q8.hpp"

namespace tinfer::kernels {

#if defined(__AVX2__)

/// The products of 32 codes and 32 activations, added in pairs: exact while |q| ≤ 128 and |a| ≤ 127.
static TINFER_INLINE __m256i pairs_of_32(const std::int8_t* q, const std::int8_t* a) {
    return dot_signed_bytes(i32v<avx2>(load_bytes32(q)), i32v<avx2>(load_bytes32(a)), avx2{});
}
inline constexpr int kPrefetchAhead = 1024;  ///< how far ahead in a row is prefetched, in bytes

using EightBlocks = const std::uint8_t* [8];

/// d of unit `unit` of eight blocks: two where a block has two steps.
template <class Arch, class Format>
TINFER_INLINE void eight_scales(const EightBlocks& block, int unit, __m256 (&d)[2]) noexcept {
    const __m256i heads = choose_words([&](int r) { return block[r]; });
    if constexpr (Format::kType == DType::nvfp4) {
        for (int half = 0; half < 2; ++half) d[half] = ue4m3_halves(_mm256_srli_epi32(heads, 8 * (2 * unit + half)));
    } else {  // a block begins with d
        d[0] = low_halves(heads);
    }
}

/// Sums of lanes of eight vectors: those of the low halves, and of the high ones.
static TINFER_INLINE void sum_halves(const __m256i (&v)[8], __m256i& low, __m256i& high) {
    const __m256i first = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    const __m256i last = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    low = _mm256_permute2x128_si256(first, last, 0x20);
    high = _mm256_permute2x128_si256(first, last, 0x31);
}

/// results[r] = ⟨row r, x⟩.
template <class Arch, class Format>
inline void multiply_eight_unpacked_rows(const EightBlocks& rows, std::int64_t k, const Activations& x,
                                         float* results) noexcept {
    static_assert(!Format::kHasMin);
    constexpr int kUnits = Format::kBlockElems / 32;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256 acc = _mm256_setzero_ps();
    for (std::int64_t b = 0; b < k / Format::kBlockElems; ++b) {
        EightBlocks block;
        for (int r = 0; r < 8; ++r) {
            block[r] = rows[r] + b * Format::kBlockBytes;
            __builtin_prefetch(block[r] + kPrefetchAhead);
        }
        for (int unit = 0; unit < kUnits; ++unit) {
            const std::int64_t u = kUnits * b + unit;
            __m256i sums[8], low, high;
#    pragma GCC unroll 8
            for (int r = 0; r < 8; ++r) {
                Codes32 codes;
                unpack_block<Arch, Format>(block[r], unit, codes);
                sums[r] = _mm256_madd_epi16(pairs_of_32(codes.q, x.q + 32 * u), ones);
            }
            sum_halves(sums, low, high);
            __m256 d[2];
            eight_scales<Arch, Format>(block, unit, d);
            const __m256 d_x = _mm256_set1_ps(x.d[u]);
            if constexpr (Format::kScaleElems == 16) {
                acc = _mm256_fmadd_ps(_mm256_mul_ps(d[0], d_x), _mm256_cvtepi32_ps(low), acc);
                acc = _mm256_fmadd_ps(_mm256_mul_ps(d[1], d_x), _mm256_cvtepi32_ps(high), acc);
            } else {
                acc = _mm256_fmadd_ps(_mm256_mul_ps(d[0], d_x), _mm256_cvtepi32_ps(_mm256_add_epi32(low, high)), acc);
            }
        }
    }
    _mm256_storeu_ps(results, acc);
}

#endif

}  // namespace tinfer::kernels
