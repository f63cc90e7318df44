// SPDX-License-Identifier: MIT
// Products of a token straight from rows of the file, for AVX-512 with VNNI: IQ4_XS (kernels/gemv/common_avx512.hpp).
#pragma once

#include "kernels/gemv/common_avx512.hpp"

#if defined(__AVX512VNNI__)

namespace tinfer::kernels {

/// Its codes are levels so large that a sum of eight products meets its scale in 32 bits. Sub-block 4 · half + q lies
/// in quarter q.
struct LevelRows {
    /// Lanes of S of the block of a row, the bias of its codes included: a has the activations, half by half their
    /// first 16 values of a sub-block, their last 16.
    static TINFER_INLINE __m512i sum(const std::uint8_t* block, const __m512i (&a)[4], const std::int16_t* sum32) {
        const __m256i scales = scales_of_iq4_xs(block);
        const __m512i sub = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        const __m128i bias = _mm_slli_epi32(_mm_madd_epi16(_mm256_cvtepi32_epi16(scales), load_bytes16(sum32)), 7);
        __m512i total = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_zextsi128_si512(bias));
#    pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
            const __m512i bytes = load64(block + 8 + 64 * half);
            const __m512i first = level_codes<avx512vnni, IQ4_XS, 16>(low_nibbles(bytes)),
                          last = level_codes<avx512vnni, IQ4_XS, 16>(high_nibbles(bytes));
            const __m512i both = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), first, a[2 * half]),
                                                     last, a[2 * half + 1]);
            const __m512i by_sub = _mm512_permutexvar_epi32(_mm512_add_epi32(sub, _mm512_set1_epi32(4 * half)),
                                                            _mm512_castsi256_si512(scales));
            total = _mm512_add_epi32(total, _mm512_mullo_epi32(both, by_sub));
        }
        return total;
    }
    static TINFER_INLINE void load_activations(const std::int8_t* q, __m512i (&a)[4]) {
        for (int half = 0; half < 2; ++half) {
            const __m512i x = load64(q + 128 * half), y = load64(q + 128 * half + 64);
            a[2 * half] = _mm512_shuffle_i32x4(x, y, 0x88);
            a[2 * half + 1] = _mm512_shuffle_i32x4(x, y, 0xDD);
        }
    }
};

/// Results of four rows of n_blocks super-blocks of IQ4_XS against a token, which is a matter of latency: a processor
/// looks ahead by little more than a block, and what a block computes is a long chain. So its d is read a block ahead,
/// and the float steps follow a block behind.
template <class Arch>
[[gnu::noinline]] void multiply_level_rows(const FourRows& rows, std::int64_t n_blocks, const Activations& x,
                                           float* results) noexcept {
    __m128 acc = _mm_setzero_ps();
    const auto add_step = [&](std::int64_t i, __m128 d, const __m512i(&sum)[4]) __attribute__((always_inline)) {
        acc = _mm_fmadd_ps(_mm_mul_ps(d, _mm_set1_ps(x.d[i])),
                           _mm_cvtepi32_ps(add_quarters(reduce_quarters(sum[0], sum[1], sum[2], sum[3]))), acc);
    };
    __m128 d = four_halves(rows, 0), d_before = d;
    __m512i before[4];
    for (std::int64_t i = 0; i < n_blocks; ++i) {
        const std::int64_t at = i * IQ4_XS::kBlockBytes;
        __m512i a[4], sum[4];
        LevelRows::load_activations(x.q + 256 * i, a);
#    pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) {
            rows.prefetch<IQ4_XS::kBlockBytes>(r, at);
            sum[r] = LevelRows::sum(rows.row[r] + at, a, x.sum32 + 8 * i);
        }
        if (i > 0) add_step(i - 1, d_before, before);
        d_before = d;
        std::memcpy(before, sum, sizeof(before));
        if (i + 1 < n_blocks) d = four_halves(rows, at + IQ4_XS::kBlockBytes);
    }
    add_step(n_blocks - 1, d_before, before);
    _mm_storeu_ps(results, acc);
}

}  // namespace tinfer::kernels

#endif
