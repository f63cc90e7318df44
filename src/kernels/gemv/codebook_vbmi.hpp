// SPDX-License-Identifier: MIT
// The products of kernels/gemv/codebook_avx512.hpp where the processor also permutes bytes (AVX-512 VBMI, which
// Processor says): one instruction looks up 64 numbers in 128 bytes, where one of words looks up 32 in 64 words.
// Codebooks are taken apart into bytes for it, and signs are taken up under masks. It is for the formats where that was
// measured faster (docs/performance-zen4.md): of IQ2_XS, whose lanes have two scales, it was not, and the larger
// codebooks of IQ2_S and IQ1 would be read from memory in whole for each block.
#pragma once

#include "kernels/gemv/codebook_avx512.hpp"

#if defined(__AVX512VNNI__)

/// Code for processors that have more than the table needs; compiled so in every function that uses it.
#    define TINFER_VBMI __attribute__((target("avx512vbmi")))

namespace tinfer::kernels {

// A format says here how its blocks are read:
//   kBookBytes, make_book(book)   its codebook in bytes
//   kPairs            whether one register holds codes of two rows: of rows a and b, where bytes 4i … 4i + 3 of the
//                     eight in quarter i/2 are of sub-block i (32 values) of a, the next four of b, and register j has
//                     the j-th of each eight values. Else register j has the j-th of each four values of one row.
//   codes(…)          eight registers of codes of a pair, or four of a row, with bias kBias; returns 2s + 1 for the
//                     scale s of each lane
template <class Format>
struct CodebookBytes;
template <class Format>
inline constexpr bool kHasCodebookBytes = requires {
    CodebookBytes<Format>::kBookBytes;
};

/// A super-block of a token in the order in which codes meet it, and where sums of lanes start: less the bias of their
/// codes.
template <class Format>
struct BytesToken {
    alignas(64) std::int8_t q[CodebookBytes<Format>::kPairs ? 8 : 4][64];
    std::int32_t sums[16];
};

/// A token's super-blocks, n of them.
template <class Arch, class Format>
void pack_bytes_token(const Activations& x, std::int64_t n, BytesToken<Format>* out) noexcept {
    using Rows = CodebookBytes<Format>;
    const auto store_words = [&](__m128i words, int first, int at) __attribute__((always_inline)) {
        std::int32_t lanes[4];
        std::memcpy(lanes, &words, 16);
        for (int j = 0; j < 4; ++j) std::memcpy(out->q[first + j] + at, &lanes[j], 4);
    };
    for (std::int64_t i = 0; i < n; ++i, ++out) {
        if constexpr (Rows::kPairs) {
            const __m128i place = _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
            for (int sub = 0; sub < 8; ++sub) {  // four times eight values to eight times four
                const std::int8_t* q = x.q + 256 * i + 32 * sub;
                const __m128i first = _mm_shuffle_epi8(load_bytes16(q), place),
                              second = _mm_shuffle_epi8(load_bytes16(q + 16), place);
                for (int row = 0; row < 2; ++row) {
                    store_words(_mm_unpacklo_epi16(first, second), 0, 8 * sub + 4 * row);
                    store_words(_mm_unpackhi_epi16(first, second), 4, 8 * sub + 4 * row);
                    out->sums[2 * sub + row] = -Rows::kBias * x.sum32[8 * i + sub];
                }
            }
        } else {
            const __m128i place = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            for (int part = 0; part < 16; ++part) {
                store_words(_mm_shuffle_epi8(load_bytes16(x.q + 256 * i + 16 * part), place), 0, 4 * part);
                out->sums[part] = -Rows::kBias * x.sum16[16 * i + part];
            }
        }
    }
}

// ---- Lookups --------------------------------------------------------------------------------------------------------

/// Of 128 bytes those with the numbers in the low seven bits.
static TINFER_INLINE TINFER_VBMI __m512i look_up_bytes(const std::uint8_t* book, __m512i numbers) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(book), numbers, _mm512_load_si512(book + 64));
}
/// Bits 7 and 8 of numbers.
struct UpperBits {
    __mmask64 bit7, bit8;
};
/// Of N bytes those with the numbers of which the low bits are given, and the upper ones.
template <int N>
static TINFER_INLINE TINFER_VBMI __m512i look_up_bytes(const std::uint8_t* book, __m512i numbers,
                                                       const UpperBits& upper) {
    if constexpr (N == 128) {
        return look_up_bytes(book, numbers);
    } else {
        const __mmask64 bit = N == 256 ? upper.bit7 : upper.bit8;
        return _mm512_mask_blend_epi8(bit, look_up_bytes<N / 2>(book, numbers, upper),
                                      look_up_bytes<N / 2>(book + N / 2, numbers, upper));
    }
}
struct SignBytes {
    alignas(64) std::uint8_t of[128];
};
/// Eight signs of seven.
static constexpr SignBytes kSignBytes = [] {
    SignBytes bytes{};
    for (std::uint32_t seven = 0; seven < 128; ++seven)
        bytes.of[seven] = static_cast<std::uint8_t>(even_signs<avx512vnni>(seven));
    return bytes;
}();
/// The bytes of N words of a codebook apart: the low ones, then the high ones.
template <int N>
static TINFER_INLINE void split_words(const std::uint16_t* words, std::uint8_t* book) {
    for (int i = 0; i < N; ++i) {
        book[i] = static_cast<std::uint8_t>(words[i]);
        book[N + i] = static_cast<std::uint8_t>(words[i] >> 8);
    }
}
/// Code c of twice the bias where the bit of a sign is set: its opposite.
static TINFER_INLINE __m512i negated_where(__m512i signs, __m512i bit, int twice_bias, __m512i c) {
    return _mm512_mask_sub_epi8(c, _mm512_test_epi8_mask(signs, bit), _mm512_set1_epi8(static_cast<char>(twice_bias)),
                                c);
}

// ---- Eight values a row, of two rows --------------------------------------------------------------------------------

static constexpr Constants<std::int8_t> kFirstFourBytes([](int i) { return i % 8 < 4 ? i : 64 + i - 4; });
static constexpr Constants<std::int32_t> kSecondWords([](int l) { return l % 2 == 0 ? l + 1 : 16 + l; });
static constexpr Constants<std::int8_t> kSevensOfTwo([](int i) { return i % 8 / 4 * 32 + i % 4 * 7; });
/// Levels 8, 25 and 43; a byte has those of four values, two bits each.
template <>
struct CodebookBytes<IQ2_XXS> {
    static constexpr bool kPairs = true;
    static constexpr int kBias = 64, kBookBytes = 2 * 256;
    static TINFER_INLINE void make_book(std::uint8_t* book) { split_words<256>(kIq2XxsWords, book); }
    static TINFER_INLINE TINFER_VBMI __m512i codes(const std::uint8_t* book, const std::uint8_t* a,
                                                   const std::uint8_t* b, __m512i (&c)[8]) {
        const __m512i first = load64(a + 2), second = load64(b + 2);
        const __m512i numbers = _mm512_permutex2var_epi8(first, kFirstFourBytes, second),
                      words = _mm512_permutex2var_epi32(first, kSecondWords, second);  // of signs, and a scale on top
        // A nibble of the codebook has the numbers of two levels: there is a table for each.
        const __m512i low_level = _mm512_broadcast_i32x4(
                          _mm_setr_epi8(72, 89, 107, 64, 72, 89, 107, 64, 72, 89, 107, 64, 72, 89, 107, 64)),
                      high_level = _mm512_broadcast_i32x4(
                          _mm_setr_epi8(72, 72, 72, 72, 89, 89, 89, 89, 107, 107, 107, 107, 64, 64, 64, 64));
        const UpperBits upper{_mm512_movepi8_mask(numbers), 0};
#    pragma GCC unroll 2
        for (int odd = 0; odd < 2; ++odd) {
            const __m512i bytes = look_up_bytes<256>(book + 256 * odd, numbers, upper);
            const __m512i low = low_nibbles(bytes), high = high_nibbles(bytes);
            c[odd] = _mm512_shuffle_epi8(low_level, low);
            c[odd + 2] = _mm512_shuffle_epi8(high_level, low);
            c[odd + 4] = _mm512_shuffle_epi8(low_level, high);
            c[odd + 6] = _mm512_shuffle_epi8(high_level, high);
        }
        const __m512i signs = look_up_bytes(kSignBytes.of, _mm512_multishift_epi64_epi8(kSevensOfTwo, words));
#    pragma GCC unroll 8
        for (int j = 0; j < 8; ++j)
            c[j] = negated_where(signs, _mm512_set1_epi8(static_cast<char>(1 << j)), 2 * kBias, c[j]);
        return _mm512_or_si512(_mm512_srli_epi32(words, 27), _mm512_set1_epi32(1));
    }
};

// ---- Four values a row ----------------------------------------------------------------------------------------------

/// Of 64 numbers the signs are bits 0 … 3 of a byte for those with even places, bits 4 … 7 for the others.
static TINFER_INLINE void negate_fours(__m512i signs, int twice_bias, __m512i (&c)[4]) {
#    pragma GCC unroll 4
    for (int j = 0; j < 4; ++j)
        c[j] = negated_where(signs, _mm512_set1_epi16(static_cast<short>(1 << j | 0x1000 << j)), twice_bias, c[j]);
}

static constexpr Constants<std::int32_t> kWordsTwice([](int l) { return l / 2; });
static constexpr Constants<std::int8_t> kSevensTwice([](int i) { return i % 8 / 2 * 7; });
/// Its rows fit as they are: a table for each of the four values.
template <>
struct CodebookBytes<IQ3_XXS> {
    static constexpr bool kPairs = false;
    static constexpr int kBias = 64, kBookBytes = 4 * 256;
    static TINFER_INLINE void make_book(std::uint8_t* book) {
        for (int i = 0; i < 256; ++i)
            for (int j = 0; j < 4; ++j)
                book[256 * j + i] = static_cast<std::uint8_t>(kBias + (kIq3XxsGrid[i] >> 8 * j & 127));
    }
    static TINFER_INLINE TINFER_VBMI __m512i codes(const std::uint8_t* book, const std::uint8_t* block,
                                                   __m512i (&c)[4]) {
        const __m512i numbers = load64(block + 2);
        const __m512i words =  // of signs, and a scale on top
            _mm512_permutexvar_epi32(kWordsTwice, _mm512_castsi256_si512(load_bytes32(block + 66)));
        const UpperBits upper{_mm512_movepi8_mask(numbers), 0};
#    pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) c[j] = look_up_bytes<256>(book + 256 * j, numbers, upper);
        negate_fours(look_up_bytes(kSignBytes.of, _mm512_multishift_epi64_epi8(kSevensTwice, words)), 2 * kBias, c);
        return _mm512_or_si512(_mm512_srli_epi32(words, 27), _mm512_set1_epi32(1));
    }
};

static constexpr Constants<std::int8_t> kBytesTwice([](int i) { return i / 2; });
/// Levels l are 2l + 1: a byte has those of two values in its nibbles, of which bit 3 is clear.
template <>
struct CodebookBytes<IQ3_S> {
    static constexpr bool kPairs = false;
    static constexpr int kBias = 16, kBookBytes = 2 * 512;
    static TINFER_INLINE void make_book(std::uint8_t* book) { split_words<512>(kIq3SWords, book); }
    static TINFER_INLINE TINFER_VBMI __m512i codes(const std::uint8_t* book, const std::uint8_t* block,
                                                   __m512i (&c)[4]) {
        const __m512i numbers = load64(block + 2);
        std::uint64_t ninth;
        std::memcpy(&ninth, block + 66, 8);
        const UpperBits upper{_mm512_movepi8_mask(numbers), ninth};
        const __m512i levels =
            _mm512_broadcast_i32x4(_mm_setr_epi8(17, 19, 21, 23, 25, 27, 29, 31, 0, 0, 0, 0, 0, 0, 0, 0));
#    pragma GCC unroll 2
        for (int odd = 0; odd < 2; ++odd) {
            const __m512i bytes = look_up_bytes<512>(book + 512 * odd, numbers, upper);
            c[odd] = _mm512_shuffle_epi8(levels, bytes);
            c[odd + 2] = _mm512_shuffle_epi8(levels, _mm512_srli_epi16(bytes, 4));
        }
        negate_fours(_mm512_permutexvar_epi8(kBytesTwice, _mm512_castsi256_si512(load_bytes32(block + 74))), 2 * kBias,
                     c);
        return odd_scales(_mm512_rorv_epi32(_mm512_set1_epi32(load_word(block + 106)), kIq3SScaleTurns));
    }
};

// ---- Products -------------------------------------------------------------------------------------------------------

/// The sums of rows 2·pair and 2·pair + 1 of four at a super-block, in turn, against T tokens.
template <class Format, int T>
static TINFER_INLINE TINFER_VBMI void sum_pair(const std::uint8_t* book, const std::uint8_t* a, const std::uint8_t* b,
                                               const BytesToken<Format>* const (&x)[T], __m512i (&sums)[T]) {
    using Rows = CodebookBytes<Format>;
    __m512i c[Rows::kPairs ? 1 : 2][Rows::kPairs ? 8 : 4];
    if constexpr (Rows::kPairs) {
        const __m512i scales = Rows::codes(book, a, b, c[0]);
#    pragma GCC unroll 2
        for (int t = 0; t < T; ++t) {
            __m512i sum = load64(x[t]->sums);
#    pragma GCC unroll 8
            for (int j = 0; j < 8; ++j) sum = _mm512_dpbusd_epi32(sum, c[0][j], load64(x[t]->q[j]));
            sums[t] = _mm512_mullo_epi32(sum, scales);
        }
    } else {
        const __m512i scales[2] = {Rows::codes(book, a, c[0]), Rows::codes(book, b, c[1])};
#    pragma GCC unroll 2
        for (int t = 0; t < T; ++t) {
            __m512i sum[2];
            sum[0] = sum[1] = load64(x[t]->sums);
#    pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
                const __m512i q = load64(x[t]->q[j]);
                for (int r = 0; r < 2; ++r) sum[r] = _mm512_dpbusd_epi32(sum[r], c[r][j], q);
            }
            for (int r = 0; r < 2; ++r) sum[r] = _mm512_mullo_epi32(sum[r], scales[r]);
            sums[t] = _mm512_add_epi32(_mm512_unpacklo_epi32(sum[0], sum[1]), _mm512_unpackhi_epi32(sum[0], sum[1]));
        }
    }
}

/// With more tokens multiply_codebook_rows is as fast, or of IQ2_XXS faster.
inline constexpr std::int64_t kMaxBytesTokens = 2;

/// The same as multiply_codebook_rows, with the codebook in bytes.
template <class Arch, class Format, int T>
[[gnu::noinline]] TINFER_VBMI void multiply_codebook_bytes(const FourRows& rows, std::int64_t n_blocks,
                                                           const std::uint8_t* book, const BytesToken<Format>* tokens,
                                                           const Activations* x, float* results,
                                                           std::int64_t stride) noexcept {
    __m128 acc[T];
    const BytesToken<Format>* token[T];
    for (int t = 0; t < T; ++t) {
        acc[t] = _mm_setzero_ps();
        token[t] = tokens + t * n_blocks;
    }
    for (std::int64_t i = 0; i < n_blocks; ++i) {
        const std::int64_t at = i * Format::kBlockBytes;
        __m512i sums[2][T];
#    pragma GCC unroll 2
        for (int pair = 0; pair < 2; ++pair) {
            for (int r = 2 * pair; r < 2 * pair + 2; ++r) rows.prefetch<Format::kBlockBytes>(r, at);
            sum_pair<Format, T>(book, rows.row[2 * pair] + at, rows.row[2 * pair + 1] + at, token, sums[pair]);
        }
        const __m128 d = _mm_mul_ps(four_halves(rows, at), _mm_set1_ps(CodebookHalves<Format>::kFactor));
#    pragma GCC unroll 2
        for (int t = 0; t < T; ++t) {
            const __m512i by_rows = _mm512_add_epi32(_mm512_unpacklo_epi64(sums[0][t], sums[1][t]),
                                                     _mm512_unpackhi_epi64(sums[0][t], sums[1][t]));
            acc[t] =
                _mm_fmadd_ps(_mm_mul_ps(d, _mm_set1_ps(x[t].d[i])), _mm_cvtepi32_ps(add_quarters(by_rows)), acc[t]);
            ++token[t];
        }
    }
    for (int t = 0; t < T; ++t) _mm_storeu_ps(results + t * stride, acc[t]);
}

}  // namespace tinfer::kernels

#endif
