// SPDX-License-Identifier: MIT
// Panel decoders of the formats whose speed matters most, for AVX-512. Sixteen rows are decoded at once: their bytes are
// turned first, sixteen at a time, so that lanes are rows, and nibbles and bits are taken apart after that, when each
// instruction works for sixteen rows. The integers are those of the formats' own formulas.
#pragma once

#include "kernels/code_route.hpp"
#include "kernels/unpack_bits.hpp"

#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)

namespace tinfer::kernels {

/// The blocks at one place of K of sixteen rows.
struct SixteenBlocks {
    const std::uint8_t* row[16];
};

/// Bytes at … at + 16 of each block as four words: words[c] has bytes 4c … 4c + 3 of block r in lane r.
static TINFER_INLINE void load_words(const SixteenBlocks& b, std::int64_t at, __m512i (&words)[4]) {
    const auto quarter = [&](int r) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(b.row[r] + at)); };
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

static TINFER_INLINE __m512i each_byte(int value) { return _mm512_set1_epi8(static_cast<char>(value)); }
static TINFER_INLINE __m512i low_nibbles(__m512i bytes) { return _mm512_and_si512(bytes, each_byte(15)); }
static TINFER_INLINE __m512i high_nibbles(__m512i bytes) { return low_nibbles(_mm512_srli_epi16(bytes, 4)); }
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
    for (int r = 0; r < 16; ++r) std::memcpy(&halves[r], b.row[r] + at, 2);
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves)));
}
/// Byte `byte` of each lane alone, zero-extended.
static TINFER_INLINE __m512i byte_of(__m512i lanes, int byte) {
    return _mm512_and_si512(_mm512_srli_epi32(lanes, static_cast<unsigned>(8 * byte)), _mm512_set1_epi32(255));
}
/// Bytes 2·pair and 2·pair + 1 of each lane as two int16.
static TINFER_INLINE __m512i byte_pair(__m512i lanes, int pair) {
    const __m512i two = pair == 0 ? lanes : _mm512_srli_epi32(lanes, 16);
    const __m512i low = _mm512_and_si512(two, _mm512_set1_epi32(255));
    return _mm512_or_si512(low, _mm512_and_si512(_mm512_slli_epi32(two, 8), _mm512_set1_epi32(255 << 16)));
}

// A decoder hands its results to a sink:
//   sink.scale(j, s)        integer scale of sub-block j in the low half of each lane, the high half zero (super-blocks);
//                           before the codes of the sub-block
//   sink.codes(word, c)     bytes 4·word … 4·word + 3 of the codes, with the sign and bias of CodeRoute<avx512vnni, Format>
//   sink.mins(pair, m), sink.d(d), sink.dmin(d)                             (super-blocks)
//   sink.d(unit, d), sink.m(unit, m)                                        (blocks of 32)

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
        sink.scale(2 * g, byte_of(scales[g / 2], 2 * g % 4));
        sink.scale(2 * g + 1, byte_of(scales[g / 2], 2 * g % 4 + 1));
        for (int half = 0; half < 2; ++half) {
            __m512i words[4];
            load_words(b, 16 + 32 * g + 16 * half, words);
            for (int c = 0; c < 4; ++c) {
                sink.codes(16 * g + 4 * half + c, low_nibbles(words[c]));
                sink.codes(16 * g + 8 + 4 * half + c, high_nibbles(words[c]));
            }
        }
    }
}

template <class Sink>
TINFER_INLINE void decode_sixteen(Q5_K, const SixteenBlocks& b, int /*n_units*/, Sink& sink) {
    __m512i scales[2], fifth[8];
    decode_k_header(b, sink, scales);
    for (int half = 0; half < 2; ++half) {
        __m512i words[4];
        load_words(b, 16 + 16 * half, words);
        for (int c = 0; c < 4; ++c) fifth[4 * half + c] = words[c];
    }
    const __m512i sixteen = each_byte(16);
    for (int g = 0; g < 4; ++g) {   // bit j of byte e belongs to sub-block j
        sink.scale(2 * g, byte_of(scales[g / 2], 2 * g % 4));
        sink.scale(2 * g + 1, byte_of(scales[g / 2], 2 * g % 4 + 1));
        for (int half = 0; half < 2; ++half) {
            __m512i words[4];
            load_words(b, 48 + 32 * g + 16 * half, words);
            for (int c = 0; c < 4; ++c) {
                const __m512i bits = fifth[4 * half + c];
                const __m512i even = 2 * g < 4 ? _mm512_slli_epi16(bits, static_cast<unsigned>(4 - 2 * g))
                                               : _mm512_srli_epi16(bits, static_cast<unsigned>(2 * g - 4));
                const __m512i odd = 2 * g + 1 < 4 ? _mm512_slli_epi16(bits, static_cast<unsigned>(3 - 2 * g))
                                                  : _mm512_srli_epi16(bits, static_cast<unsigned>(2 * g - 3));
                sink.codes(16 * g + 4 * half + c, _mm512_or_si512(low_nibbles(words[c]), _mm512_and_si512(even, sixteen)));
                sink.codes(16 * g + 8 + 4 * half + c,
                    _mm512_or_si512(high_nibbles(words[c]), _mm512_and_si512(odd, sixteen)));
            }
        }
    }
}

template <class Sink>
TINFER_INLINE void decode_sixteen(Q6_K, const SixteenBlocks& b, int /*n_units*/, Sink& sink) {
    __m512i scales[4];
    load_words(b, 192, scales);
    for (int j = 0; j < 16; ++j) {   // signed bytes, widened to int16
        const __m512i high = _mm512_slli_epi32(scales[j / 4], static_cast<unsigned>(24 - 8 * (j % 4)));
        sink.scale(j, _mm512_srli_epi32(_mm512_srai_epi32(high, 8), 16));
    }
    sink.d(load_f16s(b, 208));
    const __m512i upper_mask = each_byte(0x30);
    for (int half = 0; half < 2; ++half)
        for (int quarter = 0; quarter < 2; ++quarter) {   // 16 bytes of each run of 32
            __m512i first[4], second[4], upper[4];
            load_words(b, 64 * half + 16 * quarter, first);
            load_words(b, 64 * half + 32 + 16 * quarter, second);
            load_words(b, 128 + 32 * half + 16 * quarter, upper);
            for (int c = 0; c < 4; ++c) {
                const int word = 32 * half + 4 * quarter + c;
                const auto put = [&](int group, __m512i nibbles, __m512i shifted) {
                    sink.codes(word + 8 * group, _mm512_or_si512(nibbles, _mm512_and_si512(shifted, upper_mask)));
                };
                put(0, low_nibbles(first[c]), _mm512_slli_epi16(upper[c], 4));
                put(1, low_nibbles(second[c]), _mm512_slli_epi16(upper[c], 2));
                put(2, high_nibbles(first[c]), upper[c]);
                put(3, high_nibbles(second[c]), _mm512_srli_epi16(upper[c], 2));
            }
        }
}

template <class Sink>
TINFER_INLINE void decode_sixteen(Q8_0, const SixteenBlocks& b, int n_units, Sink& sink) {
    const __m512i bias = each_byte(128);
    for (int u = 0; u < n_units; ++u) {
        sink.d(u, load_f16s(b, 34 * u));
        for (int half = 0; half < 2; ++half) {
            __m512i words[4];
            load_words(b, 34 * u + 2 + 16 * half, words);
            for (int c = 0; c < 4; ++c) sink.codes(8 * u + 4 * half + c, _mm512_xor_si512(words[c], bias));
        }
    }
}

/// 16 bytes of nibbles: values 0 … 15 in the low ones, 16 … 31 in the high ones.
template <class Sink, class Fn>
TINFER_INLINE void decode_nibble_block(const SixteenBlocks& b, std::int64_t at, int unit, Sink& sink, Fn code) {
    __m512i words[4];
    load_words(b, at, words);
    for (int c = 0; c < 4; ++c) {
        sink.codes(8 * unit + c, code(low_nibbles(words[c]), c));
        sink.codes(8 * unit + 4 + c, code(high_nibbles(words[c]), 4 + c));
    }
}

template <class Sink>
TINFER_INLINE void decode_sixteen(Q4_0, const SixteenBlocks& b, int n_units, Sink& sink) {
    for (int u = 0; u < n_units; ++u) {
        sink.d(u, load_f16s(b, 18 * u));
        decode_nibble_block(b, 18 * u + 2, u, sink, [](__m512i code, int) { return code; });
    }
}

template <class Sink>
TINFER_INLINE void decode_sixteen(Q4_1, const SixteenBlocks& b, int n_units, Sink& sink) {
    for (int u = 0; u < n_units; ++u) {
        sink.d(u, load_f16s(b, 20 * u));
        sink.m(u, load_f16s(b, 20 * u + 2));
        decode_nibble_block(b, 20 * u + 4, u, sink, [](__m512i code, int) { return code; });
    }
}

/// The fifth bits of a block: bit e of a 32-bit word belongs to value e. For values 4c … 4c + 3 they come as 16 in each
/// byte.
static TINFER_INLINE __m512i fifth_bits(__m512i bits, int c) {
    const __m512i four = _mm512_and_si512(_mm512_srli_epi32(bits, static_cast<unsigned>(4 * c)), _mm512_set1_epi32(15));
    // Four copies shifted by 4, 11, 18 and 25 put bit i at bit 4 of byte i; the factor's copies do not meet there.
    const __m512i spread = _mm512_mullo_epi32(four, _mm512_set1_epi32(1 << 4 | 1 << 11 | 1 << 18 | 1 << 25));
    return _mm512_and_si512(spread, each_byte(16));
}
static TINFER_INLINE __m512i load_words32(const SixteenBlocks& b, std::int64_t at) {
    alignas(64) std::uint32_t words[16];
    for (int r = 0; r < 16; ++r) std::memcpy(&words[r], b.row[r] + at, 4);
    return _mm512_load_si512(words);
}

template <class Sink>
TINFER_INLINE void decode_sixteen(Q5_0, const SixteenBlocks& b, int n_units, Sink& sink) {
    for (int u = 0; u < n_units; ++u) {
        sink.d(u, load_f16s(b, 22 * u));
        const __m512i high = load_words32(b, 22 * u + 2);
        decode_nibble_block(b, 22 * u + 6, u, sink,
            [&](__m512i code, int c) { return _mm512_or_si512(code, fifth_bits(high, c)); });
    }
}

template <class Sink>
TINFER_INLINE void decode_sixteen(Q5_1, const SixteenBlocks& b, int n_units, Sink& sink) {
    for (int u = 0; u < n_units; ++u) {
        sink.d(u, load_f16s(b, 24 * u));
        sink.m(u, load_f16s(b, 24 * u + 2));
        const __m512i high = load_words32(b, 24 * u + 4);
        decode_nibble_block(b, 24 * u + 8, u, sink,
            [&](__m512i code, int c) { return _mm512_or_si512(code, fifth_bits(high, c)); });
    }
}

/// The levels that nibbles stand for in formats that have a table of sixteen, with the bias of their unsigned codes.
template <class Format>
TINFER_INLINE __m512i level_codes(__m512i nibbles) {
    const __m128i levels = load_bytes16(Format::kType == DType::mxfp4 ? kFp4Doubled : kIq4Levels);
    const __m128i biased = _mm_add_epi8(levels, _mm_set1_epi8(static_cast<char>(CodeRoute<avx512vnni, Format>::kBias)));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(biased), nibbles);
}

template <class Sink>
TINFER_INLINE void decode_sixteen(IQ4_NL, const SixteenBlocks& b, int n_units, Sink& sink) {
    for (int u = 0; u < n_units; ++u) {
        sink.d(u, load_f16s(b, 18 * u));
        decode_nibble_block(b, 18 * u + 2, u, sink, [](__m512i code, int) { return level_codes<IQ4_NL>(code); });
    }
}

/// e8m0_half of the lowest byte of each lane.
static TINFER_INLINE __m512 e8m0_halves(__m512i lanes) {
    const __m512i e = byte_of(lanes, 0), small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    const __m512i bits = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2)), small));
}
template <class Sink>
TINFER_INLINE void decode_sixteen(MXFP4, const SixteenBlocks& b, int n_units, Sink& sink) {
    for (int u = 0; u < n_units; ++u) {
        sink.d(u, e8m0_halves(load_words32(b, 17 * u)));
        decode_nibble_block(b, 17 * u + 1, u, sink, [](__m512i code, int) { return level_codes<MXFP4>(code); });
    }
}

template <class Sink>
TINFER_INLINE void decode_sixteen(IQ4_XS, const SixteenBlocks& b, int /*n_units*/, Sink& sink) {
    const __m512i head = load_words32(b, 0), low_bits = load_words32(b, 4);   // d and the upper bits; the lower bits
    sink.d(low_f16(head));
    for (int j = 0; j < 8; ++j) {
        const __m512i low = _mm512_and_si512(_mm512_srli_epi32(low_bits, static_cast<unsigned>(4 * j)), _mm512_set1_epi32(15));
        const __m512i high = _mm512_and_si512(_mm512_srli_epi32(head, static_cast<unsigned>(16 + 2 * j)), _mm512_set1_epi32(3));
        const __m512i scale = _mm512_sub_epi32(_mm512_or_si512(low, _mm512_slli_epi32(high, 4)), _mm512_set1_epi32(32));
        sink.scale(j, _mm512_and_si512(scale, _mm512_set1_epi32(0xFFFF)));
        decode_nibble_block(b, 8 + 16 * j, j, sink, [](__m512i code, int) { return level_codes<IQ4_XS>(code); });
    }
}

/// Whether a format has a decoder here.
template <class Format>
inline constexpr bool kDecodesSixteen = Format::kType == DType::q4_k || Format::kType == DType::q5_k ||
    Format::kType == DType::q6_k || Format::kType == DType::q8_0 || Format::kType == DType::q4_0 ||
    Format::kType == DType::q4_1 || Format::kType == DType::q5_0 || Format::kType == DType::q5_1 ||
    Format::kType == DType::iq4_nl || Format::kType == DType::iq4_xs || Format::kType == DType::mxfp4;

}  // namespace tinfer::kernels

#endif
