// SPDX-License-Identifier: MIT
// Products of few tokens straight from rows of the file, for AVX-512: formats whose codes are rows of a codebook. Four
// rows of weights are read as in kernels/gemv/common_avx512.hpp. Codes take up their signs and become unsigned by a
// bias, which is taken off where sums start; they lie so that all values in a lane have one scale, and activations are
// packed to meet them, once for all rows. How formats are read is in kernels/gemv/codebook_read_avx512.hpp; the same
// with registers of 32 bytes is in kernels/gemv/codebook_avx2.hpp.
#pragma once

#include "kernels/gemv/codebook_avx2.hpp"
#include "kernels/gemv/codebook_read_avx512.hpp"

#if defined(__AVX512BW__)

namespace tinfer::kernels {

/// sum and the products of unsigned codes ≤ 126 and activations, four in each lane.
template <class Arch>
TINFER_INLINE __m512i add_products(__m512i sum, __m512i codes, __m512i a) {
#    if defined(__AVX512VNNI__)
    return _mm512_dpbusd_epi32(sum, codes, a);
#    else
    return _mm512_add_epi32(
        sum, _mm512_madd_epi16(_mm512_maddubs_epi16(codes, a), _mm512_set1_epi16(1)));  // |pairs| ≤ 2 · 126 · 127
#    endif
}

/// Products of four rows of n_blocks super-blocks and T tokens, which lie one behind the other: those of token t from
/// results + t · stride on. What follows the rows is prefetched unless another pass has done so.
template <class Arch, class Format, int T>
[[gnu::noinline]] void multiply_codebook_rows(const FourRows& rows, std::int64_t n_blocks, const CodebookToken* tokens,
                                              const Activations* x, bool prefetches, float* results,
                                              std::int64_t stride) noexcept {
    using Rows = CodebookRows<Format>;
    const Rows book;
    typename Rows::Header headers[4];  // of a block ahead
    for (int r = 0; r < 4; ++r) Rows::header(rows.row[r], headers[r]);
    __m128 acc[T];
    for (int t = 0; t < T; ++t) acc[t] = _mm_setzero_ps();
    for (std::int64_t i = 0; i < n_blocks; ++i) {
        const std::int64_t at = i * Format::kBlockBytes;
        __m512i sums[T][2];  // of two interleaved rows
#    pragma GCC unroll 2
        for (int pair = 0; pair < 2; ++pair) {
            __m512i codes[2][4], scales[2];
#    pragma GCC unroll 2
            for (int r = 0; r < 2; ++r) {
                if (prefetches) rows.prefetch<Format::kBlockBytes>(2 * pair + r, at);
                const std::uint8_t* block = rows.row[2 * pair + r] + at;
                auto& header = headers[2 * pair + r];
                book.codes(block, header, codes[r]);
                scales[r] = Rows::scales(block, header);
                if (i + 1 < n_blocks) Rows::header(block + Format::kBlockBytes, header);
            }
#    pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
                const CodebookToken& token = tokens[t * n_blocks + i];
                __m512i sum[2];
                sum[0] = sum[1] = load64(token.acc_init);
#    pragma GCC unroll 4
                for (int j = 0; j < 4; ++j) {  // |S| of a lane, and what of it is summed: ≤ 16 · 127 · 2 · 126
                    const __m512i a = load64(token.q[j]);
                    for (int r = 0; r < 2; ++r) sum[r] = add_products<Arch>(sum[r], codes[r][j], a);
                }
                for (int r = 0; r < 2; ++r) sum[r] = _mm512_mullo_epi32(sum[r], scales[r]);
                sums[t][pair] =
                    _mm512_add_epi32(_mm512_unpacklo_epi32(sum[0], sum[1]), _mm512_unpackhi_epi32(sum[0], sum[1]));
            }
        }
        const __m128 d = _mm_mul_ps(Rows::four_d(rows, at), _mm_set1_ps(CodebookHalves<Format>::kFactor));
#    pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
            const __m512i by_rows = _mm512_add_epi32(_mm512_unpacklo_epi64(sums[t][0], sums[t][1]),
                                                     _mm512_unpackhi_epi64(sums[t][0], sums[t][1]));
            acc[t] =
                _mm_fmadd_ps(_mm_mul_ps(d, _mm_set1_ps(x[t].d[i])), _mm_cvtepi32_ps(add_quarters(by_rows)), acc[t]);
        }
    }
    for (int t = 0; t < T; ++t) _mm_storeu_ps(results + t * stride, acc[t]);
}

}  // namespace tinfer::kernels

#endif
