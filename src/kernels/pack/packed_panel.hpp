// SPDX-License-Identifier: MIT
// Panels: a group of weight rows, decoded for 256 values of K and transposed so that vector lanes are rows. Formats
// differ only up to here; products over panels (kernels/gemm/microkernel_q8.hpp) know classes of formats. A packed
// k-block lives in a thread's scratch.
#pragma once

#include "kernels/dequantize/block_codes.hpp"
#include "kernels/pack/int8_encoding.hpp"
#include "kernels/pack/transposed_decode_b32.hpp"
#include "kernels/schedule.hpp"

namespace tinfer::kernels {

inline constexpr int kKBlock = 256;  ///< values of K in a packed k-block: one super-block, or up to eight blocks of 32
template <class Format>
inline constexpr int kKBlockBytes = kKBlock / Format::kBlockElems* Format::kBlockBytes;  ///< of a row's blocks

/// How many rows of a k-block are decoded together, 0 where each is unpacked alone: without a dot4 of 64 bytes only
/// those that decoders of several rows know.
template <class Arch, class Format>
inline constexpr int kDecodedRows =
#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
    Arch::kHasDot4 || kHasRowDecoder<Format> ? 16 : 0;
#elif defined(__AVX2__)
    kHasRowDecoder<Format> ? 8 : 0;
#elif defined(__aarch64__)
    kHasRowDecoder<Format> ? 4 : 0;
#else
    0;
#endif

/// Sums of two neighbouring sub-blocks as two int16 in one lane, which one instruction multiplies with their scales.
/// The second one is shifted up by sixteen, and the first accumulates below it, from `kCarryGuard` on, so that no
/// borrow reaches the upper one: from 2^15 in general, which is taken off by an exclusive or; from 2^14 where no sum of
/// a sub-block is likely to pass 2^14 either, so that it stays positive and the panel's `acc_init` takes it off. Codes
/// of the second lie `kPreShift` bits up in their bytes where panels are decoded sixteen rows at a time: then the sum
/// may begin with what becomes kCarryGuard, and nothing need be added.
template <class Arch, class Format>
struct SumPairs {
    /// Formats that have no bound for the sum of a sub-block (ActivationLayout, max_partial_sum), or rarely fit, do
    /// without.
    static constexpr bool kSome = Arch::kFusedDot2 && Format::kUnit == 256 &&
                                  (Format::kScaleElems == 16 || (Format::kScaleElems == 32 && Format::kHasMin));
    /// The largest bound with which sums of sub-blocks fit, which are at most kMaxCode · max_partial_sum: the bounds
    /// are of one side of the codes per 32, for weights of one sign, and of magnitudes per 16. With the largest that
    /// there is, they always do.
    static constexpr int max_partial_sum(int largest_sum) {
        const int max_partial_sum = largest_sum / Format::kMaxCode;
        return !kSome ? 0 : max_partial_sum >= Format::kScaleElems * 127 ? 32 * 127 : max_partial_sum;
    }
    static constexpr int kSixteenBits = max_partial_sum(32767);
    static constexpr bool kFifteen =
        kDecodedRows<Arch, Format> != 0 && max_partial_sum(16383) >= 1000;  ///< normal activations: 574 ± 149
    static constexpr int kMaxPartialSum = kFifteen ? max_partial_sum(16383) : kSixteenBits;
    static constexpr int kCarryGuard = kFifteen ? 1 << 14 : 1 << 15;
#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
    static constexpr int kPreShift = !kSome || kDecodedRows<Arch, Format> == 0 ? 0
                                     : kPreShiftBits<Format> != 0              ? kPreShiftBits<Format>
                                     : kFifteen                                ? 2
                                                                               : 1;
#else
    static constexpr int kPreShift = 0;
#endif
};

/// What the products over a panel depend on. Formats that agree share code.
template <int Unit, int ScaleElems, bool HasMin, int PairSums, bool Centred, int Bias, int NarrowMaxPartialSum,
          int CarryGuard, int PreShift>
struct PanelClass {
    static constexpr int kUnit = Unit, kScaleElems = ScaleElems, kPairSums = PairSums, kBias = Bias;
    static constexpr bool kHasMin = HasMin, kCentred = Centred;
    static constexpr bool kWide = PairSums == 0;  ///< codes are int16, of super-blocks times their scales
    static constexpr int kSubs = Unit == 256 ? 256 / ScaleElems : 0;           ///< scales of a super-block
    static constexpr int kSteps = Unit == 256 ? 1 : ScaleElems == 16 ? 2 : 1;  ///< float steps of a block
    /// The largest bound (ActivationLayout, max_partial_sum) with which sub-blocks are summed in pairs, and how
    /// (SumPairs).
    static constexpr int kNarrowMaxPartialSum = NarrowMaxPartialSum, kCarryGuard = CarryGuard, kPreShift = PreShift;
    static constexpr bool kMayBeNarrow = NarrowMaxPartialSum > 0;
    static constexpr bool kAlwaysNarrow = NarrowMaxPartialSum >= 32 * 127;
    static constexpr bool kPanelAccInit = kMayBeNarrow && kCarryGuard == 1 << 14;
};

template <class Arch, class Format, class Pairs = SumPairs<Arch, Format>>
using panel_class =
    PanelClass<Format::kUnit, Format::kScaleElems, Format::kHasMin, Int8Encoding<Arch, Format>::kPairSums,
               Int8Encoding<Arch, Format>::kCentred, Int8Encoding<Arch, Format>::kBias, Pairs::kMaxPartialSum,
               Pairs::kCarryGuard, Pairs::kPreShift>;

template <class Arch>
inline constexpr int kPanelRows = 2 * Arch::kLanes;  ///< two registers of rows

/// Codes of a k-block: codes[k/4][row][k%4]. Where they are wide two of every four, the first and the third, then the
/// others: codes[2 · (k/4) + k%2][row][k%4/2].
template <class Arch, class Class>
using PanelCodes = std::conditional_t<Class::kWide, std::int16_t[kKBlock / 2][kPanelRows<Arch>][2],
                                      std::uint8_t[kKBlock / 4][kPanelRows<Arch>][4]>;

/// 256 values of kPanelRows super-block rows.
template <class Arch, class Class, int Unit = Class::kUnit>
struct PackedKBlock {
    static constexpr int kRows = kPanelRows<Arch>;
    alignas(64) PanelCodes<Arch, Class> codes;
    /// Two neighbours, as two int16; without dot4 one, in both halves; none where codes are wide.
    std::int32_t scale[Class::kWide ? 1 : Arch::kHasDot4 ? (Class::kSubs + 1) / 2 : Class::kSubs][kRows];
    std::int32_t min[(Class::kSubs + 1) / 2][kRows];  ///< two neighbours
    float d[kRows], dmin[kRows];
    std::int32_t acc_init[kRows];  ///< where S starts, of classes with kPanelAccInit: −kCarryGuard · Σ of the first
                                   ///< scales of pairs
};
/// The same of rows of blocks of 32.
template <class Arch, class Class>
struct PackedKBlock<Arch, Class, 32> {
    static constexpr int kRows = kPanelRows<Arch>;
    alignas(64) PanelCodes<Arch, Class> codes;
    float d[kKBlock / 32][Class::kSteps][kRows];
    float m[kKBlock / 32][kRows];
};

/// Codes of one row in the panel's row group, before they are transposed.
template <class Arch>
struct RowCodes {
    alignas(64) std::int8_t q[Arch::kLanes][kKBlock];
};

/// Words 0 … n_words of `lanes` rows of codes, biased: put(word, that word of each row).
template <class Arch, class Rows, class Put>
TINFER_INLINE void transpose_codes(const Rows& row_codes, int n_words, int bias, const Put& put) noexcept {
    const i32v<Arch> bias_bytes(static_cast<std::int32_t>(static_cast<std::uint32_t>(bias) * 0x01010101u));
    for (int word = 0; word < n_words; word += Arch::kLanes) {
        i32v<Arch> m[Arch::kLanes];
        for (int r = 0; r < Arch::kLanes; ++r)
            m[r] = add_bytes(load_i32<Arch>(row_codes(r) + 4 * word), bias_bytes, Arch{});
        transpose(m, Arch{});
        for (int w = 0; w < Arch::kLanes && word + w < n_words; ++w) put(word + w, m[w]);
    }
}
/// The same to the rows from first_row on of a k-block.
template <class Arch, class Class>
inline void transpose_codes_into(const RowCodes<Arch>& rows, int n_words, int bias, int first_row,
                                 PackedKBlock<Arch, Class>& k_block) noexcept {
    transpose_codes<Arch>([&](int r) { return rows.q[r]; }, n_words, bias,
                          [&](int word, const i32v<Arch>& codes) {
                              codes.store_unaligned(reinterpret_cast<std::int32_t*>(k_block.codes[word][first_row]));
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
inline constexpr int kSharesOfDecoding = 2 * kKBlock / 4 / kWordsPerShare;  ///< that are read while 32 rows are decoded

#if defined(__AVX2__) || defined(__aarch64__)
/// Puts what a decoder of N rows finds into one half of a k-block. `Given`: bits that the decoder could leave codes of
/// second sub-blocks up.
template <class Arch, int N, class KBlock, class Class, int Given>
struct KBlockHalf {
    using Bytes = RowBytes<N>;
    using Floats = typename RowLanes<N>::Floats;
    KBlock& k_block;
    int first_row;
    ReadAhead& reader;
    Bytes acc_init = each_word<N>(0), scale_of[2] = {acc_init, acc_init};  ///< the latter where codes are wide
    static constexpr bool kTakesPreShift = Given != 0 && Given == Class::kPreShift;

    TINFER_INLINE void begin(int) noexcept {}
    TINFER_INLINE void codes(int j, int word, Bytes bytes) noexcept {
        if (word % kWordsPerShare == 0) reader.read_share();
        if constexpr (Class::kWide) return wide_codes(word, bytes, scale_of[j % 2]);
        if (!kTakesPreShift && Class::kPreShift != 0 && j % 2 == 1)
            bytes = shift_left_16(bytes, Class::kPreShift);  // all fit their bytes
        store_lanes(k_block.codes[word][first_row], bytes);
    }
    TINFER_INLINE void end(int) noexcept {}
    TINFER_INLINE void scales(int pair, Bytes scales) noexcept {
        if constexpr (Arch::kHasDot4) store_lanes(k_block.scale[pair] + first_row, scales);
        else
            for (int i = 0; i < 2; ++i) {
                scale_of[i] = int16_of_pair<N>(scales, i);
                if constexpr (!Class::kWide) store_lanes(k_block.scale[2 * pair + i] + first_row, scale_of[i]);
            }
        if constexpr (Class::kPanelAccInit)
            acc_init = dot2(i32v<Arch>(acc_init), i32v<Arch>(scales), i32v<Arch>(-Class::kCarryGuard & 0xFFFF), Arch{});
    }
    TINFER_INLINE void finish() noexcept {
        if constexpr (Class::kPanelAccInit) store_lanes(k_block.acc_init + first_row, acc_init);
    }
    TINFER_INLINE void mins(int pair, Bytes mins) noexcept { store_lanes(k_block.min[pair] + first_row, mins); }
    TINFER_INLINE void d(Floats d) noexcept { store_lanes(k_block.d + first_row, d); }
    TINFER_INLINE void dmin(Floats d) noexcept { store_lanes(k_block.dmin + first_row, d); }
    TINFER_INLINE void d(int j, Floats d) noexcept {
        store_lanes(k_block.d[j / Class::kSteps][j % Class::kSteps] + first_row, d);
    }
    TINFER_INLINE void m(int unit, Floats m) noexcept { store_lanes(k_block.m[unit] + first_row, m); }

private:
    /// Those of super-blocks times their scale, which each lane holds twice: of eight bits each, 128 · 128 at most.
    TINFER_INLINE void wide_codes(int word, const i32v<Arch>& bytes, const i32v<Arch>& scale) noexcept {
        const auto put = [&](int i, const i32v<Arch>& v) {
            store_lanes(k_block.codes[i][first_row], Bytes(Class::kUnit == 256 ? multiply_pairs(v, scale, Arch{}) : v));
        };
        put(2 * word, even_bytes(bytes, Arch{}));
        put(2 * word + 1, odd_bytes(bytes, Arch{}));
    }
};

/// Pointers to the blocks of rows first … first + N - 1. Rows behind the last valid one repeat it.
template <class Arch, int N>
TINFER_INLINE RowBlocks<N> row_blocks(const std::uint8_t* rows, std::int64_t row_stride, int n_rows,
                                      int first) noexcept {
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
inline void transpose_scales(const Scales& row_scales, i32v<Arch> (&out)[16]) noexcept {
    for (int r = 0; r < 16; ++r) out[r] = _mm512_cvtepi16_epi32(load_bytes32(row_scales(r)));
    transpose(out, Arch{});
}

/// What decode_rows does, for the formats that have none, all of super-blocks: they are unpacked row by row and
/// transposed then.
template <class Arch, class Format, class Sink>
inline void unpack_sixteen(const RowBlocks<16>& b, Sink& sink) noexcept {
    static_assert(Format::kUnit == 256);
    constexpr int kSubs = 256 / Format::kScaleElems, kApart = 16 / kSubs;
    alignas(64) float d[16], dmin[16];
    Codes256 rows[16];
    for (int r = 0; r < 16; ++r) {
        unpack_block<Arch, Format>(b[r], 0, rows[r]);
        d[r] = rows[r].d;
        if constexpr (Format::kHasMin) dmin[r] = rows[r].dmin;
    }
    sink.d(_mm512_load_ps(d));
    const __m512i low_half = _mm512_set1_epi32(0xFFFF);
    i32v<Arch> transposed[16];
    transpose_scales<Arch>([&](int r) { return rows[r].scale; }, transposed);
    if constexpr (kSubs == 1) sink.scales(0, transposed[0]);
    for (int j = 0; j + 1 < kSubs; j += 2)
        sink.scales(j / 2,
                    choose(low_half, transposed[kApart * j], _mm512_slli_epi32(transposed[kApart * (j + 1)], 16)));
    if constexpr (Format::kHasMin) {
        sink.dmin(_mm512_load_ps(dmin));
        transpose_scales<Arch>([&](int r) { return rows[r].min; }, transposed);
        for (int j = 0; j < kSubs; j += 2)
            sink.mins(j / 2,
                      choose(low_half, transposed[kApart * j], _mm512_slli_epi32(transposed[kApart * (j + 1)], 16)));
    }
    transpose_codes<Arch>(
        [&](int r) { return rows[r].q; }, kKBlock / 4, Int8Encoding<Arch, Format>::kBias,
        [&](int word, const i32v<Arch>& codes) { sink.codes(word * 4 / Format::kScaleElems, word, codes); });
}
#endif

#if defined(__AVX2__) || defined(__aarch64__)
template <class Arch, class Format, int N, class Sink>
TINFER_INLINE void decode_group(const RowBlocks<N>& b, int n_units, Sink& sink) noexcept {
    if constexpr (kHasRowDecoder<Format>) decode_rows<Arch>(Format{}, b, n_units, sink);
#    if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
    else unpack_sixteen<Arch, Format>(b, sink);
#    endif
}

template <class Arch, class Format, class KBlock>
inline void decode_rows_together(const std::uint8_t* rows, std::int64_t row_stride, int n_rows, int n_units,
                                 KBlock& k_block, ReadAhead& reader) noexcept {
    constexpr int N = kDecodedRows<Arch, Format>;
    for (int first = 0; first < kPanelRows<Arch>; first += N) {
        KBlockHalf<Arch, N, KBlock, panel_class<Arch, Format>, kPreShiftBits<Format>> half{k_block, first, reader};
        decode_group<Arch, Format>(row_blocks<Arch, N>(rows, row_stride, n_rows, first), n_units, half);
        half.finish();
    }
}
#endif

/// Decodes one super-block of each row. Rows behind the last valid one repeat it: their results are not stored.
template <class Arch, class Format, class Class>
inline void decode_super_blocks(const std::uint8_t* rows, std::int64_t row_stride, int n_rows,
                                PackedKBlock<Arch, Class>& k_block, [[maybe_unused]] ReadAhead& reader) noexcept {
    static_assert(!Class::kWide || kDecodedRows<Arch, Format> != 0);  // below are no wide codes
#if defined(__AVX2__) || defined(__aarch64__)
    if constexpr (kDecodedRows<Arch, Format> != 0)
        return decode_rows_together<Arch, Format>(rows, row_stride, n_rows, 8, k_block, reader);
#endif
    using Route = Int8Encoding<Arch, Format>;
    for (int first = 0; first < kPanelRows<Arch>; first += Arch::kLanes) {
        RowCodes<Arch> group;
        for (int r = 0; r < Arch::kLanes; ++r) {
            const int row = first + r;
            Codes256 out;
            unpack_block<Arch, Format>(rows + (row < n_rows ? row : n_rows - 1) * row_stride, 0, out);
            std::memcpy(group.q[r], out.q, 256);
            k_block.d[row] = out.d;
            constexpr int kApart = 16 / Class::kSubs, kTogether = Arch::kHasDot4 ? 2 : 1;
            for (int j = 0; Class::kScaleElems != 256 && j < Class::kSubs; j += kTogether)
                k_block.scale[j / kTogether][row] =
                    int16_pair<Arch>(out.scale[j * kApart], out.scale[(j + kTogether - 1) * kApart]);
            if constexpr (Class::kHasMin) {
                k_block.dmin[row] = out.dmin;
                for (int j = 0; j < Class::kSubs / 2; ++j)
                    k_block.min[j][row] = int16_pair<Arch>(out.min[2 * j * (16 / Class::kSubs)],
                                                           out.min[(2 * j + 1) * (16 / Class::kSubs)]);
            }
        }
        transpose_codes_into(group, kKBlock / 4, Route::kBias, first, k_block);
    }
}

/// Decodes n_units blocks of 32 of each row.
template <class Arch, class Format, class Class>
inline void decode_blocks(const std::uint8_t* rows, std::int64_t row_stride, int n_rows, int n_units,
                          PackedKBlock<Arch, Class>& k_block, ReadAhead& reader) noexcept {
    static_assert(kDecodedRows<Arch, Format> != 0);
    decode_rows_together<Arch, Format>(rows, row_stride, n_rows, n_units, k_block, reader);
}

}  // namespace tinfer::kernels
