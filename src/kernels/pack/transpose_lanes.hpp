// SPDX-License-Identifier: MIT
// Registers whose lanes are rows: bytes of four rows (NEON: kernels/pack/transpose_lanes_neon.hpp), of eight (AVX2) or
// of sixteen (AVX-512), transposed as they are loaded, and what decoders do with them
// (kernels/pack/transposed_decode_k.hpp), under one name for all.
#pragma once

#include "kernels/dequantize/block_codes.hpp"
#include "kernels/pack/int8_encoding.hpp"

#if defined(__AVX2__) || defined(__aarch64__)

namespace tinfer::kernels {

/// The blocks at one place of K of N rows. Where Masked, second halves of registers come by masked loads, which do not
/// take the units that shuffle, as insertions do: they begin 32 bytes before a block's bytes, but read and fault on
/// none of those.
template <int N, bool Masked = false>
struct RowBlocks {
    const std::uint8_t* row[N];
    std::int64_t at = 0;  ///< where in its row each block begins
    [[nodiscard]] TINFER_INLINE const std::uint8_t* operator[](int r) const noexcept { return row[r] + at; }
    TINFER_INLINE void advance(std::int64_t bytes) noexcept {
#    if defined(__aarch64__)
        for (const std::uint8_t*& begin : row) begin += bytes;  // a load adds a register or a constant, not both
#    else
        at += bytes;
#    endif
    }
};

/// The registers of N rows, 32 bits of each.
template <int N>
struct RowLanes;
template <int N>
using RowBytes = typename RowLanes<N>::Bytes;

/// A value in every byte, in every lane.
template <int N>
TINFER_INLINE RowBytes<N> each_byte(int value) {
    return RowLanes<N>::each_byte(value);
}
template <int N>
TINFER_INLINE RowBytes<N> each_word(int value) {
    return RowLanes<N>::each_word(value);
}

// shift_…_16, shift_…_32   lanes of so many bits; zeros come in
// choose                   a where the mask has ones, else b
// where_set                a value where the one bit of each byte is set, else zero
// low_f16, high_f16        the half float in that half of each lane
// byte_pair                unsigned bytes 2·pair and 2·pair + 1 of each lane as two int16
// signed_byte_pair         the same of signed bytes
// load_words               16 (or 32) bytes at `at` of each block as four (eight) words: words[c] has bytes
//                          4c … 4c + 3 of block r in lane r
// load_words32             four bytes at `at` of each block
// load_f16s                half floats at `at`; reads the two bytes after them too. load_last_f16s: the two before
// look_up                  of a table of sixteen bytes (levels_of) those with the numbers in each byte
// shuffle_in_quarters      bytes of each sixteen by their numbers (four_words); those with the top bit set give zero
// store_lanes              to memory aligned as the register

}  // namespace tinfer::kernels

#endif

#include "kernels/pack/transpose_lanes_neon.hpp"

#if defined(__AVX2__) || defined(__aarch64__)

namespace tinfer::kernels {

#    if defined(__AVX2__)

// ---- Eight rows -----------------------------------------------------------------------------------------------------

template <>
struct RowLanes<8> {
    using Bytes = __m256i;
    using Floats = __m256;
    static TINFER_INLINE __m256i each_byte(int value) { return bytes_of(value); }
    static TINFER_INLINE __m256i each_word(int value) { return _mm256_set1_epi32(value); }
};

static TINFER_INLINE __m256i bits_and(__m256i a, __m256i b) { return _mm256_and_si256(a, b); }
static TINFER_INLINE __m256i bits_or(__m256i a, __m256i b) { return _mm256_or_si256(a, b); }
static TINFER_INLINE __m256i bits_xor(__m256i a, __m256i b) { return _mm256_xor_si256(a, b); }
static TINFER_INLINE __m256i shift_right_16(__m256i v, int n) { return _mm256_srli_epi16(v, n); }
static TINFER_INLINE __m256i shift_left_16(__m256i v, int n) { return _mm256_slli_epi16(v, n); }
static TINFER_INLINE __m256i shift_right_32(__m256i v, int n) { return _mm256_srli_epi32(v, n); }
static TINFER_INLINE __m256i shift_left_32(__m256i v, int n) { return _mm256_slli_epi32(v, n); }
static TINFER_INLINE __m256i subtract_bytes(__m256i a, __m256i b) { return _mm256_sub_epi8(a, b); }
static TINFER_INLINE __m256i subtract_words(__m256i a, __m256i b) { return _mm256_sub_epi32(a, b); }
static TINFER_INLINE __m256i multiply_words(__m256i a, __m256i b) { return _mm256_mullo_epi32(a, b); }
static TINFER_INLINE __m128i four_words(int a, int b, int c, int d) { return _mm_setr_epi32(a, b, c, d); }
static TINFER_INLINE __m128i levels_of(const std::int8_t* table, int bias) {
    return _mm_add_epi8(load_bytes16(table), _mm_set1_epi8(static_cast<char>(bias)));
}
static TINFER_INLINE __m256i look_up(__m128i table, __m256i index) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), index);
}
static TINFER_INLINE __m256i where_set(__m256i bytes, __m256i bits, __m256i value) {
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, bits), bits), value);
}
static TINFER_INLINE __m256i choose(__m256i mask, __m256i a, __m256i b) {
    return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
}
static TINFER_INLINE __m256 low_f16(__m256i lanes) { return low_halves(lanes); }
static TINFER_INLINE __m256 high_f16(__m256i lanes) { return low_halves(_mm256_srli_epi32(lanes, 16)); }
static TINFER_INLINE __m256i shuffle_in_quarters(__m256i lanes, __m128i index) {
    return _mm256_shuffle_epi8(lanes, _mm256_broadcastsi128_si256(index));
}
static TINFER_INLINE __m256i upper_bytes(__m256i int16s) { return _mm256_srai_epi16(int16s, 8); }
static TINFER_INLINE void store_lanes(void* p, __m256i v) { _mm256_store_si256(static_cast<__m256i*>(p), v); }
static TINFER_INLINE void store_lanes(float* p, __m256 v) { _mm256_store_ps(p, v); }

static TINFER_INLINE void load_words(const RowBlocks<8>& b, std::int64_t at, __m256i (&words)[4]) {
    // Rows r and 4 + r. A load to both halves and a choice have more ports than an insertion.
    const auto pair = [&](int r) {
        return _mm256_blend_epi32(_mm256_castsi128_si256(load_bytes16(b[r] + at)), twice16(b[4 + r] + at), 0xF0);
    };
    const __m256i z0 = pair(0), z1 = pair(1), z2 = pair(2), z3 = pair(3);
    const __m256i low01 = _mm256_unpacklo_epi32(z0, z1), high01 = _mm256_unpackhi_epi32(z0, z1);
    const __m256i low23 = _mm256_unpacklo_epi32(z2, z3), high23 = _mm256_unpackhi_epi32(z2, z3);
    words[0] = _mm256_unpacklo_epi64(low01, low23);
    words[1] = _mm256_unpackhi_epi64(low01, low23);
    words[2] = _mm256_unpacklo_epi64(high01, high23);
    words[3] = _mm256_unpackhi_epi64(high01, high23);
}
static TINFER_INLINE void load_words(const RowBlocks<8>& b, std::int64_t at, __m256i (&words)[8]) {
    __m256i half[4];
    for (int i = 0; i < 2; ++i) {
        load_words(b, at + 16 * i, half);
        for (int c = 0; c < 4; ++c) words[4 * i + c] = half[c];
    }
}
static TINFER_INLINE __m256i load_words32(const RowBlocks<8>& b, std::int64_t at) {
    return choose_words([&](int r) { return b[r] + at; });
}
static TINFER_INLINE __m256 load_f16s(const RowBlocks<8>& b, std::int64_t at) { return low_f16(load_words32(b, at)); }
static TINFER_INLINE __m256 load_last_f16s(const RowBlocks<8>& b, std::int64_t at) {
    return high_f16(load_words32(b, at - 2));
}

// ---- Sixteen rows ---------------------------------------------------------------------------------------------------

#        if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)

template <>
struct RowLanes<16> {
    using Bytes = __m512i;
    using Floats = __m512;
    static TINFER_INLINE __m512i each_byte(int value) { return _mm512_set1_epi8(static_cast<char>(value)); }
    static TINFER_INLINE __m512i each_word(int value) { return _mm512_set1_epi32(value); }
};

static TINFER_INLINE __m512i bits_and(__m512i a, __m512i b) { return _mm512_and_si512(a, b); }
static TINFER_INLINE __m512i bits_or(__m512i a, __m512i b) { return _mm512_or_si512(a, b); }
static TINFER_INLINE __m512i bits_xor(__m512i a, __m512i b) { return _mm512_xor_si512(a, b); }
static TINFER_INLINE __m512i shift_right_16(__m512i v, int n) { return _mm512_srli_epi16(v, static_cast<unsigned>(n)); }
static TINFER_INLINE __m512i shift_left_16(__m512i v, int n) { return _mm512_slli_epi16(v, static_cast<unsigned>(n)); }
static TINFER_INLINE __m512i shift_right_32(__m512i v, int n) { return _mm512_srli_epi32(v, static_cast<unsigned>(n)); }
static TINFER_INLINE __m512i shift_left_32(__m512i v, int n) { return _mm512_slli_epi32(v, static_cast<unsigned>(n)); }
static TINFER_INLINE __m512i subtract_bytes(__m512i a, __m512i b) { return _mm512_sub_epi8(a, b); }
static TINFER_INLINE __m512i subtract_words(__m512i a, __m512i b) { return _mm512_sub_epi32(a, b); }
static TINFER_INLINE __m512i multiply_words(__m512i a, __m512i b) { return _mm512_mullo_epi32(a, b); }
static TINFER_INLINE __m512i look_up(__m128i table, __m512i index) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), index);
}
static TINFER_INLINE __m512i where_set(__m512i bytes, __m512i bits, __m512i value) {
    return _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(bytes, bits), value);
}
static TINFER_INLINE __m512i choose(__m512i mask, __m512i a, __m512i b) {
    return _mm512_ternarylogic_epi32(mask, a, b, 0xCA);
}
static TINFER_INLINE __m512 low_f16(__m512i lanes) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(lanes)); }
static TINFER_INLINE __m512 high_f16(__m512i lanes) { return low_f16(_mm512_srli_epi32(lanes, 16)); }
static TINFER_INLINE __m512i shuffle_in_quarters(__m512i lanes, __m128i index) {
    return _mm512_shuffle_epi8(lanes, _mm512_broadcast_i32x4(index));
}
static TINFER_INLINE __m512i upper_bytes(__m512i int16s) { return _mm512_srai_epi16(int16s, 8); }
static TINFER_INLINE void store_lanes(void* p, __m512i v) { _mm512_store_si512(p, v); }
static TINFER_INLINE void store_lanes(float* p, __m512 v) { _mm512_store_ps(p, v); }

template <bool Masked>
static TINFER_INLINE void load_words(const RowBlocks<16, Masked>& b, std::int64_t at, __m512i (&words)[4]) {
    const auto quarter = [&](int r) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(b[r] + at)); };
    __m512i z[4];
#            pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // rows i, 4 + i, 8 + i, 12 + i
        z[i] = _mm512_castsi128_si512(quarter(i));
        z[i] = _mm512_inserti32x4(z[i], quarter(4 + i), 1);
        z[i] = _mm512_inserti32x4(z[i], quarter(8 + i), 2);
        z[i] = _mm512_inserti32x4(z[i], quarter(12 + i), 3);
    }
    const __m512i low01 = _mm512_unpacklo_epi32(z[0], z[1]), high01 = _mm512_unpackhi_epi32(z[0], z[1]);
    const __m512i low23 = _mm512_unpacklo_epi32(z[2], z[3]), high23 = _mm512_unpackhi_epi32(z[2], z[3]);
    words[0] = _mm512_unpacklo_epi64(low01, low23);
    words[1] = _mm512_unpackhi_epi64(low01, low23);
    words[2] = _mm512_unpacklo_epi64(high01, high23);
    words[3] = _mm512_unpackhi_epi64(high01, high23);
}

template <bool Masked>
static TINFER_INLINE void load_words(const RowBlocks<16, Masked>& b, std::int64_t at, __m512i (&words)[8]) {
    const auto half = [&](int r) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b[r] + at)); };
    const auto with_upper = [&](__m256i lower, int r) {
        const __m512i z = _mm512_castsi256_si512(lower);
        if constexpr (Masked) return _mm512_mask_loadu_epi64(z, 0xF0, b[r] + at - 32);
        else return _mm512_mask_broadcast_i64x4(z, 0xF0, half(r));
    };
#            pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {  // rows 8i … 8i + 7
        __m512i z[4];              // rows 8i + r, 8i + 4 + r
#            pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) z[r] = with_upper(half(8 * i + r), 8 * i + 4 + r);
        const __m512i low01 = _mm512_unpacklo_epi32(z[0], z[1]), high01 = _mm512_unpackhi_epi32(z[0], z[1]);
        const __m512i low23 = _mm512_unpacklo_epi32(z[2], z[3]), high23 = _mm512_unpackhi_epi32(z[2], z[3]);
        words[4 * i] = _mm512_unpacklo_epi64(low01, low23);
        words[4 * i + 1] = _mm512_unpackhi_epi64(low01, low23);
        words[4 * i + 2] = _mm512_unpacklo_epi64(high01, high23);
        words[4 * i + 3] = _mm512_unpackhi_epi64(high01, high23);
    }
#            pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {  // of eight rows each: words c and 4 + c
        const __m512i first = words[c], last = words[4 + c];
        words[c] = _mm512_shuffle_i32x4(first, last, 0x88);
        words[4 + c] = _mm512_shuffle_i32x4(first, last, 0xDD);
    }
}

template <bool Masked>
static TINFER_INLINE __m512 load_f16s(const RowBlocks<16, Masked>& b, std::int64_t at) {
    alignas(32) std::uint16_t halves[16];
    for (int r = 0; r < 16; ++r) std::memcpy(&halves[r], b[r] + at, 2);
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves)));
}
template <bool Masked>
static TINFER_INLINE __m512i load_words32(const RowBlocks<16, Masked>& b, std::int64_t at) {
    alignas(64) std::uint32_t words[16];
    for (int r = 0; r < 16; ++r) std::memcpy(&words[r], b[r] + at, 4);
    return _mm512_load_si512(words);
}
template <bool Masked>
static TINFER_INLINE __m512 load_last_f16s(const RowBlocks<16, Masked>& b, std::int64_t at) {
    return load_f16s(b, at);
}
static TINFER_INLINE __m512i low_nibbles(__m512i bytes) { return bits_and(bytes, each_byte<16>(15)); }
static TINFER_INLINE __m512i high_nibbles(__m512i bytes) { return low_nibbles(_mm512_srli_epi16(bytes, 4)); }
/// e8m0_half of the lowest byte of each lane.
static TINFER_INLINE __m512 e8m0_halves(__m512i lanes) {
    const __m512i e = _mm512_and_si512(lanes, _mm512_set1_epi32(255)),
                  small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    const __m512i bits = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2)), small));
}

#        endif
#    endif

// ---- All ---------------------------------------------------------------------------------------------------------

/// Bits 2i and 2i + 1 of each byte.
template <int N>
TINFER_INLINE RowBytes<N> bit_pairs(RowBytes<N> bytes, int i) {
    return bits_and(shift_right_16(bytes, 2 * i), each_byte<N>(3));
}
/// The levels that nibbles stand for in formats that have a table of sixteen, with the bias of their codes.
template <class Arch, class Format, int N>
TINFER_INLINE RowBytes<N> level_codes(RowBytes<N> nibbles) {
    const std::int8_t* levels =
        Format::kType == DType::mxfp4 || Format::kType == DType::nvfp4 ? kFp4Doubled : kIq4Levels;
    return look_up(levels_of(levels, Int8Encoding<Arch, Format>::kBias), nibbles);
}
/// Codes that the file has kMaxCode (or By) too high, with the bias that the multiplier wants.
template <class Arch, class Format, int N, int By = Format::kMaxCode>
TINFER_INLINE RowBytes<N> rebias(RowBytes<N> codes) {
    constexpr int kTooHigh = By - Int8Encoding<Arch, Format>::kBias;
    if constexpr (kTooHigh == 0) return codes;
    else return subtract_bytes(codes, each_byte<N>(kTooHigh));
}
/// Byte `byte` of each lane in the bytes that `where` has zeros for; where it has ones comes zero.
template <int N>
TINFER_INLINE RowBytes<N> byte_of_lanes(RowBytes<N> lanes, int byte, int where) {
    const int lane = 0x01010101 * byte | where;
    return shuffle_in_quarters(lanes, four_words(lane, lane + 0x04040404, lane + 0x08080808, lane + 0x0C0C0C0C));
}
/// Bits 4c … 4c + 3 of each lane, one in each byte: `value` where they are set, else zero.
template <int N>
TINFER_INLINE RowBytes<N> spread_bits(RowBytes<N> lanes, int c, int value) {
    const int bits = static_cast<int>(c % 2 == 0 ? 0x08040201u : 0x80402010u);
    return where_set(byte_of_lanes<N>(lanes, c / 2, 0), each_word<N>(bits), each_byte<N>(value));
}
/// The bit pairs of byte c of each lane, one in each byte.
template <int N>
TINFER_INLINE RowBytes<N> spread_pairs(RowBytes<N> lanes, int c) {
    if constexpr (N == 4) return pairs_of_bytes(byte_of_lanes<N>(lanes, c, 0));
    else {
        const RowBytes<N> one = byte_of_lanes<N>(lanes, c, static_cast<int>(0x80808000u)),
                          two = bits_or(one, shift_left_32(one, 6));
        return bits_and(bits_or(two, shift_left_32(two, 12)), each_byte<N>(3));
    }
}
/// ue4m3_half (quants/half.hpp) of byte `byte` of each lane: its bits are those of a half float, 128 times too small.
template <int N>
TINFER_INLINE typename RowLanes<N>::Floats ue4m3_halves(RowBytes<N> lanes, int byte) {
    const RowBytes<N> one = each_word<N>(1), seven = each_word<N>(0x7F),
                      u = bits_and(shift_right_32(lanes, 8 * byte), each_word<N>(0xFF));
    const RowBytes<N> is_nan = shift_right_32(subtract_words(bits_xor(u, seven), one), 31);  // taken as 0
    const RowBytes<N> finite = bits_and(subtract_words(is_nan, one), seven);
    return low_f16(shift_left_32(bits_and(u, finite), 7)) * 128.0f;
}
template <int N>
TINFER_INLINE RowBytes<N> byte_pair(RowBytes<N> lanes, int pair) {
    const int lane =
        static_cast<int>(0x80018000u + 0x00020002u * static_cast<unsigned>(pair));  // a set top bit gives zero
    return shuffle_in_quarters(lanes, four_words(lane, lane + 0x00040004, lane + 0x00080008, lane + 0x000C000C));
}
/// One of the two int16 of each lane, in both halves.
template <int N>
TINFER_INLINE RowBytes<N> int16_of_pair(RowBytes<N> pairs, int which) {
    const int lane = which == 0 ? 0x01000100 : 0x03020302;
    return shuffle_in_quarters(pairs, four_words(lane, lane + 0x04040404, lane + 0x08080808, lane + 0x0C0C0C0C));
}
template <int N>
TINFER_INLINE RowBytes<N> signed_byte_pair(RowBytes<N> lanes, int pair) {
    const int lane = static_cast<int>(0x01800080u + 0x02000200u * static_cast<unsigned>(pair));
    return upper_bytes(
        shuffle_in_quarters(lanes, four_words(lane, lane + 0x04000400, lane + 0x08000800, lane + 0x0C000C00)));
}

}  // namespace tinfer::kernels

#endif
