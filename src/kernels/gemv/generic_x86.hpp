// SPDX-License-Identifier: MIT
// A row of quantized weights times a few tokens, for x86-64: each block is unpacked into L1, as for a panel,
// but meets the activations at once instead of being transposed: the formats that have no row streams of their own
// (kernels/gemv/skinny.hpp, kernels/gemv/common_avx512.hpp). The float steps are those of
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

static TINFER_INLINE std::int32_t sum_of_lanes(__m128i four) {
    const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
}
static TINFER_INLINE std::int32_t sum_of_lanes(__m256i v) {
    return sum_of_lanes(_mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}

/// acc and super-block b of a row.
static TINFER_INLINE float add_unpacked(const Codes256& w, const Activations& x, std::int64_t b, float acc) noexcept {
    const __m256i scales = load_bytes32(w.scale);  // sixteen: one for each half of eight pieces of 32 values
    const __m256i eight[2] = {_mm256_permute2x128_si256(scales, scales, 0x00),
                              _mm256_permute2x128_si256(scales, scales, 0x11)};
    // Word 0 to all of the low half, word 1 to all of the high half; four bytes further for every piece.
    const __m256i first = _mm256_setr_epi32(0x01000100, 0x01000100, 0x01000100, 0x01000100, 0x03020302, 0x03020302,
                                            0x03020302, 0x03020302);
    __m256i sum = _mm256_setzero_si256();
#    pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
        const __m256i scale =
            _mm256_shuffle_epi8(eight[j / 4], _mm256_add_epi8(first, _mm256_set1_epi8(static_cast<char>(4 * (j % 4)))));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs_of_32(w.q + 32 * j, x.q + 256 * b + 32 * j), scale));
    }
    return __builtin_fmaf(w.d * x.d[b], static_cast<float>(sum_of_lanes(sum)), acc);
}
/// acc[t] = ⟨row, x[t]⟩ for T tokens, super-blocks. Memory is prefetched a kilobyte ahead.
template <class Arch, class Format, int T>
inline void multiply_unpacked_row(const std::uint8_t* block, std::int64_t k, const Activations (&x)[T],
                                  float (&acc)[T]) noexcept {
    static_assert(!Format::kHasMin);  // those have routes of their own
    for (int t = 0; t < T; ++t) acc[t] = 0.0f;
    for (std::int64_t b = 0; b < k / 256; ++b, block += Format::kBlockBytes) {
        for (int line = 0; line < Format::kBlockBytes; line += 64) __builtin_prefetch(block + kPrefetchAhead + line);
        Codes256 codes;
        unpack_block<Arch, Format>(block, 0, codes);
        for (int t = 0; t < T; ++t) acc[t] = add_unpacked(codes, x[t], b, acc[t]);
    }
}

// ---- Blocks of 32: eight rows at once, so that float steps have rows in lanes ---------------------------------------

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
