// SPDX-License-Identifier: MIT
// Reductions of several AVX-512 registers at once: one tree of shuffles gives the totals of sixteen vectors in the lanes of
// one, for the price of four horizontal sums.
#pragma once

#include "kernels/simd.hpp"

#if defined(__AVX512BW__)

#include <immintrin.h>

namespace tinfer::kernels {

struct AddLanes {
    TINFER_INLINE __m512i operator()(__m512i a, __m512i b) const { return _mm512_add_epi32(a, b); }
};
struct MaxLanes {   ///< unsigned
    TINFER_INLINE __m512i operator()(__m512i a, __m512i b) const { return _mm512_max_epu32(a, b); }
};

/// Totals of four vectors of sixteen lanes, by quarters: lane 4q + i holds the total of quarter q of v[i].
template <class Op = AddLanes>
static TINFER_INLINE __m512i fold_quarters(__m512i v0, __m512i v1, __m512i v2, __m512i v3, Op op = {}) {
    const __m512i a = op(_mm512_unpacklo_epi32(v0, v1), _mm512_unpackhi_epi32(v0, v1));
    const __m512i b = op(_mm512_unpacklo_epi32(v2, v3), _mm512_unpackhi_epi32(v2, v3));
    return op(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}
/// Of four such results, the totals of all: lane 4g + i holds the total of vector i of result g.
template <class Op = AddLanes>
static TINFER_INLINE __m512i fold_results(const __m512i (&g)[4], Op op = {}) {
    const __m512i a = op(_mm512_shuffle_i32x4(g[0], g[1], 0x88), _mm512_shuffle_i32x4(g[0], g[1], 0xDD));
    const __m512i b = op(_mm512_shuffle_i32x4(g[2], g[3], 0x88), _mm512_shuffle_i32x4(g[2], g[3], 0xDD));
    return op(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD));
}

}  // namespace tinfer::kernels

#endif
