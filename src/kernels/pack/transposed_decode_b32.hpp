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

/// Four bytes of fifth bits, then the nibbles.
template <class Arch, class Format, int N, class Sink>
TINFER_INLINE void decode_five_bit_block(const RowBlocks<N>& b, std::int64_t at, int unit, Sink& sink) {
    const RowBytes<N> high = load_words32(b, at);  // bit e belongs to value e
    decode_nibble_block(b, at + 4, unit, sink, [&](RowBytes<N> code, int c) {
        const RowBytes<N> five = bits_or(code, spread_bits<N>(high, c, 16));
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

// Blocks of several units of 32.

template <class Arch, int N, class Sink>
TINFER_INLINE void decode_rows(NVFP4, const RowBlocks<N>& b, int n_units, Sink& sink) {
    TINFER_UNROLL_ON_ARM
    for (int u = 0; u < n_units; u += 2) {
        const RowBytes<N> scales = load_words32(b, 18 * u);
        RowBytes<N> words[8];
        load_words(b, 18 * u + 4, words);
#    pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {  // sixteen values
            sink.d(2 * u + i, ue4m3_halves<N>(scales, i));
            put_sub_block<4>(sink, 2 * u + i, [&](int c) {
                const RowBytes<N> bytes = words[2 * i + c % 2];
                return level_codes<Arch, NVFP4, N>(c < 2 ? low_nibbles(bytes) : high_nibbles(bytes));
            });
        }
    }
}

template <class Arch, int N, class Sink>
TINFER_INLINE void decode_rows(Q1_0, const RowBlocks<N>& b, int n_units, Sink& sink) {
    TINFER_UNROLL_ON_ARM
    for (int u = 0; u < n_units; u += 4) {
        const auto d = load_f16s(b, 18 * (u / 4));
        RowBytes<N> words[4];
        load_words(b, 18 * (u / 4) + 2, words);
#    pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            sink.d(u + i, d);
            put_sub_block<8>(sink, u + i, [&](int c) { return rebias<Arch, Q1_0, N>(spread_bits<N>(words[i], c, 2)); });
        }
    }
}

template <class Arch, int N, class Sink>
TINFER_INLINE void decode_rows(Q2_0, const RowBlocks<N>& b, int n_units, Sink& sink) {
    TINFER_UNROLL_ON_ARM
    for (int u = 0; u < n_units; u += 2) {
        const auto d = load_f16s(b, 18 * (u / 2));
        RowBytes<N> words[4];
        load_words(b, 18 * (u / 2) + 2, words);
#    pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
            sink.d(u + i, d);
            put_sub_block<8>(sink, u + i, [&](int c) {
                return rebias<Arch, Q2_0, N, 1>(spread_pairs<N>(words[2 * i + c / 4], c % 4));
            });
        }
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
