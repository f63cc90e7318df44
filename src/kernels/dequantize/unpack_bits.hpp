// SPDX-License-Identifier: MIT
// Unpacking blocks with vector instructions: the formats whose codes are bits of the block or short tables of them.
// Those with a codebook are in kernels/dequantize/unpack_codebook.hpp. Formats that are decoded several rows at a time
// (kernels/pack/transposed_decode_k.hpp) need none. The integers are those of the formats' own formulas.
#pragma once

#include <cstring>

#include "kernels/quants/formats.hpp"
#include "kernels/simd/vec.hpp"

#if defined(__AVX2__)

namespace tinfer::kernels {

static TINFER_INLINE __m256i load_bytes32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
static TINFER_INLINE __m128i load_bytes16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
static TINFER_INLINE __m128i load_bytes8(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }
static TINFER_INLINE void store_bytes32(__m256i bytes, void* p) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), bytes);
}
static TINFER_INLINE __m256i bytes_of(int value) { return _mm256_set1_epi8(static_cast<char>(value)); }
/// The same sixteen bytes in both halves.
static TINFER_INLINE __m256i twice16(const void* p) { return _mm256_broadcastsi128_si256(load_bytes16(p)); }
/// The f16 at p, widened.
static TINFER_INLINE float load_half(const std::uint8_t* p) {
    std::uint16_t half;
    std::memcpy(&half, p, 2);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}

/// Lane i: the four bytes at place(i). A load to all lanes and a choice between two have more ports than an insertion.
template <class Place>
static TINFER_INLINE __m256i choose_words(Place place) {
    const auto word = [&](int i) {
        std::int32_t bytes;
        std::memcpy(&bytes, place(i), 4);
        return _mm256_set1_epi32(bytes);
    };
    const __m256i low = _mm256_blend_epi32(_mm256_blend_epi32(word(0), word(1), 0x02),
                                           _mm256_blend_epi32(word(2), word(3), 0x08), 0x0C);
    const __m256i high = _mm256_blend_epi32(_mm256_blend_epi32(word(4), word(5), 0x20),
                                            _mm256_blend_epi32(word(6), word(7), 0x80), 0xC0);
    return _mm256_blend_epi32(low, high, 0xF0);
}
/// The half floats in the low halves of eight lanes.
static TINFER_INLINE __m256 low_halves(__m256i lanes) {
    const __m256i words = _mm256_and_si256(lanes, _mm256_set1_epi32(0xFFFF));
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

/// e8m0_half (quants/half.hpp) of the lowest byte of each lane.
static TINFER_INLINE __m256 e8m0_halves(__m256i lanes) {
    const __m256i e = _mm256_and_si256(lanes, _mm256_set1_epi32(255)),
                  small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    const __m256i bits = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(bits, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

// ---- Nibbles and bits -----------------------------------------------------------------------------------------------

/// The low four bits of each byte, and the high ones.
static TINFER_INLINE __m256i low_nibbles(__m256i bytes) { return _mm256_and_si256(bytes, bytes_of(15)); }
static TINFER_INLINE __m256i high_nibbles(__m256i bytes) { return low_nibbles(_mm256_srli_epi16(bytes, 4)); }
/// The 16 nibbles of 8 bytes, the low one of each byte first.
static TINFER_INLINE __m128i nibbles_in_turn(__m128i bytes) {
    return _mm_and_si128(_mm_unpacklo_epi8(bytes, _mm_srli_epi16(bytes, 4)), _mm_set1_epi8(15));
}
/// Byte e: ones where bit e is set, else zeros.
static TINFER_INLINE __m256i mask_of(std::uint32_t bits) {
#    if defined(__AVX512BW__) && defined(__AVX512VL__)
    return _mm256_movm_epi8(bits);
#    else
    const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201u));
    return _mm256_cmpeq_epi8(
        _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), byte), bit), bit);
#    endif
}
/// The 32 bit pairs of 8 bytes, the lowest of each byte first.
static TINFER_INLINE __m256i pairs_in_turn(__m128i bytes) {
    const __m256i v = _mm256_cvtepu8_epi32(bytes), w = _mm256_or_si256(v, _mm256_slli_epi32(v, 6));
    return _mm256_and_si256(_mm256_or_si256(w, _mm256_slli_epi32(w, 12)), bytes_of(3));
}
/// Sixteen bytes to the scales of a super-block (or to its mins).
static TINFER_INLINE void store_scales(__m128i bytes, std::int16_t* out) {
    store_bytes32(_mm256_cvtepu8_epi16(bytes), out);
}

// ---- Super-blocks ---------------------------------------------------------------------------------------------------

/// Codes of −1, 0 and 1 (TQ2_0: and 2), one too high: put(i, c) of values 32i … 32i + 31.
template <class Put>
static TINFER_INLINE void ternary_codes(TQ2_0, const std::uint8_t* block, const Put& put) {
#    pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
        const __m256i bytes = load_bytes32(block + 32 * half);
#    pragma GCC unroll 4
        for (int i = 0; i < 4; ++i)
            put(4 * half + i, _mm256_and_si256(i == 0 ? bytes : _mm256_srli_epi16(bytes, 2 * i), bytes_of(3)));
    }
}
/// A digit to base three is the whole part of three times a fraction of 256, the next one that of the rest: 86 and 171
/// are the first bytes of which it is 1 and 2. Bytes compare as signed ones, so fractions come with 128 taken away.
/// Three times such a byte lacks 128 again, because 384 is 128 modulo 256.
static TINFER_INLINE __m256i base3_digits(__m256i fractions) {
    const auto above = [&](int most) { return _mm256_cmpgt_epi8(fractions, bytes_of(most - 128)); };
    return _mm256_sub_epi8(_mm256_setzero_si256(), _mm256_add_epi8(above(85), above(170)));
}
static TINFER_INLINE __m256i three_times(__m256i bytes) {
    return _mm256_add_epi8(bytes, _mm256_add_epi8(bytes, bytes));
}
template <class Put>
static TINFER_INLINE void ternary_codes(TQ1_0, const std::uint8_t* block, const Put& put) {
    __m256i fractions = _mm256_xor_si256(load_bytes32(block), bytes_of(128));
#    pragma GCC unroll 5
    for (int i = 0; i < 5; ++i, fractions = three_times(fractions)) put(i, base3_digits(fractions));
    // Sixteen bytes of five digits, two digits at a time. The last one stands beside four bytes of four digits.
    const __m128i flip = _mm_set1_epi8(static_cast<char>(128)), sixteen = _mm_xor_si128(load_bytes16(block + 32), flip);
    const auto next = [](__m128i bytes) { return _mm256_castsi256_si128(three_times(_mm256_castsi128_si256(bytes))); };
    fractions = _mm256_set_m128i(next(sixteen), sixteen);
#    pragma GCC unroll 2
    for (int i = 5; i < 7; ++i, fractions = three_times(three_times(fractions))) put(i, base3_digits(fractions));
    std::int32_t word;
    std::memcpy(&word, block + 48, 4);
    const __m128i four = _mm_xor_si128(_mm_set1_epi32(word), flip), thrice = next(four), ninefold = next(thrice),
                  last = next(ninefold);
    const __m128i digits = _mm_unpacklo_epi64(_mm_unpacklo_epi32(four, thrice), _mm_unpacklo_epi32(ninefold, last));
    put(7, base3_digits(_mm256_set_m128i(digits, _mm256_castsi256_si128(fractions))));
}
template <class Format>
inline constexpr bool kIsTernary = Format::kUnit == 256 && Format::kScaleElems == 256;
template <class Arch, class Format>
TINFER_INLINE void unpack_vector(Format, const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept
    requires(kIsTernary<Format>) {
    ternary_codes(Format{}, block,
                  [&](int i, __m256i c) { store_bytes32(_mm256_sub_epi8(c, bytes_of(1)), out.q + 32 * i); });
    store_bytes32(_mm256_set1_epi16(1), out.scale);
    out.d = load_half(block + Format::kBlockBytes - 2);
}

}  // namespace tinfer::kernels

#endif
