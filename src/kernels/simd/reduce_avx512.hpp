// SPDX-License-Identifier: MIT
// Reductions of several AVX-512 registers at once: one tree of shuffles gives the totals of sixteen vectors in the
// lanes of one, for the price of four horizontal sums.
#pragma once

#include "kernels/simd/vec.hpp"

#if defined(__AVX512BW__)

#    include <immintrin.h>

namespace tinfer::kernels {

struct AddLanes {
    TINFER_INLINE __m512i operator()(__m512i a, __m512i b) const { return _mm512_add_epi32(a, b); }
};
struct MaxLanes {  ///< unsigned
    TINFER_INLINE __m512i operator()(__m512i a, __m512i b) const { return _mm512_max_epu32(a, b); }
};

/// Totals of four vectors of sixteen lanes, by quarters: lane 4q + i holds the total of quarter q of v[i].
template <class Op = AddLanes>
static TINFER_INLINE __m512i reduce_quarters(__m512i v0, __m512i v1, __m512i v2, __m512i v3, Op op = {}) {
    const __m512i a = op(_mm512_unpacklo_epi32(v0, v1), _mm512_unpackhi_epi32(v0, v1));
    const __m512i b = op(_mm512_unpacklo_epi32(v2, v3), _mm512_unpackhi_epi32(v2, v3));
    return op(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}
/// Of four such results, the totals of all: lane 4g + i holds the total of vector i of result g.
template <class Op = AddLanes>
static TINFER_INLINE __m512i reduce_results(const __m512i (&g)[4], Op op = {}) {
    const __m512i a = op(_mm512_shuffle_i32x4(g[0], g[1], 0x88), _mm512_shuffle_i32x4(g[0], g[1], 0xDD));
    const __m512i b = op(_mm512_shuffle_i32x4(g[2], g[3], 0x88), _mm512_shuffle_i32x4(g[2], g[3], 0xDD));
    return op(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD));
}

struct AddFloats {
    TINFER_INLINE __m512 operator()(__m512 a, __m512 b) const { return _mm512_add_ps(a, b); }
};
struct MaxFloats {
    TINFER_INLINE __m512 operator()(__m512 a, __m512 b) const { return _mm512_max_ps(a, b); }
};
/// Lane i: the lanes of v[i] put together in the order of numerics rule 3, l with l + 8, then + 4, + 2, + 1.
template <class Op>
static TINFER_INLINE __m512 reduce_sixteen(const float (&v)[16][16], Op op) {
    __m512 halves[8], quarters[4], pairs[2];
    for (int i = 0; i < 8; ++i) {
        const __m512 x = _mm512_load_ps(v[2 * i]), y = _mm512_load_ps(v[2 * i + 1]);
        halves[i] = op(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xEE));
    }
    for (int i = 0; i < 4; ++i) {  // quarter q: four lanes of vector 4i + q
        const __m512 x = halves[2 * i], y = halves[2 * i + 1];
        quarters[i] = op(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xDD));
    }
    for (int i = 0; i < 2; ++i) {
        const __m512d x = _mm512_castps_pd(quarters[2 * i]), y = _mm512_castps_pd(quarters[2 * i + 1]);
        pairs[i] = op(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    }
    const __m512 sums = op(_mm512_shuffle_ps(pairs[0], pairs[1], 0x88), _mm512_shuffle_ps(pairs[0], pairs[1], 0xDD));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_ps(order, sums);
}

}  // namespace tinfer::kernels

#endif
