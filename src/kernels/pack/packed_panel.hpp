// SPDX-License-Identifier: MIT
// Panels: a group of weight rows, decoded for 256 values of K and turned so that vector lanes are rows. Formats differ
// only up to here; products over panels (kernels/gemm/microkernel_q8.hpp) know classes of formats. A panel slice lives in a thread's
// scratch.
#pragma once

#include "kernels/dequantize/block_codes.hpp"
#include "kernels/pack/int8_encoding.hpp"
#include "kernels/pack/transposed_decode_b32.hpp"
#include "kernels/schedule.hpp"

namespace tinfer::kernels {

inline constexpr int kSlice = 256;   ///< values of K in a panel slice: one super-block, or up to eight blocks of 32
template <class Format>
inline constexpr int kSliceBytes = kSlice / Format::kBlockElems * Format::kBlockBytes;   ///< of a row's blocks

/// How many rows of a slice are decoded together, 0 where each is unpacked alone: sixteen where a block has one scale or a
/// super-block any, and without a dot4 of 64 bytes those that decoders of several rows know.
template <class Arch, class Format>
inline constexpr int kDecodedRows =
#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
    (Arch::kHasDot4 ? Format::kUnit == 256 || Format::kScaleElems == 32 : kHasRowDecoder<Format>) ? 16 : 0;
#elif defined(__AVX2__)
    kHasRowDecoder<Format> ? 8 : 0;
#else
    0;
#endif

/// Sums of two neighbouring sub-blocks as two int16 in one lane, which one instruction multiplies with their scales. The second
/// one is shifted up by sixteen, and the first accumulates below it, from `kMiddle` on, so that it never borrows from above: from
/// 2^15 in general, which is taken off by an exclusive or; from 2^14 where no sum of a sub-block is likely to pass 2^14 either,
/// so that it stays positive and the panel's `start` takes it off. Codes of the second lie `kUpper` bits up in their bytes where
/// panels are decoded sixteen rows at a time: then the sum may begin with what becomes kMiddle, and nothing need be added.
template <class Arch, class Format>
struct SumPairs {
    /// Formats that have no bound for the sum of a sub-block (ActivationLayout, reach), or rarely fit, do without.
    static constexpr bool kSome = Arch::kFusedDot2 && Format::kUnit == 256 &&
        (Format::kScaleElems == 16 || (Format::kScaleElems == 32 && Format::kHasMin));
    /// The largest reach with which sums of sub-blocks fit, which is at most kMaxCode · reach: the bounds are of one side of the
    /// codes per 32, for weights of one sign, and of magnitudes per 16. With the largest that there is, they always do.
    static constexpr int reach(int largest_sum) {
        const int reach = largest_sum / Format::kMaxCode;
        return !kSome ? 0 : reach >= Format::kScaleElems * 127 ? 32 * 127 : reach;
    }
    static constexpr int kSixteenBits = reach(32767);
    static constexpr bool kFifteen = kDecodedRows<Arch, Format> != 0 && reach(16383) >= 1000;   ///< normal activations: 574 ± 149
    static constexpr int kReach = kFifteen ? reach(16383) : kSixteenBits;
    static constexpr int kMiddle = kFifteen ? 1 << 14 : 1 << 15;
#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
    static constexpr int kUpper = !kSome || kDecodedRows<Arch, Format> == 0 ? 0 : kUpperBits<Format> != 0 ? kUpperBits<Format> : kFifteen ? 2 : 1;
#else
    static constexpr int kUpper = 0;
#endif
};

/// What the products over a panel depend on. Formats that agree share code.
template <int Unit, int ScaleElems, bool HasMin, int PairSums, bool Centred, int Bias, int NarrowReach, int Middle, int Upper>
struct PanelClass {
    static constexpr int kUnit = Unit, kScaleElems = ScaleElems, kPairSums = PairSums, kBias = Bias;
    static constexpr bool kHasMin = HasMin, kCentred = Centred;
    static constexpr bool kWide = PairSums == 0;                              ///< codes are int16, of super-blocks times their scales
    static constexpr int kSubs = Unit == 256 ? 256 / ScaleElems : 0;          ///< scales of a super-block
    static constexpr int kSteps = Unit == 256 ? 1 : ScaleElems == 16 ? 2 : 1; ///< float steps of a block
    /// The largest bound (ActivationLayout, reach) with which sub-blocks are summed in pairs, and how (SumPairs).
    static constexpr int kNarrowReach = NarrowReach, kMiddle = Middle, kUpper = Upper;
    static constexpr bool kMayBeNarrow = NarrowReach > 0;
    static constexpr bool kAlwaysNarrow = NarrowReach >= 32 * 127;
    static constexpr bool kPanelStarts = kMayBeNarrow && kMiddle == 1 << 14;
};

template <class Arch, class Format, class Pairs = SumPairs<Arch, Format>>
using panel_class = PanelClass<Format::kUnit, Format::kScaleElems, Format::kHasMin, CodeRoute<Arch, Format>::kPairSums,
    CodeRoute<Arch, Format>::kCentred, CodeRoute<Arch, Format>::kBias, Pairs::kReach, Pairs::kMiddle, Pairs::kUpper>;

template <class Arch>
inline constexpr int kPanelRows = 2 * Arch::kLanes;   ///< two registers of rows

/// Codes of a slice: codes[k/4][row][k%4]. Where they are wide two of every four, the first and the third, then the others:
/// codes[2 · (k/4) + k%2][row][k%4/2].
template <class Arch, class Class>
using PanelCodes = std::conditional_t<Class::kWide, std::int16_t[kSlice / 2][kPanelRows<Arch>][2], std::uint8_t[kSlice / 4][kPanelRows<Arch>][4]>;

/// 256 values of kPanelRows super-block rows.
template <class Arch, class Class, int Unit = Class::kUnit>
struct PanelSlice {
    static constexpr int kRows = kPanelRows<Arch>;
    alignas(64) PanelCodes<Arch, Class> codes;
    /// Two neighbours, as two int16; without dot4 one, in both halves; none where codes are wide.
    std::int32_t scale[Class::kWide ? 1 : Arch::kHasDot4 ? (Class::kSubs + 1) / 2 : Class::kSubs][kRows];
    std::int32_t min[(Class::kSubs + 1) / 2][kRows];   ///< two neighbours
    float d[kRows], dmin[kRows];
    std::int32_t start[kRows];   ///< where S starts, of classes with kPanelStarts: −kMiddle · Σ of the first scales of pairs
};
/// The same of rows of blocks of 32.
template <class Arch, class Class>
struct PanelSlice<Arch, Class, 32> {
    static constexpr int kRows = kPanelRows<Arch>;
    alignas(64) PanelCodes<Arch, Class> codes;
    float d[kSlice / 32][Class::kSteps][kRows];
    float m[kSlice / 32][kRows];
};

/// Codes of one row in the panel's row group, before they are turned.
template <class Arch>
struct RowCodes {
    alignas(64) std::int8_t q[Arch::kLanes][kSlice];
};

/// Words 0 … n_words of `lanes` rows of codes, biased: put(word, that word of each row).
template <class Arch, class Rows, class Put>
TINFER_INLINE void turn_codes(const Rows& row_codes, int n_words, int bias, const Put& put) noexcept {
    const i32v<Arch> bias_bytes(static_cast<std::int32_t>(static_cast<std::uint32_t>(bias) * 0x01010101u));
    for (int word = 0; word < n_words; word += Arch::kLanes) {
        i32v<Arch> m[Arch::kLanes];
        for (int r = 0; r < Arch::kLanes; ++r) m[r] = add_bytes(load_i32<Arch>(row_codes(r) + 4 * word), bias_bytes, Arch{});
        transpose(m, Arch{});
        for (int w = 0; w < Arch::kLanes && word + w < n_words; ++w) put(word + w, m[w]);
    }
}
/// The same to the rows from first_row on of a slice.
template <class Arch, class Class>
inline void turn_codes_into(const RowCodes<Arch>& rows, int n_words, int bias, int first_row, PanelSlice<Arch, Class>& slice) noexcept {
    turn_codes<Arch>([&](int r) { return rows.q[r]; }, n_words, bias, [&](int word, const i32v<Arch>& codes) {
        codes.store_unaligned(reinterpret_cast<std::int32_t*>(slice.codes[word][first_row]));
    });
}

template <class Arch>
TINFER_INLINE std::int32_t int16_pair(int low, int high) noexcept {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(low & 0xFFFF) | static_cast<std::uint32_t>(high) << 16);
}

/// The scales of sub-block j, one of a pair in each lane.
template <class Arch>
TINFER_INLINE i32v<Arch> scale_of_pair(const i32v<Arch>& pair, int j) noexcept {
    return (j % 2 == 0 ? pair << 16 : pair) >> 16;
}

inline constexpr int kWordsPerShare = 4;                                    ///< of codes of sixteen rows
inline constexpr int kSharesOfDecoding = 2 * kSlice / 4 / kWordsPerShare;   ///< that are read while 32 rows are decoded

#if defined(__AVX2__)
/// Puts what a decoder of N rows finds into one half of a slice. `Given`: bits that the decoder could leave codes of second
/// sub-blocks up.
template <class Arch, int N, class Slice, class Class, int Given>
struct SliceHalf {
    using Bytes = RowBytes<N>;
    using Floats = typename RowLanes<N>::Floats;
    Slice& slice;
    int first_row;
    ReadAhead& reader;
    Bytes start = each_word<N>(0), scale_of[2] = {start, start};   ///< the latter where codes are wide
    static constexpr bool kTakesUpper = Given != 0 && Given == Class::kUpper;

    TINFER_INLINE void begin(int) noexcept {}
    TINFER_INLINE void codes(int j, int word, Bytes bytes) noexcept {
        if (word % kWordsPerShare == 0) reader.read_share();
        if constexpr (Class::kWide) return wide_codes(word, bytes, scale_of[j % 2]);
        if (!kTakesUpper && Class::kUpper != 0 && j % 2 == 1) bytes = shift_left_16(bytes, Class::kUpper);   // all fit their bytes
        store_lanes(slice.codes[word][first_row], bytes);
    }
    TINFER_INLINE void end(int) noexcept {}
    TINFER_INLINE void scales(int pair, Bytes scales) noexcept {
        if constexpr (Arch::kHasDot4) store_lanes(slice.scale[pair] + first_row, scales);
        else
            for (int i = 0; i < 2; ++i) {
                scale_of[i] = int16_of_pair<N>(scales, i);
                if constexpr (!Class::kWide) store_lanes(slice.scale[2 * pair + i] + first_row, scale_of[i]);
            }
        if constexpr (Class::kPanelStarts) start = dot2(i32v<Arch>(start), i32v<Arch>(scales), i32v<Arch>(-Class::kMiddle & 0xFFFF), Arch{});
    }
    TINFER_INLINE void finish() noexcept {
        if constexpr (Class::kPanelStarts) store_lanes(slice.start + first_row, start);
    }
    TINFER_INLINE void mins(int pair, Bytes mins) noexcept { store_lanes(slice.min[pair] + first_row, mins); }
    TINFER_INLINE void d(Floats d) noexcept { store_lanes(slice.d + first_row, d); }
    TINFER_INLINE void dmin(Floats d) noexcept { store_lanes(slice.dmin + first_row, d); }
    TINFER_INLINE void d(int unit, Floats d) noexcept { store_lanes(slice.d[unit][0] + first_row, d); }
    TINFER_INLINE void m(int unit, Floats m) noexcept { store_lanes(slice.m[unit] + first_row, m); }

private:
    /// Those of super-blocks times their scale, which each lane holds twice: of eight bits each, 128 · 128 at most.
    TINFER_INLINE void wide_codes(int word, const i32v<Arch>& bytes, const i32v<Arch>& scale) noexcept {
        const auto put = [&](int i, const i32v<Arch>& v) {
            store_lanes(slice.codes[i][first_row], Bytes(Class::kUnit == 256 ? multiply_pairs(v, scale, Arch{}) : v));
        };
        put(2 * word, even_bytes(bytes, Arch{}));
        put(2 * word + 1, odd_bytes(bytes, Arch{}));
    }
};

/// Pointers to the blocks of rows first … first + N - 1. Rows behind the last valid one repeat it.
template <class Arch, int N>
TINFER_INLINE RowBlocks<N> row_blocks(const std::uint8_t* rows, std::int64_t row_stride, int n_rows, int first) noexcept {
    RowBlocks<N> blocks;
    for (int r = 0; r < N; ++r) {
        const int row = first + r < n_rows ? first + r : n_rows - 1;
        blocks.row[r] = rows + row * row_stride;
    }
    return blocks;
}
#endif

#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
/// Scale or min j of sixteen super-blocks in lanes of out[j].
template <class Arch, class Scales>
inline void turn_scales(const Scales& row_scales, i32v<Arch> (&out)[16]) noexcept {
    for (int r = 0; r < 16; ++r) out[r] = _mm512_cvtepi16_epi32(load_bytes32(row_scales(r)));
    transpose(out, Arch{});
}

/// What decode_rows does, for the formats that have none: blocks are unpacked row by row and turned then.
template <class Arch, class Format, class Sink>
inline void unpack_sixteen(const RowBlocks<16>& b, int n_units, Sink& sink) noexcept {
    constexpr int kBias = CodeRoute<Arch, Format>::kBias;
    constexpr int kSubs = Format::kUnit / Format::kScaleElems;
    const auto put = [&](int word, const i32v<Arch>& codes) { sink.codes(word * 4 / Format::kScaleElems, word, codes); };
    alignas(64) float d[8][16], m[8][16];
    if constexpr (Format::kUnit == 256) {
        constexpr int kApart = 16 / kSubs;
        Codes256 rows[16];
        for (int r = 0; r < 16; ++r) {
            unpack_block<Arch, Format>(b[r], 0, rows[r]);
            d[0][r] = rows[r].d;
            if constexpr (Format::kHasMin) m[0][r] = rows[r].dmin;
        }
        sink.d(_mm512_load_ps(d[0]));
        const __m512i low_half = _mm512_set1_epi32(0xFFFF);
        i32v<Arch> turned[16];
        turn_scales<Arch>([&](int r) { return rows[r].scale; }, turned);
        if constexpr (kSubs == 1) sink.scales(0, turned[0]);
        for (int j = 0; j + 1 < kSubs; j += 2)
            sink.scales(j / 2, choose(low_half, turned[kApart * j], _mm512_slli_epi32(turned[kApart * (j + 1)], 16)));
        if constexpr (Format::kHasMin) {
            sink.dmin(_mm512_load_ps(m[0]));
            turn_scales<Arch>([&](int r) { return rows[r].min; }, turned);
            for (int j = 0; j < kSubs; j += 2)
                sink.mins(j / 2, choose(low_half, turned[kApart * j], _mm512_slli_epi32(turned[kApart * (j + 1)], 16)));
        }
        turn_codes<Arch>([&](int r) { return rows[r].q; }, kSlice / 4, kBias, put);
    } else {
        constexpr int kUnitsPerBlock = Format::kBlockElems / 32;
        RowCodes<Arch> rows;
        for (int u = 0; u < n_units; ++u)
            for (int r = 0; r < 16; ++r) {
                Codes32 out;
                unpack_block<Arch, Format>(b[r] + u / kUnitsPerBlock * Format::kBlockBytes, u % kUnitsPerBlock, out);
                std::memcpy(rows.q[r] + 32 * u, out.q, 32);
                d[u][r] = out.d[0];
                if constexpr (Format::kHasMin) m[u][r] = out.m;
            }
        for (int u = 0; u < n_units; ++u) {
            sink.d(u, _mm512_load_ps(d[u]));
            if constexpr (Format::kHasMin) sink.m(u, _mm512_load_ps(m[u]));
        }
        turn_codes<Arch>([&](int r) { return rows.q[r]; }, 8 * n_units, kBias, put);
    }
}
#endif

#if defined(__AVX2__)
template <class Arch, class Format, int N, class Sink>
TINFER_INLINE void decode_group(const RowBlocks<N>& b, int n_units, Sink& sink) noexcept {
    if constexpr (kHasRowDecoder<Format>) decode_rows<Arch>(Format{}, b, n_units, sink);
#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
    else unpack_sixteen<Arch, Format>(b, n_units, sink);
#endif
}

template <class Arch, class Format, class Slice>
inline void decode_rows_together(const std::uint8_t* rows, std::int64_t row_stride, int n_rows, int n_units,
                                 Slice& slice, ReadAhead& reader) noexcept {
    constexpr int N = kDecodedRows<Arch, Format>;
    for (int first = 0; first < kPanelRows<Arch>; first += N) {
        SliceHalf<Arch, N, Slice, panel_class<Arch, Format>, kUpperBits<Format>> half{slice, first, reader};
        decode_group<Arch, Format>(row_blocks<Arch, N>(rows, row_stride, n_rows, first), n_units, half);
        half.finish();
    }
}
#endif

/// Decodes one super-block of each row. Rows behind the last valid one repeat it: their results are not stored.
template <class Arch, class Format, class Class>
inline void decode_super_blocks(const std::uint8_t* rows, std::int64_t row_stride, int n_rows,
                                PanelSlice<Arch, Class>& slice, [[maybe_unused]] ReadAhead& reader) noexcept {
    static_assert(!Class::kWide || kDecodedRows<Arch, Format> != 0);   // below are no wide codes
#if defined(__AVX2__)
    if constexpr (kDecodedRows<Arch, Format> != 0)
        return decode_rows_together<Arch, Format>(rows, row_stride, n_rows, 8, slice, reader);
#endif
    using Route = CodeRoute<Arch, Format>;
    for (int first = 0; first < kPanelRows<Arch>; first += Arch::kLanes) {
        RowCodes<Arch> group;
        for (int r = 0; r < Arch::kLanes; ++r) {
            const int row = first + r;
            Codes256 out;
            unpack_block<Arch, Format>(rows + (row < n_rows ? row : n_rows - 1) * row_stride, 0, out);
            std::memcpy(group.q[r], out.q, 256);
            slice.d[row] = out.d;
            constexpr int kApart = 16 / Class::kSubs, kTogether = Arch::kHasDot4 ? 2 : 1;
            for (int j = 0; Class::kScaleElems != 256 && j < Class::kSubs; j += kTogether)
                slice.scale[j / kTogether][row] = int16_pair<Arch>(out.scale[j * kApart], out.scale[(j + kTogether - 1) * kApart]);
            if constexpr (Class::kHasMin) {
                slice.dmin[row] = out.dmin;
                for (int j = 0; j < Class::kSubs / 2; ++j)
                    slice.min[j][row] = int16_pair<Arch>(out.min[2 * j * (16 / Class::kSubs)],
                        out.min[(2 * j + 1) * (16 / Class::kSubs)]);
            }
        }
        turn_codes_into(group, kSlice / 4, Route::kBias, first, slice);
    }
}

/// Decodes n_units blocks of 32 of each row.
template <class Arch, class Format, class Class>
inline void decode_blocks(const std::uint8_t* rows, std::int64_t row_stride, int n_rows, int n_units,
                          PanelSlice<Arch, Class>& slice, [[maybe_unused]] ReadAhead& reader) noexcept {
    static_assert(!Class::kWide || kDecodedRows<Arch, Format> != 0);
#if defined(__AVX2__)
    if constexpr (kDecodedRows<Arch, Format> != 0)
        return decode_rows_together<Arch, Format>(rows, row_stride, n_rows, n_units, slice, reader);
#endif
    constexpr int kUnitsPerBlock = Format::kBlockElems / 32;
    for (int first = 0; first < kPanelRows<Arch>; first += Arch::kLanes) {
        RowCodes<Arch> group;
        for (int r = 0; r < Arch::kLanes; ++r) {
            const int row = first + r;
            const std::uint8_t* blocks = rows + (row < n_rows ? row : n_rows - 1) * row_stride;
            for (int u = 0; u < n_units; ++u) {
                Codes32 out;
                const std::uint8_t* block = blocks + u / kUnitsPerBlock * Format::kBlockBytes;
                unpack_block<Arch, Format>(block, u % kUnitsPerBlock, out);
                std::memcpy(group.q[r] + 32 * u, out.q, 32);
                for (int step = 0; step < Class::kSteps; ++step) slice.d[u][step][row] = out.d[step];
                if constexpr (Class::kHasMin) slice.m[u][row] = out.m;
            }
        }
        turn_codes_into(group, 8 * n_units, CodeRoute<Arch, Format>::kBias, first, slice);
    }
}

}  // namespace tinfer::kernels
