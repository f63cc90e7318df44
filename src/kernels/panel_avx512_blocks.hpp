// SPDX-License-Identifier: MIT
// Decoders of sixteen rows at once for AVX-512: formats of blocks of 32, for the sinks of kernels/panel_avx512.hpp.
#pragma once

#include "kernels/panel_avx512.hpp"

#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)

namespace tinfer::kernels {

template <class Sink>
TINFER_INLINE void decode_sixteen(Q8_0, const SixteenBlocks& b, int n_units, Sink& sink) {
    const __m512i bias = each_byte(128);
    for (int u = 0; u < n_units; ++u) {
        sink.d(u, load_f16s(b, 34 * u));
        __m512i words[8];
        load_words(b, 34 * u + 2, words);
        put_sub_block<8>(sink, u, [&](int c) { return _mm512_xor_si512(words[c], bias); });
    }
}

/// 16 bytes of nibbles: values 0 … 15 in the low ones, 16 … 31 in the high ones.
template <class Sink, class Fn>
TINFER_INLINE void decode_nibble_block(const SixteenBlocks& b, std::int64_t at, int unit, Sink& sink, Fn code) {
    __m512i words[4];
    load_words(b, at, words);
    put_sub_block<8>(sink, unit, [&](int c) { return code(c < 4 ? low_nibbles(words[c]) : high_nibbles(words[c - 4]), c); });
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
        const __m512i head = load_words32(b, 20 * u);
        sink.d(u, low_f16(head));
        sink.m(u, high_f16(head));
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

/// Four bytes of fifth bits, then the nibbles.
template <class Sink>
TINFER_INLINE void decode_five_bit_block(const SixteenBlocks& b, std::int64_t at, int unit, Sink& sink) {
    const __m512i high = load_words32(b, at);
    decode_nibble_block(b, at + 4, unit, sink, [&](__m512i code, int c) { return _mm512_or_si512(code, fifth_bits(high, c)); });
}

template <class Sink>
TINFER_INLINE void decode_sixteen(Q5_0, const SixteenBlocks& b, int n_units, Sink& sink) {
    for (int u = 0; u < n_units; ++u) {
        sink.d(u, load_f16s(b, 22 * u));
        decode_five_bit_block(b, 22 * u + 2, u, sink);
    }
}

template <class Sink>
TINFER_INLINE void decode_sixteen(Q5_1, const SixteenBlocks& b, int n_units, Sink& sink) {
    for (int u = 0; u < n_units; ++u) {
        const __m512i head = load_words32(b, 24 * u);
        sink.d(u, low_f16(head));
        sink.m(u, high_f16(head));
        decode_five_bit_block(b, 24 * u + 4, u, sink);
    }
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
    const __m512i e = _mm512_and_si512(lanes, _mm512_set1_epi32(255)), small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
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

/// Whether a format has a decoder of sixteen rows.
template <class Format>
inline constexpr bool kDecodesSixteen = Format::kType == DType::q2_k || Format::kType == DType::q3_k ||
    Format::kType == DType::q4_k || Format::kType == DType::q5_k || Format::kType == DType::q6_k || Format::kType == DType::q8_0 || Format::kType == DType::q4_0 ||
    Format::kType == DType::q4_1 || Format::kType == DType::q5_0 || Format::kType == DType::q5_1 ||
    Format::kType == DType::iq4_nl || Format::kType == DType::iq4_xs || Format::kType == DType::mxfp4;

}  // namespace tinfer::kernels

#endif
