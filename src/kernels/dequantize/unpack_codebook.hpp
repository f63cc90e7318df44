// SPDX-License-Identifier: MIT
// Unpacking blocks with vector instructions: the formats whose codes are rows of a codebook, four or eight values at a
// time. Row numbers, signs and scales of a block are put in order by vectors, then rows are loaded one by one. The
// integers are those of the formats' own formulas.
#pragma once

#include "kernels/dequantize/unpack_bits.hpp"

#if defined(__AVX2__)

namespace tinfer::kernels {

/// Forces elements that vectors stored to be loaded from memory one by one. GCC would extract them from registers,
/// which keeps a single port busy.
template <class T>
static TINFER_INLINE void keep_in_memory(T& stored) {
    asm("" : "+m"(stored));
}

/// The bytes, negative where their bit is set.
static TINFER_INLINE __m256i negate_where(std::uint32_t bits, __m256i bytes) {
#    if defined(__AVX512BW__) && defined(__AVX512VL__)
    return _mm256_mask_sub_epi8(bytes, bits, _mm256_setzero_si256(), bytes);
#    else
    const __m256i mask = mask_of(bits);
    return _mm256_sub_epi8(_mm256_xor_si256(bytes, mask), mask);
#    endif
}
/// 32 row numbers of which the low and the high bytes are given.
static TINFER_INLINE void join_numbers(__m256i low, __m256i high, std::uint16_t* numbers) {
    const __m256i first = _mm256_unpacklo_epi8(low, high), second = _mm256_unpackhi_epi8(low, high);
    store_bytes32(_mm256_permute2x128_si256(first, second, 0x20), numbers);
    store_bytes32(_mm256_permute2x128_si256(first, second, 0x31), numbers + 16);
}
/// Bytes of seven sign bits with the eighth: the number of minus signs is even.
static TINFER_INLINE __m256i with_eighth_sign(__m256i seven) {
    const char odd = static_cast<char>(0x80);
    const __m256i parity =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, odd, odd, 0, odd, 0, 0, odd, odd, 0, 0, odd, 0, odd, odd, 0));
    return _mm256_or_si256(seven,
                           _mm256_shuffle_epi8(parity, low_nibbles(_mm256_xor_si256(seven, high_nibbles(seven)))));
}
/// Words of four 7-bit sign numbers with a 4-bit scale s on top: 32 sign bits each, and 2s + 1 for both halves of 32
/// values.
static TINFER_INLINE void signs_and_scales(__m256i words, std::uint32_t (&signs)[8], std::int16_t* scale) {
    const auto field = [&](int i) {
        return _mm256_and_si256(_mm256_slli_epi32(words, i), _mm256_set1_epi32(0x7F << 8 * i));
    };
    const __m256i seven = _mm256_or_si256(_mm256_or_si256(field(0), field(1)), _mm256_or_si256(field(2), field(3)));
    store_bytes32(with_eighth_sign(seven), signs);
    const __m256i s = _mm256_srli_epi32(words, 28), both = _mm256_or_si256(s, _mm256_slli_epi32(s, 16));
    store_bytes32(_mm256_add_epi16(_mm256_add_epi16(both, both), _mm256_set1_epi16(1)), scale);
}
/// Sixteen scales 2s + 1 of 4-bit numbers s, low nibbles first.
static TINFER_INLINE void odd_scales_in_turn(const std::uint8_t* p, std::int16_t* scale) {
    const __m128i s = nibbles_in_turn(load_bytes8(p));
    store_scales(_mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1)), scale);
}
/// Of each of four 16-bit words its lowest three bits, the next three, …: sixteen numbers.
static TINFER_INLINE __m256i threes_in_turn(const std::uint8_t* p) {
    const __m256i word =
        _mm256_setr_epi64x(0x0100010001000100, 0x0302030203020302, 0x0504050405040504, 0x0706070607060706);
    const __m256i words = _mm256_shuffle_epi8(_mm256_broadcastq_epi64(load_bytes8(p)), word);
    const __m256i shifted = _mm256_mullo_epi16(words, _mm256_set1_epi64x(0x0001'0008'0040'0200));  // to bits 9 … 11
    return _mm256_and_si256(_mm256_srli_epi16(shifted, 9), _mm256_set1_epi16(7));
}

/// Words of the next eight of numbers, of which four are read at once.
static TINFER_INLINE __m128i eight_words(const std::uint16_t* words, const std::uint16_t* numbers) {
    __m128i x = _mm_setzero_si128();
    const auto four_words = [&]<int half>() __attribute__((always_inline)) {
        std::uint64_t four;
        std::memcpy(&four, numbers + 4 * half, 8);
        x = _mm_insert_epi16(x, words[four & 0xFFFF], 4 * half);
        x = _mm_insert_epi16(x, words[four >> 16 & 0xFFFF], 4 * half + 1);
        x = _mm_insert_epi16(x, words[four >> 32 & 0xFFFF], 4 * half + 2);
        x = _mm_insert_epi16(x, words[four >> 48], 4 * half + 3);
    };
    four_words.template operator()<0>();
    four_words.template operator()<1>();
    return x;
}
static TINFER_INLINE __m256i sixteen_words(const std::uint16_t* words, const std::uint16_t* numbers) {
    return _mm256_set_m128i(eight_words(words, numbers + 8), eight_words(words, numbers));
}

/// Four rows of eight values; number(i) of the i-th.
template <class Number>
static TINFER_INLINE __m256i rows_of_eight(const std::uint64_t* grid, Number number) {
    const auto row = [&](int i) { return _mm256_set1_epi64x(static_cast<long long>(grid[number(i)])); };
    return _mm256_blend_epi32(_mm256_blend_epi32(row(0), row(1), 0x0C), _mm256_blend_epi32(row(2), row(3), 0xC0), 0xF0);
}
/// 256 magnitudes in rows of eight or of four, with their signs.
template <class Number>
static TINFER_INLINE void signed_rows(const std::uint64_t* grid, Number number, std::uint32_t (&signs)[8],
                                      std::int8_t* q) {
    keep_in_memory(signs);
    for (int i = 0; i < 8; ++i)
        store_bytes32(negate_where(signs[i], rows_of_eight(grid, [&](int r) { return number(4 * i + r); })),
                      q + 32 * i);
}
template <class Number>
static TINFER_INLINE void signed_rows(const std::uint32_t* grid, Number number, std::uint32_t (&signs)[8],
                                      std::int8_t* q) {
    keep_in_memory(signs);
    for (int i = 0; i < 8; ++i)
        store_bytes32(negate_where(signs[i], choose_words([&](int r) { return grid + number(8 * i + r); })),
                      q + 32 * i);
}

template <class Arch>
TINFER_INLINE void unpack_vector(IQ2_XXS, const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
    // Words one after the other: four row numbers, then signs and a scale.
    const __m256 first = _mm256_castsi256_ps(load_bytes32(block + 2)),
                 second = _mm256_castsi256_ps(load_bytes32(block + 34));
    const __m256i words = _mm256_castps_si256(_mm256_shuffle_ps(first, second, 0xDD));
    alignas(32) std::uint32_t signs[8];
    signs_and_scales(_mm256_permute4x64_epi64(words, 0xD8), signs, out.scale);
    signed_rows(
        kIq2XxsGrid, [&](int i) { return block[2 + i / 4 * 8 + i % 4]; }, signs, out.q);
    out.d = load_half(block) * 0.125f;
}
template <class Arch>
TINFER_INLINE void unpack_vector(IQ2_XS, const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
    const __m256i first = load_bytes32(block + 2), second = load_bytes32(block + 34);
    alignas(32) std::uint32_t signs[8];
    const __m256i seven = _mm256_packus_epi16(_mm256_srli_epi16(first, 9), _mm256_srli_epi16(second, 9));
    store_bytes32(with_eighth_sign(_mm256_permute4x64_epi64(seven, 0xD8)), signs);
    signed_rows(
        kIq2XsGrid, [&](int i) { return load_u16<Arch>(block + 2 + 2 * i) & 511; }, signs, out.q);
    odd_scales_in_turn(block + 66, out.scale);
    out.d = load_half(block) * 0.125f;
}
template <class Arch>
TINFER_INLINE void unpack_vector(IQ2_S, const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
    alignas(32) std::uint32_t signs[8];
    alignas(32) std::uint16_t numbers[32];
    join_numbers(load_bytes32(block + 2), pairs_in_turn(load_bytes8(block + 66)), numbers);
    std::memcpy(signs, block + 34, 32);
    keep_in_memory(numbers);
    signed_rows(
        kIq2SGrid, [&](int i) { return numbers[i]; }, signs, out.q);
    odd_scales_in_turn(block + 74, out.scale);
    out.d = load_half(block) * 0.125f;
}
template <class Arch>
TINFER_INLINE void unpack_vector(IQ3_XXS, const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
    alignas(32) std::uint32_t signs[8];
    signs_and_scales(load_bytes32(block + 66), signs, out.scale);
    signed_rows(
        kIq3XxsGrid, [&](int i) { return block[2 + i]; }, signs, out.q);
    out.d = load_half(block) * 0.25f;
}
template <class Arch>
TINFER_INLINE void unpack_vector(IQ3_S, const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
    alignas(32) std::uint32_t signs[8];
    alignas(32) std::uint16_t numbers[64];
    for (int half = 0; half < 2; ++half) {
        const __m256i ninth = _mm256_and_si256(mask_of(load_u32<Arch>(block + 66 + 4 * half)), bytes_of(1));
        join_numbers(load_bytes32(block + 2 + 32 * half), ninth, numbers + 32 * half);
    }
    std::memcpy(signs, block + 74, 32);
    keep_in_memory(numbers);
    signed_rows(
        kIq3SGrid, [&](int i) { return numbers[i]; }, signs, out.q);
    const auto scales = static_cast<long long>(load_u32<Arch>(block + 106));
    const __m128i s = nibbles_in_turn(_mm_cvtsi64_si128(scales)),
                  odd = _mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1));
    store_scales(_mm_unpacklo_epi8(odd, odd), out.scale);
    out.d = load_half(block);
}

/// Rows of −1, 0, 1 in eighths, shifted by one of them: up, or down where the bit is set.
static TINFER_INLINE void shifted_rows(std::uint16_t (&numbers)[32], std::uint32_t (&down)[8], std::int8_t* q) {
    keep_in_memory(numbers);
    keep_in_memory(down);
    for (int i = 0; i < 8; ++i) {
        const __m256i rows = rows_of_eight(kIq1Grid, [&](int r) { return numbers[4 * i + r]; });
        const __m256i eighths = _mm256_and_si256(_mm256_slli_epi16(rows, 3), bytes_of(0xF8));
        store_bytes32(_mm256_add_epi8(eighths, negate_where(down[i], bytes_of(1))), q + 32 * i);
    }
}
/// Row numbers of IQ1_S.
static TINFER_INLINE void store_numbers_of_iq1_s(const std::uint8_t* block, std::uint16_t (&numbers)[32]) {
    for (int half = 0; half < 2; ++half) {  // sixteen rows: low bytes, and three bits each in four words
        const __m256i low = _mm256_cvtepu8_epi16(load_bytes16(block + 2 + 16 * half));
        const __m256i upper = _mm256_slli_epi16(threes_in_turn(block + 34 + 8 * half), 8);
        store_bytes32(_mm256_or_si256(low, upper), numbers + 16 * half);
    }
}
/// Of IQ1_M a nibble for each row: three bits of its number and the sign of its shift.
static TINFER_INLINE __m256i nibbles_of_iq1_m(const std::uint8_t* block) {
    const __m128i bytes = load_bytes16(block + 32), shifted = _mm_srli_epi16(bytes, 4);
    return low_nibbles(_mm256_set_m128i(_mm_unpackhi_epi8(bytes, shifted), _mm_unpacklo_epi8(bytes, shifted)));
}
/// d of IQ1_M: the topmost nibbles of four words, lowest first.
static TINFER_INLINE std::uint16_t half_d_of_iq1_m(const std::uint8_t* block) {
    std::uint64_t words;
    std::memcpy(&words, block + 48, 8);
    return static_cast<std::uint16_t>((words >> 12 & 0x000F'000F'000F'000F) * 0x0001'0010'0100'1000 >> 48);
}
template <class Arch>
TINFER_INLINE void unpack_vector(IQ1_S, const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
    alignas(32) std::uint32_t down[8];
    alignas(32) std::uint16_t numbers[32];
    store_numbers_of_iq1_s(block, numbers);
    const __m256i words = _mm256_cvtepu16_epi32(load_bytes16(block + 34));  // the topmost bit, then three of the scale
    store_bytes32(_mm256_srai_epi32(_mm256_slli_epi32(words, 16), 31), down);
    shifted_rows(numbers, down, out.q);
    const __m256i s = _mm256_and_si256(_mm256_srli_epi32(words, 12), _mm256_set1_epi32(7));
    const __m256i both = _mm256_or_si256(s, _mm256_slli_epi32(s, 16));
    store_bytes32(_mm256_add_epi16(_mm256_add_epi16(both, both), _mm256_set1_epi16(1)), out.scale);
    out.d = load_half(block) * 0.125f;
}
template <class Arch>
TINFER_INLINE void unpack_vector(IQ1_M, const std::uint8_t* block, int /*unit*/, Codes256& out) noexcept {
    alignas(32) std::uint32_t down[8];
    alignas(32) std::uint16_t numbers[32];
    const __m256i nibbles = nibbles_of_iq1_m(block);
    join_numbers(load_bytes32(block), _mm256_and_si256(nibbles, bytes_of(7)), numbers);
    store_bytes32(_mm256_cmpgt_epi8(nibbles, bytes_of(7)), down);
    shifted_rows(numbers, down, out.q);
    const __m256i s = threes_in_turn(block + 48);
    store_bytes32(_mm256_add_epi16(_mm256_add_epi16(s, s), _mm256_set1_epi16(1)), out.scale);
    out.d = f16_to_f32<Arch>(half_d_of_iq1_m(block)) * 0.125f;
}

}  // namespace tinfer::kernels

#endif
