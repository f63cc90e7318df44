// SPDX-License-Identifier: MIT
// Products of a few tokens straight from rows of the file, the driver for registers of any number of lanes: four
// (NEON), eight (AVX2, AVX-VNNI) or sixteen (AVX-512). As many rows are decoded together, transposed so that lanes are
// rows, and their codes meet the tokens while they are in registers: nothing is stored on the way, nothing need be
// horizontally reduced, and minimums and float steps have rows in lanes. A format gives its decoder
// (kernels/pack/transposed_decode_k.hpp) and nothing else.
#pragma once

#include "kernels/gemv/row_streams.hpp"
#include "kernels/quants/activation_q8.hpp"

#if defined(__AVX2__) || defined(__aarch64__)

namespace tinfer::kernels {

/// How products of bytes reach 32 bits and meet the scales of super-blocks.
enum class SumPolicy : std::uint8_t {
    pairs,   ///< without a dot4: in pairs of sixteen bits, as many as surely fit (Int8Encoding); scales then widen them
    dots,    ///< by a dot4; the sum of a sub-block meets its scale in 32 bits
    joined,  ///< by a dot4 to sums that fit sixteen bits: those of two sub-blocks become one register, and one
             ///< instruction multiplies both with their scales
};

template <class Arch>
using LaneRows = RowGroup<Arch::kLanes>;
/// Whether a pass of T tokens loads by masks (RowBlocks): transposing is a large part of it.
template <class Arch, class Format, int T>
inline constexpr bool kLoadsMasked = Arch::kLanes == 16 && Format::kUnit == 256 &&
                                     T <= (Format::kType == DType::q4_k ? 8
                                           : Format::kScaleElems == 32  ? 4
                                                                        : 2);
template <class Arch, class Format, int T>
using LaneBlocks = RowBlocks<Arch::kLanes, kLoadsMasked<Arch, Format, T>>;
template <bool Masked = false, int N>
TINFER_INLINE RowBlocks<N, Masked> blocks_of(const RowGroup<N>& rows) noexcept {
    RowBlocks<N, Masked> blocks;
    std::memcpy(blocks.row, rows.row, sizeof(blocks.row));
    return blocks;
}

/// T tokens at a k-block, and where the sums of sub-blocks start: less what the bias of codes adds.
template <class Arch, int T>
struct LaneTokens {
    const std::int8_t* q[T];
    PrefetchAhead<LaneRows<Arch>> ahead;
    alignas(64) std::int32_t acc_init[T][16];
};

/// to[t] + the products of a word of codes, by a dot4.
template <class Arch, int T>
TINFER_INLINE void add_dots(i32v<Arch> (&to)[T], const LaneTokens<Arch, T>& tokens, int word,
                            const i32v<Arch>& codes) noexcept {
#    pragma GCC unroll 12
    for (int t = 0; t < T; ++t) to[t] = dot4_word(to[t], codes, tokens.q[t], word, Arch{});
}
/// Without a dot4: word i of n that share a scale. to[t] grows by its products when as many as fit are together.
template <class Arch, class Format, int n, int T>
TINFER_INLINE void add_pairs_of_products(i32v<Arch> (&to)[T], i32v<Arch> (&pairs)[T], const LaneTokens<Arch, T>& tokens,
                                         int i, int word, const i32v<Arch>& codes, const i32v<Arch>& scale) noexcept {
    constexpr int kPairSums = Int8Encoding<Arch, Format>::kPairSums, kTogether = kPairSums == 0  ? 1
                                                                                 : kPairSums < n ? kPairSums
                                                                                                 : n;
#    pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
        const i32v<Arch> a = bcast4<Arch>(tokens.q[t] + 4 * word);
        const i32v<Arch> pair = kPairSums == 0 ? dot_signed_bytes(codes, a, Arch{}) : dot_bytes(codes, a, Arch{});
        pairs[t] = i % kTogether == 0 ? pair : add_pairs(pairs[t], pair, Arch{});
        if (i % kTogether == kTogether - 1) to[t] = dot2(to[t], pairs[t], scale, Arch{});
    }
}

// ---- Super-blocks ---------------------------------------------------------------------------------------------------

/// Up to so many tokens have registers of their own for both sums that are joined. Third bits take some, too.
template <class Format>
inline constexpr int kApartTokens = Format::kType == DType::q3_k ? 3 : 4;

/// S of a super-block of a row in each lane and T tokens: what decode_rows tells of. Where sums are joined, of few
/// tokens each has a register of its own before that; of more the first one adds below the second, which was shifted
/// up, from kCarryGuard on, so that no borrow reaches the upper one. What the guard adds is taken off as in panels
/// (SumPairs): by an exclusive or, or once for all tokens.
template <class Arch, class Format, int T, SumPolicy Policy>
struct LaneSuperSums {
    using Class = panel_class<Arch, Format>;
    static constexpr int kSubs = Class::kSubs, kWords = 64 / kSubs;
    static constexpr bool kJoined = Policy == SumPolicy::joined, kTakesPreShift = kJoined, kBiased = Class::kBias != 0,
                          kApart = kJoined && T <= kApartTokens<Format>, kBelow = kJoined && !kApart;
    static constexpr int kUp = 16 - kPreShiftBits<Format>, kCarryGuard = Class::kCarryGuard;
    static constexpr bool kHasAccInit = kBelow && Class::kPanelAccInit,
                          kAccInitAbove = kBelow && kPreShiftBits<Format> != 0;
    static_assert(!kAccInitAbove || (kHasAccInit && !kBiased));  // the guard comes with the sum above it

    const LaneTokens<Arch, T>& tokens;
    const Activations* x;
    std::int64_t i;
    i32v<Arch> first[T], second[T], super[T], pair_scales, scale, acc_init = i32v<Arch>(0);  ///< pairs: in `second`
    struct {
        RowBytes<Arch::kLanes> mins[(kSubs + 1) / 2];  ///< no classes: an operator would get the address of all sums
        f32v<Arch> d, dmin;
    } kept;

    TINFER_INLINE LaneSuperSums(LaneTokens<Arch, T>& k_block, const Activations* rows, std::int64_t number) noexcept
        : tokens(k_block), x(rows), i(number) {
#    pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
            super[t] = i32v<Arch>(0);
            k_block.q[t] = x[t].q + 256 * i;
            for (int j = 0; kBiased && Arch::kHasDot4 && j < kSubs; ++j)
                k_block.acc_init[t][j] = (kBelow && j % 2 == 0 ? kCarryGuard : 0) - Class::kBias * sums_of(t)[j];
        }
    }
    TINFER_INLINE void d(const f32v<Arch>& d) noexcept { kept.d = d; }
    TINFER_INLINE void dmin(const f32v<Arch>& dmin) noexcept { kept.dmin = dmin; }
    TINFER_INLINE void mins(int pair, RowBytes<Arch::kLanes> mins) noexcept { kept.mins[pair] = mins; }
    TINFER_INLINE void scales(int pair, const i32v<Arch>& scales) noexcept {
        pair_scales = scales;
        if constexpr (kHasAccInit) acc_init = dot2(acc_init, scales, i32v<Arch>(-kCarryGuard & 0xFFFF), Arch{});
        if constexpr (kBiased && !Arch::kHasDot4)
            add_sums(super, multiply_pairs(scales, i32v<Arch>(int16_pair<Arch>(-Class::kBias, -Class::kBias)), Arch{}),
                     pair);
    }
    TINFER_INLINE void begin(int j) noexcept {
        if constexpr (Policy == SumPolicy::pairs) scale = int16_of_pair<Arch::kLanes>(pair_scales, j % 2);
#    pragma GCC unroll 12
        for (int t = 0; t < T && Policy != SumPolicy::pairs; ++t) {
            i32v<Arch>& to = sum(j)[t];
            if (kBelow && j % 2 == 0) {
                to = to << kUp;
                if (!kAccInitAbove) to = to + i32v<Arch>(kBiased ? tokens.acc_init[t][j] : kCarryGuard);
            } else {
                to = i32v<Arch>(kBiased ? tokens.acc_init[t][j] : kAccInitAbove ? kCarryGuard >> kUp : 0);
            }
        }
    }
    TINFER_INLINE void codes(int j, int word, const i32v<Arch>& c) noexcept {
        if constexpr (Policy != SumPolicy::pairs) add_dots<Arch>(sum(j), tokens, word, c);
        else add_pairs_of_products<Arch, Format, kWords>(super, second, tokens, word - kWords * j, word, c, scale);
    }
    TINFER_INLINE void end(int j) noexcept {
        tokens.ahead.template prefetch<kKBlockBytes<Format>, kSubs>(j);
        const i32v<Arch> s = scale_of_pair<Arch>(pair_scales, j);
#    pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
            if constexpr (Policy == SumPolicy::dots) super[t] = super[t] + first[t] * s;
            else if (kJoined && j % 2 == 0) super[t] = dot2(super[t], joined(t), pair_scales, Arch{});  // of both
        }
    }
    /// The float steps of token t.
    [[nodiscard]] TINFER_INLINE f32v<Arch> add_steps(int t, float d_x, f32v<Arch> acc) const noexcept {
        const i32v<Arch> s = kHasAccInit ? super[t] + acc_init : super[t];
        acc = fma(kept.d * f32v<Arch>(d_x), as_float(s, Arch{}), acc, Arch{});
        if constexpr (Format::kHasMin) {
            i32v<Arch> n(0);
#    pragma GCC unroll 8
            for (int pair = 0; pair < kSubs / 2; ++pair)
                n = dot2(n, i32v<Arch>(kept.mins[pair]), bcast4<Arch>(sums_of(t) + 2 * pair), Arch{});
            acc = fnma(kept.dmin * f32v<Arch>(d_x), as_float(n, Arch{}), acc, Arch{});
        }
        return acc;
    }

private:
    /// Of codes of token t, per sub-block. Not kept: general registers are few, too.
    [[nodiscard]] TINFER_INLINE const std::int16_t* sums_of(int t) const noexcept {
        return kSubs == 16 ? x[t].sum16 + 16 * i : x[t].sum32 + 8 * i;
    }
    /// The sums that the codes of sub-block j add to.
    TINFER_INLINE i32v<Arch> (&sum(int j) noexcept)[T] { return kApart && j % 2 == 1 ? second : first; }
    [[nodiscard]] TINFER_INLINE i32v<Arch> joined(int t) const noexcept {
        if constexpr (kHasAccInit) return first[t];
        else if constexpr (kBelow) return first[t] ^ i32v<Arch>(kCarryGuard);
        else return join_halves(first[t], second[t] << kUp, Arch{});
    }
    /// to[t] + Σ factor · sum of codes over a pair of sub-blocks.
    TINFER_INLINE void add_sums(i32v<Arch> (&to)[T], const i32v<Arch>& factors, int pair) const noexcept {
#    pragma GCC unroll 12
        for (int t = 0; t < T; ++t) to[t] = dot2(to[t], factors, bcast4<Arch>(sums_of(t) + 2 * pair), Arch{});
    }
};

/// Super-block i of a row in each lane: acc[t][row] continues by its float steps.
template <class Arch, class Format, int T, SumPolicy Policy>
TINFER_INLINE void multiply_super_blocks_in_lanes(const LaneBlocks<Arch, Format, T>& blocks,
                                                  const PrefetchAhead<LaneRows<Arch>>& ahead, std::int64_t i,
                                                  const Activations* x, float (*acc)[Arch::kLanes]) noexcept {
    LaneTokens<Arch, T> tokens;
    tokens.ahead = ahead;
    LaneSuperSums<Arch, Format, T, Policy> sums(tokens, x, i);
    decode_rows<Arch>(Format{}, blocks, 8, sums);
#    pragma GCC unroll 12
    for (int t = 0; t < T; ++t) sums.add_steps(t, x[t].d[i], load_f32<Arch>(acc[t])).store_unaligned(acc[t]);
}

/// Whether sums of super-block s are joined: they always fit, or those of these tokens do.
template <class Arch, class Format, int T>
TINFER_INLINE bool are_joined(const Activations* x, std::int64_t s) noexcept {
    using Class = panel_class<Arch, Format>;
    if constexpr (kPreShiftBits<Format> == 0 || !Class::kMayBeNarrow) return Class::kAlwaysNarrow;
    int most = 0;
    for (int t = 0; t < T; ++t) most = std::max<int>(most, x[t].max_partial_sum[2 * s]);
    return most <= (T <= kApartTokens<Format> ? SumPairs<Arch, Format>::kSixteenBits : Class::kNarrowMaxPartialSum);
}

// ---- Blocks of 32 ---------------------------------------------------------------------------------------------------

/// Their sums and float steps, of which a block may have two.
template <class Arch, class Format, int T>
struct LaneBlockSums {
    static constexpr int kBias = Int8Encoding<Arch, Format>::kBias, kElems = Format::kScaleElems, kWords = kElems / 4;
    static constexpr bool kTakesPreShift = false;
    static constexpr int kSums = Arch::kHasDot4 && T <= 3 ? 2 : 1;  ///< of one dot, where there are few to wait for
    const LaneTokens<Arch, T>& tokens;
    const Activations* x;
    std::int64_t first;  ///< number of the k-block's first block
    f32v<Arch> acc[T], d_w, m_w;
    i32v<Arch> sum[2][T];  ///< without a dot4: the sum, and pairs

    TINFER_INLINE LaneBlockSums(LaneTokens<Arch, T>& k_block, const Activations* row, std::int64_t first_block,
                                [[maybe_unused]] int n_units) noexcept
        : tokens(k_block), x(row), first(first_block) {
#    pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
            k_block.q[t] = x[t].q + 32 * first;
            if constexpr (kElems == 16) {
                for (int j = 0; kBias != 0 && j < 2 * n_units; ++j)
                    k_block.acc_init[t][j] = -kBias * sum_codes<Arch>(k_block.q[t] + 16 * j, 16);
            } else {  // a row's parts are padded to 8; what lies in the padding may overflow
                for (int u = 0; kBias != 0 && u < 8; ++u)
                    k_block.acc_init[t][u] = static_cast<std::int32_t>(
                        0u - static_cast<unsigned>(kBias) * static_cast<unsigned>(x[t].sum[first + u]));
            }
        }
    }
    TINFER_INLINE void d(int, const f32v<Arch>& d) noexcept { d_w = d; }
    TINFER_INLINE void m(int, const f32v<Arch>& m) noexcept { m_w = m; }
    TINFER_INLINE void begin(int j) noexcept {
#    pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
            sum[0][t] = i32v<Arch>(kBias != 0 ? tokens.acc_init[t][j] : 0);
            if (kSums == 2) sum[1][t] = i32v<Arch>(0);
        }
    }
    TINFER_INLINE void codes(int j, int word, const i32v<Arch>& c) noexcept {
        const int i = word - kWords * j;
        if constexpr (Arch::kHasDot4) add_dots<Arch>(sum[i % kSums], tokens, word, c);
        else add_pairs_of_products<Arch, Format, kWords>(sum[0], sum[1], tokens, i, word, c, i32v<Arch>(0x00010001));
    }
    TINFER_INLINE void end(int j) noexcept {
        tokens.ahead.template prefetch<kKBlockBytes<Format>, kKBlock / kElems>(j);
        const std::int64_t block = first + j * kElems / 32;
#    pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
            const i32v<Arch> dot = kSums == 1 ? sum[0][t] : sum[0][t] + sum[1][t];
            acc[t] = fma(d_w * f32v<Arch>(x[t].d[block]), as_float(dot, Arch{}), acc[t], Arch{});
            if constexpr (Format::kHasMin) acc[t] = fma(m_w, f32v<Arch>(x[t].s[block]), acc[t], Arch{});
        }
    }
};

/// n_units blocks of 32 of a row in each lane, from block number `first` on.
template <class Arch, class Format, int T>
TINFER_INLINE void multiply_blocks_in_lanes(const RowBlocks<Arch::kLanes>& blocks,
                                            const PrefetchAhead<LaneRows<Arch>>& ahead, std::int64_t first, int n_units,
                                            const Activations* x, float (*acc)[Arch::kLanes]) noexcept {
    LaneTokens<Arch, T> tokens;
    tokens.ahead = ahead;
    LaneBlockSums<Arch, Format, T> sums(tokens, x, first, n_units);
#    pragma GCC unroll 12
    for (int t = 0; t < T; ++t) sums.acc[t] = load_f32<Arch>(acc[t]);
    decode_rows<Arch>(Format{}, blocks, n_units, sums);
#    pragma GCC unroll 12
    for (int t = 0; t < T; ++t) sums.acc[t].store_unaligned(acc[t]);
}

/// The same as a function of its own: its registers are not those of the loop over k.
template <class Arch, class Format, int T>
[[gnu::noinline]] void multiply_blocks_apart(const RowBlocks<Arch::kLanes>& blocks,
                                             const PrefetchAhead<LaneRows<Arch>>& ahead, std::int64_t first,
                                             int n_units, const Activations* x, float (*acc)[Arch::kLanes]) noexcept {
    multiply_blocks_in_lanes<Arch, Format, T>(blocks, ahead, first, n_units, x, acc);
}

// ---- Rows -----------------------------------------------------------------------------------------------------------

/// Results of a row of k values in each lane against T tokens. What follows the rows is prefetched where `prefetches`.
template <class Arch, class Format, int T>
[[gnu::noinline]] void multiply_rows_in_lanes(const LaneRows<Arch>& rows, std::int64_t k, const Activations* x,
                                              bool prefetches, float (*results)[Arch::kLanes]) noexcept {
    auto blocks = blocks_of<kLoadsMasked<Arch, Format, T>>(rows);
    for (int t = 0; t < T; ++t) f32v<Arch>(0.0f).store_unaligned(results[t]);
    for (std::int64_t s = 0; s * kKBlock < k; ++s, blocks.advance(kKBlockBytes<Format>)) {
        const PrefetchAhead<LaneRows<Arch>> ahead{prefetches ? &rows : nullptr, s * kKBlockBytes<Format>};
        if constexpr (Format::kUnit == 256) {
            using Class = panel_class<Arch, Format>;
            constexpr SumPolicy kOthers = Arch::kHasDot4 ? SumPolicy::dots : SumPolicy::pairs;
            const bool joined = are_joined<Arch, Format, T>(x, s);
            if constexpr (Class::kAlwaysNarrow || (Class::kMayBeNarrow && kPreShiftBits<Format> != 0))
                if (joined)
                    multiply_super_blocks_in_lanes<Arch, Format, T, SumPolicy::joined>(blocks, ahead, s, x, results);
            if constexpr (!Class::kAlwaysNarrow)
                if (!joined) multiply_super_blocks_in_lanes<Arch, Format, T, kOthers>(blocks, ahead, s, x, results);
        } else {
            const int n_units = static_cast<int>(std::min<std::int64_t>(k - s * kKBlock, kKBlock) / 32);
#    if defined(__aarch64__)  // the loop over eight is unrolled
            if (n_units != 8) {
                constexpr int kUnits = Format::kBlockElems / 32;
                for (int u = 0; u < n_units; u += kUnits, blocks.advance(Format::kBlockBytes))
                    multiply_blocks_in_lanes<Arch, Format, T>(blocks, {nullptr, 0}, 8 * s + u, kUnits, x, results);
                continue;
            }
#    endif
            if constexpr (Arch::kLanes == 16 && T > 5)
                multiply_blocks_apart<Arch, Format, T>(blocks, ahead, 8 * s, n_units, x, results);
            else multiply_blocks_in_lanes<Arch, Format, T>(blocks, ahead, 8 * s, n_units, x, results);
        }
    }
}

}  // namespace tinfer::kernels

#endif
