// SPDX-License-Identifier: MIT
// Decoders of sixteen rows at once for AVX-512, of the formats whose speed matters most: bytes are turned first, so that
// lanes are rows, and nibbles and bits are taken apart after that, when each instruction works for sixteen rows. The
// integers are those of the formats' own formulas. Here are super-blocks; blocks of 32 are in kernels/panel_avx512_blocks.hpp.
#pragma once

#include "kernels/code_route.hpp"
#include "kernels/unpack_bits.hpp"

#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)

namespace tinfer::kernels {

/// The blocks at one place of K of sixteen rows.
struct SixteenBlocks {
    const std::uint8_t* row[16];
    std::int64_t at = 0;         ///< where in its row each block begins
    [[nodiscard]] TINFER_INLINE const std::uint8_t* operator[](int r) const noexcept { return row[r] + at; }
};

/// Bytes at … at + 16 of each block as four words: words[c] has bytes 4c … 4c + 3 of block r in lane r.
static TINFER_INLINE void load_words(const SixteenBlocks& b, std::int64_t at, __m512i (&words)[4]) {
    const auto quarter = [&](int r) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(b[r] + at)); };
    __m512i z[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {   // rows i, 4 + i, 8 + i, 12 + i
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

/// Bytes at … at + 32 of each block as eight words.
static TINFER_INLINE void load_words(const SixteenBlocks& b, std::int64_t at, __m512i (&words)[8]) {
    const auto half = [&](int r) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b[r] + at)); };
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {   // rows 8i … 8i + 7
        __m512i z[4];               // rows 8i + r, 8i + 4 + r
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r)
            z[r] = _mm512_mask_broadcast_i64x4(_mm512_castsi256_si512(half(8 * i + r)), 0xF0, half(8 * i + 4 + r));
        const __m512i low01 = _mm512_unpacklo_epi32(z[0], z[1]), high01 = _mm512_unpackhi_epi32(z[0], z[1]);
        const __m512i low23 = _mm512_unpacklo_epi32(z[2], z[3]), high23 = _mm512_unpackhi_epi32(z[2], z[3]);
        words[4 * i] = _mm512_unpacklo_epi64(low01, low23);
        words[4 * i + 1] = _mm512_unpackhi_epi64(low01, low23);
        words[4 * i + 2] = _mm512_unpacklo_epi64(high01, high23);
        words[4 * i + 3] = _mm512_unpackhi_epi64(high01, high23);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {   // of eight rows each: words c and 4 + c
        const __m512i first = words[c], last = words[4 + c];
        words[c] = _mm512_shuffle_i32x4(first, last, 0x88);
        words[4 + c] = _mm512_shuffle_i32x4(first, last, 0xDD);
    }
}

static TINFER_INLINE __m512i each_byte(int value) { return _mm512_set1_epi8(static_cast<char>(value)); }
static TINFER_INLINE __m512i low_nibbles(__m512i bytes) { return _mm512_and_si512(bytes, each_byte(15)); }
static TINFER_INLINE __m512i high_nibbles(__m512i bytes) { return low_nibbles(_mm512_srli_epi16(bytes, 4)); }
/// Bits 2i and 2i + 1 of each byte.
static TINFER_INLINE __m512i bit_pairs(__m512i bytes, int i) {
    return _mm512_and_si512(_mm512_srli_epi16(bytes, static_cast<unsigned>(2 * i)), each_byte(3));
}
/// a where the mask has ones, else b.
static TINFER_INLINE __m512i choose(__m512i mask, __m512i a, __m512i b) {
    return _mm512_ternarylogic_epi32(mask, a, b, 0xCA);
}
/// The half float in the low or high half of each lane.
static TINFER_INLINE __m512 low_f16(__m512i lanes) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(lanes)); }
static TINFER_INLINE __m512 high_f16(__m512i lanes) { return low_f16(_mm512_srli_epi32(lanes, 16)); }
/// Half floats at `at` of each block.
static TINFER_INLINE __m512 load_f16s(const SixteenBlocks& b, std::int64_t at) {
    alignas(32) std::uint16_t halves[16];
    for (int r = 0; r < 16; ++r) std::memcpy(&halves[r], b[r] + at, 2);
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves)));
}
/// Four bytes at `at` of each block.
static TINFER_INLINE __m512i load_words32(const SixteenBlocks& b, std::int64_t at) {
    alignas(64) std::uint32_t words[16];
    for (int r = 0; r < 16; ++r) std::memcpy(&words[r], b[r] + at, 4);
    return _mm512_load_si512(words);
}
/// The levels that nibbles stand for in formats that have a table of sixteen, with the bias of their unsigned codes.
template <class Format>
TINFER_INLINE __m512i level_codes(__m512i nibbles) {
    const __m128i levels = load_bytes16(Format::kType == DType::mxfp4 ? kFp4Doubled : kIq4Levels);
    const __m128i biased = _mm_add_epi8(levels, _mm_set1_epi8(static_cast<char>(CodeRoute<avx512vnni, Format>::kBias)));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(biased), nibbles);
}
/// Bytes 2·pair and 2·pair + 1 of each lane as two int16, of unsigned bytes.
static TINFER_INLINE __m512i byte_pair(__m512i lanes, int pair) {
    const int lane = static_cast<int>(0x80018000u + 0x00020002u * static_cast<unsigned>(pair));   // a set top bit gives zero
    const __m128i index = _mm_setr_epi32(lane, lane + 0x00040004, lane + 0x00080008, lane + 0x000C000C);
    return _mm512_shuffle_epi8(lanes, _mm512_broadcast_i32x4(index));
}
/// The same of signed bytes.
static TINFER_INLINE __m512i signed_byte_pair(__m512i lanes, int pair) {
    const int lane = static_cast<int>(0x01800080u + 0x02000200u * static_cast<unsigned>(pair));
    const __m128i index = _mm_setr_epi32(lane, lane + 0x04000400, lane + 0x08000800, lane + 0x0C000C00);
    return _mm512_srai_epi16(_mm512_shuffle_epi8(lanes, _mm512_broadcast_i32x4(index)), 8);
}

// A decoder hands its results to a sink, sub-block after sub-block: super-blocks have kScaleElems values in each, blocks of 32
// are sub-blocks themselves. Of each pair of super-blocks' sub-blocks the second comes first.
//   sink.d(d), sink.dmin(d), sink.mins(pair, m)    of super-blocks, before all else: minimums 2·pair and 2·pair + 1 as two int16
//   sink.scales(pair, s)                           of super-blocks, before the pair: scales 2·pair and 2·pair + 1 as two int16
//   sink.d(unit, d), sink.m(unit, m)               of blocks of 32, before the block
//   sink.begin(j)                                  sub-block j follows,
//   sink.codes(j, word, c)                         bytes 4·word … 4·word + 3 of the codes, with the sign and bias of
//                                                  CodeRoute<avx512vnni, Format>,
//   sink.end(j)                                    and is complete.
// A sink that kTakesUpper has the codes of second sub-blocks as they lie in their bytes, kUpperBits<Format> up.

template <class Format>
inline constexpr unsigned kUpperBits = Format::kType == DType::q4_k ? 4 : 0;

/// Sub-block j, of n words.
template <int n, class Sink, class Word>
TINFER_INLINE void put_sub_block(Sink& sink, int j, const Word& word) {
    sink.begin(j);
#pragma GCC unroll 8
    for (int c = 0; c < n; ++c) sink.codes(j, n * j + c, word(c));
    sink.end(j);
}

/// The scales and mins that Q4_K and Q5_K share, and their d.
template <class Sink>
TINFER_INLINE void decode_k_header(const SixteenBlocks& b, Sink& sink, __m512i (&scales)[2]) {
    __m512i head[4];   // d and dmin, then the twelve bytes: see unpack_scales_and_mins
    load_words(b, 0, head);
    sink.d(low_f16(head[0]));
    sink.dmin(high_f16(head[0]));
    const __m512i six = each_byte(0x3F), top = each_byte(0x30), four = each_byte(0x0F);
    scales[0] = _mm512_and_si512(head[1], six);
    scales[1] = choose(four, head[3], _mm512_and_si512(_mm512_srli_epi32(head[1], 2), top));
    const __m512i mins[2] = {_mm512_and_si512(head[2], six),
        choose(four, _mm512_srli_epi32(head[3], 4), _mm512_and_si512(_mm512_srli_epi32(head[2], 2), top))};
    for (int pair = 0; pair < 4; ++pair) sink.mins(pair, byte_pair(mins[pair / 2], pair % 2));
}

template <class Sink>
TINFER_INLINE void decode_sixteen(Q4_K, const SixteenBlocks& b, int /*n_units*/, Sink& sink) {
    __m512i scales[2];
    decode_k_header(b, sink, scales);
    for (int g = 0; g < 4; ++g) {   // 64 values: sub-block 2g in the low nibbles of 32 bytes, 2g + 1 in the high ones
        __m512i words[8];
        load_words(b, 16 + 32 * g, words);
        sink.scales(g, byte_pair(scales[g / 2], g % 2));
        put_sub_block<8>(sink, 2 * g + 1, [&](int c) {
            return Sink::kTakesUpper ? _mm512_and_si512(words[c], each_byte(0xF0)) : high_nibbles(words[c]);
        });
        put_sub_block<8>(sink, 2 * g, [&](int c) { return low_nibbles(words[c]); });
    }
}

template <class Sink>
TINFER_INLINE void decode_sixteen(Q5_K, const SixteenBlocks& b, int /*n_units*/, Sink& sink) {
    __m512i scales[2], fifth[8];
    decode_k_header(b, sink, scales);
    load_words(b, 16, fifth);
    const __m512i sixteen = each_byte(16);
    const auto fifth_of = [&](int c, int j) {   // bit j of a byte belongs to sub-block j
        return _mm512_and_si512(j < 4 ? _mm512_slli_epi16(fifth[c], static_cast<unsigned>(4 - j))
                                      : _mm512_srli_epi16(fifth[c], static_cast<unsigned>(j - 4)), sixteen);
    };
    for (int g = 0; g < 4; ++g) {
        __m512i words[8];
        load_words(b, 48 + 32 * g, words);
        sink.scales(g, byte_pair(scales[g / 2], g % 2));
        put_sub_block<8>(sink, 2 * g + 1, [&](int c) { return _mm512_or_si512(high_nibbles(words[c]), fifth_of(c, 2 * g + 1)); });
        put_sub_block<8>(sink, 2 * g, [&](int c) { return _mm512_or_si512(low_nibbles(words[c]), fifth_of(c, 2 * g)); });
    }
}

template <class Sink>
TINFER_INLINE void decode_sixteen(Q6_K, const SixteenBlocks& b, int /*n_units*/, Sink& sink) {
    __m512i scales[4];
    load_words(b, 192, scales);
    sink.d(load_f16s(b, 208));
    const __m512i upper_mask = each_byte(0x30);
    for (int half = 0; half < 2; ++half) {   // 128 values in four pairs of sub-blocks, two in the low nibbles, two in the high ones
        __m512i upper[8];
        load_words(b, 128 + 32 * half, upper);
#pragma GCC unroll 2
        for (int run = 0; run < 2; ++run) {
            __m512i words[8];
            load_words(b, 64 * half + 32 * run, words);
#pragma GCC unroll 2
            for (int pair = run; pair < 4; pair += 2) {
                sink.scales(4 * half + pair, signed_byte_pair(scales[2 * half + pair / 2], pair % 2));
                const auto code = [&](int c) {
                    const __m512i bits = pair < 2 ? _mm512_slli_epi16(upper[c], pair == 0 ? 4 : 2) : _mm512_srli_epi16(upper[c], pair == 2 ? 0 : 2);
                    return _mm512_or_si512(pair < 2 ? low_nibbles(words[c]) : high_nibbles(words[c]), _mm512_and_si512(bits, upper_mask));
                };
#pragma GCC unroll 2
                for (int second = 1; second >= 0; --second)
                    put_sub_block<4>(sink, 8 * half + 2 * pair + second, [&](int c) { return code(4 * second + c); });
            }
        }
    }
}

/// 256 bit pairs, of which bits 2i and 2i + 1 of 32 bytes are 32 neighbours: code(bits, c, pair) makes codes of those of word c
/// of the bytes, scales(pair) the scales of two sub-blocks.
template <class Sink, class Scales, class Code>
TINFER_INLINE void decode_bit_pairs(const SixteenBlocks& b, std::int64_t at, Sink& sink, const Scales& scales, const Code& code) {
    for (int half = 0; half < 2; ++half) {
        __m512i words[8];
        load_words(b, at + 32 * half, words);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const int pair = 4 * half + i;
            sink.scales(pair, scales(pair));
#pragma GCC unroll 2
            for (int second = 1; second >= 0; --second)
                put_sub_block<4>(sink, 2 * pair + second, [&](int c) { return code(bit_pairs(words[4 * second + c], i), 4 * second + c, pair); });
        }
    }
}

template <class Sink>
TINFER_INLINE void decode_sixteen(Q3_K, const SixteenBlocks& b, int /*n_units*/, Sink& sink) {
    __m512i s[4], third[8];   // scales: four bits of each in s[1] and s[2], the upper two of all in s[3]
    load_words(b, 92, s);
    load_words(b, 0, third);
    sink.d(load_f16s(b, 108));
    const __m512i four = each_byte(15), top = each_byte(0x30), offset = each_byte(32);
    const __m512i scales[4] = {
        _mm512_or_si512(_mm512_and_si512(s[1], four), _mm512_and_si512(_mm512_slli_epi32(s[3], 4), top)),
        _mm512_or_si512(_mm512_and_si512(s[2], four), _mm512_and_si512(_mm512_slli_epi32(s[3], 2), top)),
        _mm512_or_si512(high_nibbles(s[1]), _mm512_and_si512(s[3], top)),
        _mm512_or_si512(high_nibbles(s[2]), _mm512_and_si512(_mm512_srli_epi32(s[3], 2), top))};
    const auto third_of = [&](int c, int i) {   // bit i of a byte belongs to values 32i … 32i + 31
        return _mm512_and_si512(i < 2 ? _mm512_slli_epi16(third[c], static_cast<unsigned>(2 - i))
                                      : _mm512_srli_epi16(third[c], static_cast<unsigned>(i - 2)), each_byte(4));
    };
    decode_bit_pairs(b, 32, sink, [&](int pair) { return signed_byte_pair(_mm512_sub_epi8(scales[pair / 2], offset), pair % 2); },
        [&](__m512i bits, int c, int pair) { return _mm512_or_si512(bits, third_of(c, pair)); });
}

template <class Sink>
TINFER_INLINE void decode_sixteen(Q2_K, const SixteenBlocks& b, int /*n_units*/, Sink& sink) {
    __m512i scales[4];   // and mins in the high nibbles
    load_words(b, 0, scales);
    const __m512i head = load_words32(b, 80);
    sink.d(low_f16(head));
    sink.dmin(high_f16(head));
    for (int pair = 0; pair < 8; ++pair) sink.mins(pair, byte_pair(high_nibbles(scales[pair / 2]), pair % 2));
    decode_bit_pairs(b, 16, sink, [&](int pair) { return byte_pair(low_nibbles(scales[pair / 2]), pair % 2); },
        [](__m512i bits, int, int) { return bits; });
}

template <class Sink>
TINFER_INLINE void decode_sixteen(IQ4_XS, const SixteenBlocks& b, int /*n_units*/, Sink& sink) {
    const __m512i head = load_words32(b, 0), low_bits = load_words32(b, 4);   // d and the upper bits; the lower bits
    sink.d(low_f16(head));
    const auto scale = [&](int j) {
        const __m512i low = _mm512_and_si512(_mm512_srli_epi32(low_bits, static_cast<unsigned>(4 * j)), _mm512_set1_epi32(15));
        const __m512i high = _mm512_and_si512(_mm512_srli_epi32(head, static_cast<unsigned>(16 + 2 * j)), _mm512_set1_epi32(3));
        return _mm512_sub_epi32(_mm512_or_si512(low, _mm512_slli_epi32(high, 4)), _mm512_set1_epi32(32));
    };
    for (int pair = 0; pair < 4; ++pair) {
        __m512i words[8];
        load_words(b, 8 + 32 * pair, words);
        sink.scales(pair, choose(_mm512_set1_epi32(0xFFFF), scale(2 * pair), _mm512_slli_epi32(scale(2 * pair + 1), 16)));
#pragma GCC unroll 2
        for (int second = 1; second >= 0; --second)
            put_sub_block<8>(sink, 2 * pair + second, [&](int c) {
                const __m512i bytes = words[4 * second + c % 4];
                return level_codes<IQ4_XS>(c < 4 ? low_nibbles(bytes) : high_nibbles(bytes));
            });
    }
}

}  // namespace tinfer::kernels

#endif
