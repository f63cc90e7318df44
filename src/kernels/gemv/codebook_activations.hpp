// SPDX-License-Identifier: MIT
// Activations in the order in which products of few tokens meet formats with codebooks
// (kernels/gemv/codebook_avx512.hpp): packed once for all rows.
#pragma once

#include "kernels/dequantize/unpack_bits.hpp"
#include "kernels/quants/activation_q8.hpp"

#if defined(__AVX2__)

namespace tinfer::kernels {

/// A super-block of a token: words of two values, of each eight the j-th in q[j].
struct CodebookToken {
    alignas(64) std::int8_t q[4][64];
    std::int32_t acc_init[16];  ///< where sums of sixteen values start: less the bias of their codes
};
/// A token's super-blocks, n of them.
template <class Arch>
void pack_codebook_token(const Activations& x, std::int64_t n, int bias, CodebookToken* out) noexcept {
    for (std::int64_t i = 0; i < n; ++i, ++out) {
        for (int part = 0; part < 16; ++part) {  // two times eight values
            const __m128i place = _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
            const __m128i words = _mm_shuffle_epi8(load_bytes16(x.q + 256 * i + 16 * part), place);
            std::int32_t lanes[4];
            std::memcpy(lanes, &words, 16);
            for (int j = 0; j < 4; ++j) std::memcpy(out->q[j] + 4 * part, &lanes[j], 4);
        }
        for (int l = 0; l < 16; ++l) out->acc_init[l] = -bias * x.sum16[16 * i + l];
    }
}

}  // namespace tinfer::kernels

#endif
