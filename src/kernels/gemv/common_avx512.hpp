// SPDX-License-Identifier: MIT
// Products of a token straight from rows of the file, for AVX-512, mostly with VNNI: that is a matter of reading every
// weight once, so nothing is transposed or stored on the way. Four rows are read together, block by block, each of a
// stream of its own that is read in ascending order, as a plain loop would read; integer sums lie along the lanes of a
// row and are horizontally reduced four rows at a time, so that float steps have rows in lanes. Here is what all of
// these products share.
#pragma once

#include "kernels/gemv/row_streams.hpp"
#include "kernels/quants/activation_q8.hpp"
#include "kernels/simd/reduce_avx512.hpp"

#if defined(__AVX512BW__)

namespace tinfer::kernels {

using FourRows = RowGroup<4>;
using SixteenRows = RowGroup<16>;
using SixteenPairs = RowGroup<16, 2>;
/// Read once: as an operand of several instructions it would be read by each of them, and most of it spans two lines.
static TINFER_INLINE __m512i load64(const void* p) {
    __m512i z = _mm512_loadu_si512(p);
    asm("" : "+v"(z));
    return z;
}

/// Four floats, each in all lanes of a quarter.
static TINFER_INLINE __m512 by_quarters(const float* x) {
    const __m512i index = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return _mm512_permutexvar_ps(index, _mm512_castps128_ps512(_mm_loadu_ps(x)));
}
static TINFER_INLINE __m128i add_halves(__m256i v) {
    return _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}
/// The sum of the quarters.
static TINFER_INLINE __m128i add_quarters(__m512i v) {
    return add_halves(_mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1)));
}

/// Half floats at `at` of four rows.
static TINFER_INLINE __m128 four_halves(const FourRows& rows, std::int64_t at) {
    std::int16_t d[4];
    for (int r = 0; r < 4; ++r) std::memcpy(&d[r], rows.row[r] + at, 2);
    return _mm_cvtph_ps(_mm_setr_epi16(d[0], d[1], d[2], d[3], 0, 0, 0, 0));
}

}  // namespace tinfer::kernels

#endif
