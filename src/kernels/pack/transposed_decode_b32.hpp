// SPDX-License-Identifier: MIT
// Decoders of four, eight or sixteen rows at once: formats of blocks of 32, for the sinks of
// kernels/pack/transposed_decode_k.hpp.
#pragma once

#include "kernels/pack/transposed_decode_k.hpp"

#if defined(__AVX2__) || defined(__aarch64__)

namespace tinfer::kernels {

template <class Arch, int N, class Sink>
TINFER_INLINE void decode_rows(Q8_0, const RowBlocks<N>& b, int n_units, Sink& sink) {
    TINFER_UNROLL_ON_ARM
    for (int u = 0; u < n_units; ++u) {
        sink.d(u, load_f16s(b, 34 * u));
        RowBytes<N> words[8];
        load_words(b, 34 * u + 2, words);
        put_sub_block<8>(sink, u, [&](int c) {
            return Int8Encoding<Arch, Q8_0>::kBias == 0 ? words[c] : bits_xor(words[c], each_byte<N>(128));
        });
    }
}

/// 16 bytes of nibbles: values 0 … 15 in the low ones, 16 … 31 in the high ones.
template <int N, class Sink, class Fn>
TINFER_INLINE void decode_nibble_block(const RowBlocks<N>& b, std::int64_t at, int unit, Sink& sink, Fn code) {
    RowBytes<N> words[4];
    load_words(b, at, words);
    put_sub_block<8>(sink, unit,
                     [&](int c) { return code(c < 4 ? low_nibbles(words[c]) : high_nibbles(words[c - 4]), c); });
}

template <class Arch, int N, class Sink>
TINFER_INLINE void decode_rows(Q4_0, const RowBlocks<N>& b, int n_units, Sink& sink) {
    TINFER_UNROLL_ON_ARM
    for (int u = 0; u < n_units; ++u) {
        sink.d(u, load_f16s(b, 18 * u));
        decode_nibble_block(b, 18 * u + 2, u, sink, [](RowBytes<N> code, int) { return rebias<Arch, Q4_0, N>(code); });
    }
}

template <class Arch, int N, class Sink>
TINFER_INLINE void decode_rows(Q4_1, const RowBlocks<N>& b, int n_units, Sink& sink) {
    TINFER_UNROLL_ON_ARM
    for (int u = 0; u < n_units; ++u) {
        const RowBytes<N> head = load_words32(b, 20 * u);
        sink.d(u, low_f16(head));
        sink.m(u, high_f16(head));
        decode_nibble_block(b, 20 * u + 4, u, sink, [](RowBytes<N> code, int) { return code; });
    }
}

/// The fifth bits of a block: bit e of a 32-bit word belongs to value e. For values 4c … 4c + 3 they come as 16 in each
/// byte.
template <int N>
TINFER_INLINE RowBytes<N> fifth_bits(RowBytes<N> bits, int c) {
    const RowBytes<N> four = bits_and(shift_right_32(bits, 4 * c), each_word<N>(15));
    // Four copies shifted by 4, 11, 18 and 25 put bit i at bit 4 of byte i; the factor's copies do not meet there.
    const RowBytes<N> spread = multiply_words(four, each_word<N>(1 << 4 | 1 << 11 | 1 << 18 | 1 << 25));
    return bits_and(spread, each_byte<N>(16));
}

/// Four bytes of fifth bits, then the nibbles.
template <class Arch, class Format, int N, class Sink>
TINFER_INLINE void decode_five_bit_block(const RowBlocks<N>& b, std::int64_t at, int unit, Sink& sink) {
    const RowBytes<N> high = load_words32(b, at);
    decode_nibble_block(b, at + 4, unit, sink, [&](RowBytes<N> code, int c) {
        const RowBytes<N> five = bits_or(code, fifth_bits<N>(high, c));
        if constexpr (Format::kHasMin) return five;
        else return rebias<Arch, Format, N>(five);
    });
}

template <class Arch, int N, class Sink>
TINFER_INLINE void decode_rows(Q5_0, const RowBlocks<N>& b, int n_units, Sink& sink) {
    TINFER_UNROLL_ON_ARM
    for (int u = 0; u < n_units; ++u) {
        sink.d(u, load_f16s(b, 22 * u));
        decode_five_bit_block<Arch, Q5_0>(b, 22 * u + 2, u, sink);
    }
}

template <class Arch, int N, class Sink>
TINFER_INLINE void decode_rows(Q5_1, const RowBlocks<N>& b, int n_units, Sink& sink) {
    TINFER_UNROLL_ON_ARM
    for (int u = 0; u < n_units; ++u) {
        const RowBytes<N> head = load_words32(b, 24 * u);
        sink.d(u, low_f16(head));
        sink.m(u, high_f16(head));
        decode_five_bit_block<Arch, Q5_1>(b, 24 * u + 4, u, sink);
    }
}

template <class Arch, int N, class Sink>
TINFER_INLINE void decode_rows(IQ4_NL, const RowBlocks<N>& b, int n_units, Sink& sink) {
    TINFER_UNROLL_ON_ARM
    for (int u = 0; u < n_units; ++u) {
        sink.d(u, load_f16s(b, 18 * u));
        decode_nibble_block(b, 18 * u + 2, u, sink,
                            [](RowBytes<N> code, int) { return level_codes<Arch, IQ4_NL, N>(code); });
    }
}

template <class Arch, int N, class Sink>
TINFER_INLINE void decode_rows(MXFP4, const RowBlocks<N>& b, int n_units, Sink& sink) {
    TINFER_UNROLL_ON_ARM
    for (int u = 0; u < n_units; ++u) {
        sink.d(u, e8m0_halves(load_words32(b, 17 * u)));
        decode_nibble_block(b, 17 * u + 1, u, sink,
                            [](RowBytes<N> code, int) { return level_codes<Arch, MXFP4, N>(code); });
    }
}

/// Whether a format has a decoder of several rows.
struct AnySink {};
template <class Format>
inline constexpr bool kHasRowDecoder = requires(const RowBlocks<8>& b, AnySink& sink) {
    decode_rows<reference>(Format{}, b, 8, sink);
};

}  // namespace tinfer::kernels

#endif
