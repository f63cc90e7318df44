// SPDX-License-Identifier: MIT
// The products of kernels/gemv/codebook_avx512.hpp for registers of 32 bytes: eight rows are read together, and of each
// the codes of half a block meet the activations at a time. All words of codebooks are loaded one by one. The integers
// are those of the formats' own formulas.
#pragma once

#include "kernels/dequantize/unpack_codebook.hpp"
#include "kernels/gemv/codebook_activations.hpp"
#include "kernels/gemv/row_dot_avx2.hpp"

#if defined(__AVX2__)

namespace tinfer::kernels {

// A format says here how its blocks are read:
//   kBias, kFactor           code − kBias is the value; d of the file times kFactor the scale
//   kTogether                how many products of two codes add up in sixteen bits
//   Numbers, numbers(block, n)   row numbers, which are put in order a block ahead
//   codes(block, n, half, c) four registers of codes of half a block, in the places of CodebookToken
//   scales(block)            2s + 1 of sixteen scales, as int16
template <class Format>
struct CodebookHalves;

static TINFER_INLINE __m256i either_twice(__m128i v) { return _mm256_broadcastsi128_si256(v); }
/// Of the eight bytes at p those that `place` says.
static TINFER_INLINE __m256i spread_bytes(const std::uint8_t* p, __m256i place) {
    return _mm256_shuffle_epi8(_mm256_broadcastq_epi64(load_bytes8(p)), place);
}
/// Codes of sixteen rows of eight values: words of the codebook, and a bit more for each value where its level begins
/// in the word.
static TINFER_INLINE void codes_of_eights(__m256i words, __m256i bits, __m256i levels, __m256i (&c)[4]) {
    const __m256i of_level = bytes_of(0x33), above = bytes_of(0x44);
    const __m256i even =
        _mm256_or_si256(_mm256_and_si256(words, of_level), _mm256_and_si256(_mm256_slli_epi16(bits, 2), above));
    const __m256i odd =
        _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(words, 2), of_level), _mm256_and_si256(bits, above));
    c[0] = _mm256_shuffle_epi8(levels, even);
    c[1] = _mm256_shuffle_epi8(levels, odd);
    c[2] = _mm256_shuffle_epi8(levels, _mm256_srli_epi16(even, 4));
    c[3] = _mm256_shuffle_epi8(levels, _mm256_srli_epi16(odd, 4));
}
/// Bits 0 … 7 of words of at most eight, where values begin.
static TINFER_INLINE __m256i bits_of_eights(__m256i signs) {
    return _mm256_and_si256(_mm256_or_si256(signs, _mm256_slli_epi16(signs, 7)), bytes_of(0x55));
}
/// Seven sign bits of each word with the eighth.
static TINFER_INLINE __m256i with_eighth_sign_of_words(__m256i seven) {
    const char odd = static_cast<char>(0x80);
    const __m256i parity = either_twice(_mm_setr_epi8(0, odd, odd, 0, odd, 0, 0, odd, odd, 0, 0, odd, 0, odd, odd, 0));
    const __m256i nibble =
        _mm256_and_si256(_mm256_xor_si256(seven, _mm256_srli_epi16(seven, 4)), _mm256_set1_epi16(15));
    return _mm256_or_si256(seven, _mm256_shuffle_epi8(parity, nibble));
}
/// Levels 8, 25 and 43 with their sign above, 64 higher.
static TINFER_INLINE __m256i signed_levels_twice() {
    return either_twice(
        _mm_setr_epi8(64 + 8, 64 + 25, 64 + 43, 0, 64 - 8, 64 - 25, 64 - 43, 0, 0, 0, 0, 0, 0, 0, 0, 0));
}
static TINFER_INLINE __m256i odd_scales_of_nibbles(const std::uint8_t* p) {
    const __m128i s = nibbles_in_turn(load_bytes8(p));
    return _mm256_cvtepu8_epi16(_mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1)));
}
/// Scales 2s + 1 of eight lanes s, each twice.
static TINFER_INLINE __m256i odd_scales_twice(__m256i s) {
    const __m256i both = _mm256_or_si256(s, _mm256_slli_epi32(s, 16));
    return _mm256_add_epi16(_mm256_add_epi16(both, both), _mm256_set1_epi16(1));
}
/// Fields of seven bits of words of four with four bits on top, in the upper halves of each eight bytes: in words of
/// their own.
static TINFER_INLINE __m256i words_of_seven(__m256i bytes) {
    const __m256i place = either_twice(_mm_setr_epi8(4, 5, 4, 5, 5, 6, 6, 7, 12, 13, 12, 13, 13, 14, 14, 15));
    const __m256i top =
        _mm256_mullo_epi16(_mm256_shuffle_epi8(bytes, place), _mm256_set1_epi64x(0x0010'0008'0004'0200));
    return _mm256_srli_epi16(top, 9);
}

/// Levels 8, 25 and 43.
struct EightsOfLevels {
    static constexpr int kBias = 64, kTogether = 1;
    static constexpr float kFactor = 0.125f;
    struct Numbers {
        alignas(32) std::uint16_t of[32];
    };
};

template <>
struct CodebookHalves<IQ2_XXS> : EightsOfLevels {
    static TINFER_INLINE void numbers(const std::uint8_t* block, Numbers& n) {
        const __m256i place = either_twice(_mm_setr_epi8(0, -1, 1, -1, 2, -1, 3, -1, 8, -1, 9, -1, 10, -1, 11, -1));
        for (int half = 0; half < 2; ++half)
            store_bytes32(_mm256_shuffle_epi8(load_bytes32(block + 2 + 32 * half), place), n.of + 16 * half);
    }
    static TINFER_INLINE void codes(const std::uint8_t* block, const Numbers& n, int half, __m256i (&c)[4]) {
        const __m256i signs = with_eighth_sign_of_words(words_of_seven(load_bytes32(block + 2 + 32 * half)));
        codes_of_eights(sixteen_words(kIq2XxsWords, n.of + 16 * half), bits_of_eights(signs), signed_levels_twice(), c);
    }
    static TINFER_INLINE __m256i scales(const std::uint8_t* block) {
        const __m256 first = _mm256_castsi256_ps(load_bytes32(block + 2)),
                     second = _mm256_castsi256_ps(load_bytes32(block + 34));
        const __m256i words =
            _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(first, second, 0xDD)), 0xD8);
        return odd_scales_twice(_mm256_srli_epi32(words, 28));
    }
};

template <>
struct CodebookHalves<IQ2_XS> : EightsOfLevels {
    static TINFER_INLINE void numbers(const std::uint8_t* block, Numbers& n) {
        for (int half = 0; half < 2; ++half)
            store_bytes32(_mm256_and_si256(load_bytes32(block + 2 + 32 * half), _mm256_set1_epi16(511)),
                          n.of + 16 * half);
    }
    static TINFER_INLINE void codes(const std::uint8_t* block, const Numbers& n, int half, __m256i (&c)[4]) {
        const __m256i signs = with_eighth_sign_of_words(_mm256_srli_epi16(load_bytes32(block + 2 + 32 * half), 9));
        codes_of_eights(sixteen_words(kIq2XsWords, n.of + 16 * half), bits_of_eights(signs), signed_levels_twice(), c);
    }
    static TINFER_INLINE __m256i scales(const std::uint8_t* block) { return odd_scales_of_nibbles(block + 66); }
};

template <>
struct CodebookHalves<IQ2_S> : EightsOfLevels {
    static TINFER_INLINE void numbers(const std::uint8_t* block, Numbers& n) {
        join_numbers(load_bytes32(block + 2), pairs_in_turn(load_bytes8(block + 66)), n.of);
    }
    static TINFER_INLINE void codes(const std::uint8_t* block, const Numbers& n, int half, __m256i (&c)[4]) {
        const __m256i signs = _mm256_cvtepu8_epi16(load_bytes16(block + 34 + 16 * half));
        codes_of_eights(sixteen_words(kIq2SWords, n.of + 16 * half), bits_of_eights(signs), signed_levels_twice(), c);
    }
    static TINFER_INLINE __m256i scales(const std::uint8_t* block) { return odd_scales_of_nibbles(block + 74); }
};

/// −1, 0, 1 in eighths, shifted by one of them: up, or down where the word of a row is set.
struct EightsShifted {
    static constexpr int kBias = 9, kTogether = 4;
    static constexpr float kFactor = 0.125f;
    struct Numbers {
        alignas(32) std::uint16_t of[32];
    };
    static TINFER_INLINE void shifted(const Numbers& n, int half, __m256i down, __m256i (&c)[4]) {
        const __m256i levels = either_twice(_mm_setr_epi8(2, 10, 18, 0, 0, 8, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0));
        codes_of_eights(sixteen_words(kIq1Words, n.of + 16 * half), _mm256_and_si256(down, bytes_of(0x55)), levels, c);
    }
};

template <>
struct CodebookHalves<IQ1_S> : EightsShifted {
    static TINFER_INLINE void numbers(const std::uint8_t* block, Numbers& n) { store_numbers_of_iq1_s(block, n.of); }
    static TINFER_INLINE void codes(const std::uint8_t* block, const Numbers& n, int half, __m256i (&c)[4]) {
        const __m256i place =
            _mm256_setr_epi64x(0x0100010001000100, 0x0302030203020302, 0x0504050405040504, 0x0706070607060706);
        shifted(n, half, _mm256_srai_epi16(spread_bytes(block + 34 + 8 * half, place), 15), c);
    }
    static TINFER_INLINE __m256i scales(const std::uint8_t* block) {
        const __m256i words = _mm256_cvtepu16_epi32(load_bytes16(block + 34));
        return odd_scales_twice(_mm256_and_si256(_mm256_srli_epi32(words, 12), _mm256_set1_epi32(7)));
    }
};

template <>
struct CodebookHalves<IQ1_M> : EightsShifted {
    static TINFER_INLINE void numbers(const std::uint8_t* block, Numbers& n) {
        join_numbers(load_bytes32(block), _mm256_and_si256(nibbles_of_iq1_m(block), bytes_of(7)), n.of);
    }
    static TINFER_INLINE void codes(const std::uint8_t* block, const Numbers& n, int half, __m256i (&c)[4]) {
        const __m256i place =
            _mm256_setr_epi64x(0x0101010100000000, 0x0303030302020202, 0x0505050504040404, 0x0707070706060606);
        const __m256i bit = _mm256_set1_epi32(0x0080'0008), bytes = spread_bytes(block + 32 + 8 * half, place);
        shifted(n, half, _mm256_cmpeq_epi16(_mm256_and_si256(bytes, bit), bit), c);
    }
    static TINFER_INLINE __m256i scales(const std::uint8_t* block) {
        const __m256i s = threes_in_turn(block + 48);
        return _mm256_add_epi16(_mm256_add_epi16(s, s), _mm256_set1_epi16(1));
    }
    static TINFER_INLINE std::uint16_t half_d(const std::uint8_t* block) { return half_d_of_iq1_m(block); }
};

/// Rows of four values: those with even numbers and those with odd ones of each half, of which every sign byte has one
/// and one.
struct FoursInTurn {
    struct Numbers {
        alignas(32) std::uint16_t even[2][16], odd[2][16];
    };
    /// Nibbles of words from bits 0 … 3 of words of at most eight: of a byte the low one by bit 0 of the number of an
    /// entry and the high one by bit 2.
    static TINFER_INLINE __m256i nibbles_of_signs(__m256i signs, __m128i table) {
        const __m256i number = _mm256_and_si256(_mm256_or_si256(signs, _mm256_slli_epi16(signs, 7)), bytes_of(5));
        return _mm256_shuffle_epi8(either_twice(table), number);
    }
    static TINFER_INLINE __m128i table_of_signs(int plus, int minus) {
        const int both = plus | plus << 4, first = minus | plus << 4, last = plus | minus << 4,
                  none = minus | minus << 4;
        const auto entry = [](int byte) { return static_cast<char>(byte); };
        return _mm_setr_epi8(entry(both), entry(first), 0, 0, entry(last), entry(none), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    }
};

template <>
struct CodebookHalves<IQ3_XXS> : FoursInTurn {
    static constexpr int kBias = 64, kTogether = 1;
    static constexpr float kFactor = 0.25f;
    static TINFER_INLINE void numbers(const std::uint8_t* block, Numbers& n) {
        for (int half = 0; half < 2; ++half) {
            const __m256i low = load_bytes32(block + 2 + 32 * half);
            store_bytes32(_mm256_and_si256(low, _mm256_set1_epi16(255)), n.even[half]);
            store_bytes32(_mm256_srli_epi16(low, 8), n.odd[half]);
        }
    }
    static TINFER_INLINE void codes(const std::uint8_t* block, const Numbers& n, int half, __m256i (&c)[4]) {
        const __m256i levels =
            either_twice(_mm_setr_epi8(64 + 4, 64 + 12, 64 + 20, 64 + 28, 64 + 36, 64 + 44, 64 + 52, 64 + 62, 64 - 4,
                                       64 - 12, 64 - 20, 64 - 28, 64 - 36, 64 - 44, 64 - 52, 64 - 62));
        const __m256i fields = _mm256_slli_epi64(_mm256_cvtepu32_epi64(load_bytes16(block + 66 + 16 * half)), 32);
        const __m256i signs = with_eighth_sign_of_words(words_of_seven(fields));
        const auto put = [&](const std::uint16_t* numbers, __m256i four_signs, __m256i* to)
            __attribute__((always_inline)) {
            const __m256i nibbles = _mm256_or_si256(sixteen_words(kIq3XxsWords, numbers),
                                                    nibbles_of_signs(four_signs, table_of_signs(0, 8)));
            to[0] = _mm256_shuffle_epi8(levels, low_nibbles(nibbles));
            to[1] = _mm256_shuffle_epi8(levels, high_nibbles(nibbles));
        };
        put(n.even[half], signs, c);
        put(n.odd[half], _mm256_srli_epi16(signs, 4), c + 2);
    }
    static TINFER_INLINE __m256i scales(const std::uint8_t* block) {
        return odd_scales_twice(_mm256_srli_epi32(load_bytes32(block + 66), 28));
    }
};

/// Levels l are 2l + 1: with 8 + l, or 7 − l for minus, in a nibble the value is twice that, less 15.
template <>
struct CodebookHalves<IQ3_S> : FoursInTurn {
    static constexpr int kBias = 15, kTogether = 4;
    static constexpr float kFactor = 1.0f;
    static TINFER_INLINE void numbers(const std::uint8_t* block, Numbers& n) {
        for (int half = 0; half < 2; ++half) {
            std::uint32_t bits;
            std::memcpy(&bits, block + 66 + 4 * half, 4);
            const __m256i low = load_bytes32(block + 2 + 32 * half), byte = _mm256_set1_epi16(255);
            const __m256i ninth = _mm256_and_si256(mask_of(bits), bytes_of(1));
            store_bytes32(_mm256_or_si256(_mm256_and_si256(low, byte), _mm256_slli_epi16(ninth, 8)), n.even[half]);
            store_bytes32(_mm256_or_si256(_mm256_srli_epi16(low, 8), _mm256_andnot_si256(byte, ninth)), n.odd[half]);
        }
    }
    static TINFER_INLINE void codes(const std::uint8_t* block, const Numbers& n, int half, __m256i (&c)[4]) {
        const __m256i signs = _mm256_cvtepu8_epi16(load_bytes16(block + 74 + 16 * half)), twice = bytes_of(0x1E);
        const auto put = [&](const std::uint16_t* numbers, __m256i four_signs, __m256i* to)
            __attribute__((always_inline)) {
            const __m256i nibbles = _mm256_xor_si256(sixteen_words(kIq3SWords, numbers),
                                                     nibbles_of_signs(four_signs, table_of_signs(8, 7)));
            to[0] = _mm256_and_si256(_mm256_add_epi8(nibbles, nibbles), twice);
            to[1] = _mm256_and_si256(_mm256_srli_epi16(nibbles, 3), twice);
        };
        put(n.even[half], signs, c);
        put(n.odd[half], _mm256_srli_epi16(signs, 4), c + 2);
    }
    static TINFER_INLINE __m256i scales(const std::uint8_t* block) {
        std::uint32_t all;
        std::memcpy(&all, block + 106, 4);
        const __m256i shifted =
            _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(all)), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
        return odd_scales_twice(_mm256_and_si256(shifted, _mm256_set1_epi32(15)));
    }
};

template <class Format>
inline constexpr bool kHasCodebook = requires {
    CodebookHalves<Format>::kBias;
};

/// d of eight rows.
template <class Format>
TINFER_INLINE __m256 eight_d(const EightRows& rows, std::int64_t at) {
    std::uint16_t d[8];
    for (int r = 0; r < 8; ++r) {
        if constexpr (requires { CodebookHalves<Format>::half_d(rows.row[r]); })
            d[r] = CodebookHalves<Format>::half_d(rows.row[r] + at);
        else std::memcpy(&d[r], rows.row[r] + at, 2);
    }
    return _mm256_cvtph_ps(load_bytes16(d));
}

/// results[t][r] = ⟨row r, x[t]⟩ of T tokens, of which `tokens` has the super-blocks one behind the other. What follows
/// the rows is prefetched unless another pass has done so.
template <class Arch, class Format, int T>
[[gnu::noinline]] void multiply_codebook_halves(const EightRows& rows, std::int64_t n_blocks,
                                                const CodebookToken* tokens, const Activations* x, bool prefetches,
                                                float (*results)[8]) noexcept {
    using Rows = CodebookHalves<Format>;
    const __m256i each_twice =
        _mm256_setr_epi64x(0x0302030201000100, 0x0706070605040504, 0x0B0A0B0A09080908, 0x0F0E0F0E0D0C0D0C);
    typename Rows::Numbers numbers[8];  // of a block ahead
    for (int r = 0; r < 8; ++r) Rows::numbers(rows.row[r], numbers[r]);
    __m256 acc[T];
    for (int t = 0; t < T; ++t) acc[t] = _mm256_setzero_ps();
    for (std::int64_t i = 0; i < n_blocks; ++i) {
        const std::int64_t at = i * Format::kBlockBytes;
        __m256i sums[T][8];
        for (int r = 0; r < 8; ++r) {
            if (prefetches) rows.prefetch<Format::kBlockBytes>(r, at);
            const std::uint8_t* block = rows.row[r] + at;
            keep_in_memory(numbers[r]);
            const __m256i scales = Rows::scales(block),
                          biases = _mm256_mullo_epi16(scales, _mm256_set1_epi16(-Rows::kBias));
            __m256i sum[T];
            for (int t = 0; t < T; ++t) sum[t] = _mm256_madd_epi16(biases, load_bytes32(x[t].sum16 + 16 * i));
#    pragma GCC unroll 2
            for (int half = 0; half < 2; ++half) {
                __m256i c[4];
                Rows::codes(block, numbers[r], half, c);
                const __m128i eight = half == 0 ? _mm256_castsi256_si128(scales) : _mm256_extracti128_si256(scales, 1);
                const __m256i scale = _mm256_shuffle_epi8(either_twice(eight), each_twice);
#    pragma GCC unroll 4
                for (int t = 0; t < T; ++t) {
                    const CodebookToken& token = tokens[t * n_blocks + i];
                    __m256i pairs = _mm256_setzero_si256();
#    pragma GCC unroll 4
                    for (int j = 0; j < 4; ++j) {  // |pair| ≤ 2 · 126 · 127, or four of them ≤ 8 · 30 · 127
                        const __m256i pair = _mm256_maddubs_epi16(c[j], load_bytes32(token.q[j] + 32 * half));
                        pairs = j % Rows::kTogether == 0 ? pair : _mm256_add_epi16(pairs, pair);
                        if (j % Rows::kTogether == Rows::kTogether - 1) sum[t] = dot2(sum[t], pairs, scale, avx2{});
                    }
                }
            }
            for (int t = 0; t < T; ++t) sums[t][r] = sum[t];
            if (i + 1 < n_blocks) Rows::numbers(block + Format::kBlockBytes, numbers[r]);
        }
        const __m256 d = _mm256_mul_ps(eight_d<Format>(rows, at), _mm256_set1_ps(Rows::kFactor));
        for (int t = 0; t < T; ++t)
            acc[t] = _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(x[t].d[i])),
                                     _mm256_cvtepi32_ps(reduce_eight(sums[t])), acc[t]);
    }
    for (int t = 0; t < T; ++t) _mm256_storeu_ps(results[t], acc[t]);
}

}  // namespace tinfer::kernels

#endif
