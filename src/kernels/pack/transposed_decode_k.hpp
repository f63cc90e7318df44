// SPDX-License-Identifier: MIT
// Decoders of four, eight or sixteen rows at once, of the formats whose speed matters most: bytes are transposed
// first, so that lanes are rows, and nibbles and bits are taken apart after that, when each instruction works for all
// of the rows. The integers are those of the formats' own formulas. Here are super-blocks; blocks of 32 are in
// kernels/pack/transposed_decode_b32.hpp.
#pragma once

#include "kernels/pack/transpose_lanes.hpp"

#if defined(__AVX2__) || defined(__aarch64__)

namespace tinfer::kernels {

// A decoder hands its results to a sink, sub-block after sub-block: super-blocks have kScaleElems values in each,
// blocks of 32 are sub-blocks themselves. Of each pair of super-blocks' sub-blocks the second comes first.
//   super-blocks   sink.d(d), sink.dmin(d)    first of all
//                  sink.mins(pair, m)         then too: minimums 2·pair and 2·pair + 1 as two int16
//                  sink.scales(pair, s)       before each pair: scales 2·pair and 2·pair + 1 as two int16
//   blocks of 32   sink.d(j, d), sink.m(j, m)   before each block, or half of it where each has a step of its own
//   both           sink.begin(j)              sub-block j begins
//                  sink.codes(j, word, c)     its codes 4·word … 4·word + 3, with sign and bias of Int8Encoding
//                  sink.end(j)                sub-block j is complete
// A sink with kTakesPreShift gets the codes of second sub-blocks as they lie in their bytes, shifted up by
// kPreShiftBits<Format>.

template <class Format>
inline constexpr unsigned kPreShiftBits = Format::kType == DType::q4_k ? 4 : 0;

/// Sub-block j, of n words.
template <int n, class Sink, class Word>
TINFER_INLINE void put_sub_block(Sink& sink, int j, const Word& word) {
    sink.begin(j);
#    pragma GCC unroll 8
    for (int c = 0; c < n; ++c) sink.codes(j, n * j + c, word(c));
    sink.end(j);
}

/// The scales and mins that Q4_K and Q5_K share, and their d.
template <int N, bool Masked, class Sink>
TINFER_INLINE void decode_k_header(const RowBlocks<N, Masked>& b, Sink& sink, RowBytes<N> (&scales)[2]) {
    RowBytes<N> head[4];  // d and dmin, then the twelve bytes: see unpack_scales_and_mins
    load_words(b, 0, head);
    sink.d(low_f16(head[0]));
    sink.dmin(high_f16(head[0]));
    const RowBytes<N> six = each_byte<N>(0x3F), top = each_byte<N>(0x30), four = each_byte<N>(0x0F);
    scales[0] = bits_and(head[1], six);
    scales[1] = choose(four, head[3], bits_and(shift_right_32(head[1], 2), top));
    const RowBytes<N> mins[2] = {bits_and(head[2], six),
                                 choose(four, shift_right_32(head[3], 4), bits_and(shift_right_32(head[2], 2), top))};
    TINFER_UNROLL_ON_ARM
    for (int pair = 0; pair < 4; ++pair) sink.mins(pair, byte_pair<N>(mins[pair / 2], pair % 2));
}

template <class Arch, int N, bool Masked, class Sink>
TINFER_INLINE void decode_rows(Q4_K, const RowBlocks<N, Masked>& b, int /*n_units*/, Sink& sink) {
    RowBytes<N> scales[2];
    decode_k_header(b, sink, scales);
    TINFER_UNROLL_ON_ARM
    for (int g = 0; g < 4; ++g) {  // 64 values: sub-block 2g in the low nibbles of 32 bytes, 2g + 1 in the high ones
        RowBytes<N> words[8];
        load_words(b, 16 + 32 * g, words);
        sink.scales(g, byte_pair<N>(scales[g / 2], g % 2));
        put_sub_block<8>(sink, 2 * g + 1, [&](int c) {
            return Sink::kTakesPreShift ? bits_and(words[c], each_byte<N>(0xF0)) : high_nibbles(words[c]);
        });
        put_sub_block<8>(sink, 2 * g, [&](int c) { return low_nibbles(words[c]); });
    }
}

template <class Arch, int N, bool Masked, class Sink>
TINFER_INLINE void decode_rows(Q5_K, const RowBlocks<N, Masked>& b, int /*n_units*/, Sink& sink) {
    RowBytes<N> scales[2], fifth[8];
    decode_k_header(b, sink, scales);
    load_words(b, 16, fifth);
    const RowBytes<N> sixteen = each_byte<N>(16);
    const auto fifth_of = [&](int c, int j) {  // bit j of a byte belongs to sub-block j
        return bits_and(j < 4 ? shift_left_16(fifth[c], 4 - j) : shift_right_16(fifth[c], j - 4), sixteen);
    };
    TINFER_UNROLL_ON_ARM
    for (int g = 0; g < 4; ++g) {
        RowBytes<N> words[8];
        load_words(b, 48 + 32 * g, words);
        sink.scales(g, byte_pair<N>(scales[g / 2], g % 2));
        put_sub_block<8>(sink, 2 * g + 1,
                         [&](int c) { return bits_or(high_nibbles(words[c]), fifth_of(c, 2 * g + 1)); });
        put_sub_block<8>(sink, 2 * g, [&](int c) { return bits_or(low_nibbles(words[c]), fifth_of(c, 2 * g)); });
    }
}

/// Codes of six bits: the low nibbles of bytes, or the high ones, and pairs number `pair` of upper bits.
template <class Arch, class Format, class Bytes>
TINFER_INLINE Bytes six_bits(Bytes nibbles, int high, Bytes upper, int pair) {
    constexpr int N = sizeof(Bytes) / 4;
    if constexpr (N == 4) return signed_six_bits(nibbles, high, upper, pair);
    else {
        const Bytes bits =
            pair < 2 ? shift_left_16(upper, pair == 0 ? 4 : 2) : shift_right_16(upper, pair == 2 ? 0 : 2);
        return rebias<Arch, Format, N>(
            bits_or(high == 0 ? low_nibbles(nibbles) : high_nibbles(nibbles), bits_and(bits, each_byte<N>(0x30))));
    }
}
template <class Arch, int N, bool Masked, class Sink>
TINFER_INLINE void decode_rows(Q6_K, const RowBlocks<N, Masked>& b, int /*n_units*/, Sink& sink) {
    RowBytes<N> scales[4];
    load_words(b, 192, scales);
    sink.d(load_last_f16s(b, 208));
    TINFER_UNROLL_ON_ARM
    for (int half = 0; half < 2;
         ++half) {  // 128 values in four pairs of sub-blocks, two in the low nibbles, two in the high ones
        RowBytes<N> upper[8];
        load_words(b, 128 + 32 * half, upper);
#    pragma GCC unroll 2
        for (int run = 0; run < 2; ++run) {
            RowBytes<N> words[8];
            load_words(b, 64 * half + 32 * run, words);
#    pragma GCC unroll 2
            for (int pair = run; pair < 4; pair += 2) {
                sink.scales(4 * half + pair, signed_byte_pair<N>(scales[2 * half + pair / 2], pair % 2));
                const auto code = [&](int c) { return six_bits<Arch, Q6_K>(words[c], pair / 2, upper[c], pair); };
#    pragma GCC unroll 2
                for (int second = 1; second >= 0; --second)
                    put_sub_block<4>(sink, 8 * half + 2 * pair + second, [&](int c) { return code(4 * second + c); });
            }
        }
    }
}

/// 256 bit pairs, of which bits 2i and 2i + 1 of 32 bytes are 32 neighbours: code(bits, c, pair) makes codes of those
/// of word c of the bytes, scales(pair) the scales of two sub-blocks.
template <int N, bool Masked, class Sink, class Scales, class Code>
TINFER_INLINE void decode_bit_pairs(const RowBlocks<N, Masked>& b, std::int64_t at, Sink& sink, const Scales& scales,
                                    const Code& code) {
    TINFER_UNROLL_ON_ARM
    for (int half = 0; half < 2; ++half) {
        RowBytes<N> words[8];
        load_words(b, at + 32 * half, words);
#    pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const int pair = 4 * half + i;
            sink.scales(pair, scales(pair));
#    pragma GCC unroll 2
            for (int second = 1; second >= 0; --second)
                put_sub_block<4>(sink, 2 * pair + second, [&](int c) {
                    return code(bit_pairs<N>(words[4 * second + c], i), 4 * second + c, pair);
                });
        }
    }
}

template <class Arch, int N, bool Masked, class Sink>
TINFER_INLINE void decode_rows(Q3_K, const RowBlocks<N, Masked>& b, int /*n_units*/, Sink& sink) {
    RowBytes<N> s[4], third[8];  // scales: four bits of each in s[1] and s[2], the upper two of all in s[3]
    load_words(b, 92, s);
    load_words(b, 0, third);
    sink.d(load_last_f16s(b, 108));
    const RowBytes<N> four = each_byte<N>(15), top = each_byte<N>(0x30), offset = each_byte<N>(32);
    const RowBytes<N> scales[4] = {bits_or(bits_and(s[1], four), bits_and(shift_left_32(s[3], 4), top)),
                                   bits_or(bits_and(s[2], four), bits_and(shift_left_32(s[3], 2), top)),
                                   bits_or(high_nibbles(s[1]), bits_and(s[3], top)),
                                   bits_or(high_nibbles(s[2]), bits_and(shift_right_32(s[3], 2), top))};
    const auto third_of = [&](int c, int i) {  // bit i of a byte belongs to values 32i … 32i + 31
        return bits_and(i < 2 ? shift_left_16(third[c], 2 - i) : shift_right_16(third[c], i - 2), each_byte<N>(4));
    };
    decode_bit_pairs(
        b, 32, sink, [&](int pair) { return signed_byte_pair<N>(subtract_bytes(scales[pair / 2], offset), pair % 2); },
        [&](RowBytes<N> bits, int c, int pair) { return rebias<Arch, Q3_K, N>(bits_or(bits, third_of(c, pair))); });
}

template <class Arch, int N, bool Masked, class Sink>
TINFER_INLINE void decode_rows(Q2_K, const RowBlocks<N, Masked>& b, int /*n_units*/, Sink& sink) {
    RowBytes<N> scales[4];  // and mins in the high nibbles
    load_words(b, 0, scales);
    const RowBytes<N> head = load_words32(b, 80);
    sink.d(low_f16(head));
    sink.dmin(high_f16(head));
    TINFER_UNROLL_ON_ARM
    for (int pair = 0; pair < 8; ++pair) sink.mins(pair, byte_pair<N>(high_nibbles(scales[pair / 2]), pair % 2));
    decode_bit_pairs(
        b, 16, sink, [&](int pair) { return byte_pair<N>(low_nibbles(scales[pair / 2]), pair % 2); },
        [](RowBytes<N> bits, int, int) { return bits; });
}

template <class Arch, int N, bool Masked, class Sink>
TINFER_INLINE void decode_rows(IQ4_XS, const RowBlocks<N, Masked>& b, int /*n_units*/, Sink& sink) {
    const RowBytes<N> head = load_words32(b, 0), low_bits = load_words32(b, 4);  // d and the upper bits; the lower bits
    sink.d(low_f16(head));
    const auto scale = [&](int j) {
        const RowBytes<N> low = bits_and(shift_right_32(low_bits, 4 * j), each_word<N>(15));
        const RowBytes<N> high = bits_and(shift_right_32(head, 16 + 2 * j), each_word<N>(3));
        return subtract_words(bits_or(low, shift_left_32(high, 4)), each_word<N>(32));
    };
    TINFER_UNROLL_ON_ARM
    for (int pair = 0; pair < 4; ++pair) {
        RowBytes<N> words[8];
        load_words(b, 8 + 32 * pair, words);
        sink.scales(pair, choose(each_word<N>(0xFFFF), scale(2 * pair), shift_left_32(scale(2 * pair + 1), 16)));
#    pragma GCC unroll 2
        for (int second = 1; second >= 0; --second)
            put_sub_block<8>(sink, 2 * pair + second, [&](int c) {
                const RowBytes<N> bytes = words[4 * second + c % 4];
                return level_codes<Arch, IQ4_XS, N>(c < 4 ? low_nibbles(bytes) : high_nibbles(bytes));
            });
    }
}

}  // namespace tinfer::kernels

#endif
