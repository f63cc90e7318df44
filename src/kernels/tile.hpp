// SPDX-License-Identifier: MIT
// The micro-kernels of quantized products: one panel slice (256 values of two registers of rows) against up to
// kTileTokens activation rows. Integer sums are exact in any order; the float steps that follow them are those of
// kernels/quants/format.hpp, in ascending block order, into one accumulator per output.
#pragma once

#include <algorithm>

#include "base/dtype.hpp"
#include "kernels/panel_job.hpp"
#include "kernels/quants/quantize_activation.hpp"

namespace tinfer::kernels {

/// Tokens of a tile: what the registers hold. Where a sub-block is one long sum of pairs, sums in 32 bits may rest in memory.
template <class Arch, class Class>
inline constexpr int kTileTokens = !Arch::kHasDot4 && Class::kSubs == 8 && Class::kPairSums == 8 ? Arch::kLongTileTokens : Arch::kTileTokens;

/// Quantized activation rows of the tokens of a tile at one slice of K. All have one layout, so one offset for each part of
/// them will do, and few registers hold what a tile needs.
template <class Arch, class Class>
struct TokenSlice {
    static constexpr int kMax = kTileTokens<Arch, Class>;
    const std::int8_t* codes[kMax];
    std::int64_t d_offset;      ///< bytes from a token's codes to its d: one per block of 32 or per super-block
    std::int64_t s_offset;      ///< blocks of 32: to d · sum of codes
    std::int64_t sums_offset;   ///< super-blocks: to the sums of codes per sub-block, for mins
    alignas(64) std::int32_t start[kMax][16];   ///< −bias · sum of codes per sub-block or float step: where a sum starts
    bool narrow;                       ///< super-blocks: the sum of every sub-block fits sixteen bits
    ReadAhead* reader;                 ///< of memory, meanwhile
    static constexpr int kShares = 8;  ///< it reads in a tile: one for every 32 of K

    [[nodiscard]] TINFER_INLINE const float* d(int t) const noexcept { return reinterpret_cast<const float*>(codes[t] + d_offset); }
    [[nodiscard]] TINFER_INLINE const float* s(int t) const noexcept { return reinterpret_cast<const float*>(codes[t] + s_offset); }
    [[nodiscard]] TINFER_INLINE const std::int16_t* sums(int t) const noexcept {
        return reinterpret_cast<const std::int16_t*>(codes[t] + sums_offset);
    }
};

/// Tokens of the tile: the first n columns, at slice number `slice`, of which n_units blocks exist.
template <class Arch, class Class>
TINFER_INLINE void point_at(TokenSlice<Arch, Class>& tokens, const Column<Arch>* columns, int n, const ActivationLayout& layout,
                            std::int64_t slice, int n_units) noexcept {
    const std::int64_t at = slice * kSlice;
    for (int t = 0; t < n; ++t) tokens.codes[t] = reinterpret_cast<const std::int8_t*>(columns[t].x) + at;
    if constexpr (Class::kUnit == 256) {
        const std::int64_t sum16 = layout.sum_offset + slice * 32 - at, sum32 = layout.sum32_offset + slice * 16 - at;
        tokens.d_offset = layout.d_offset + slice * 4 - at;
        tokens.sums_offset = Class::kSubs == 16 ? sum16 : sum32;
        if constexpr (Class::kMayBeNarrow) {
            const std::int64_t reach = layout.reach_offset + slice * 4 + (Class::kHasMin && Class::kSubs == 8 ? 0 : 2) - at;
            int most = 0;
            for (int t = 0; t < n; ++t) most = std::max<int>(most, *reinterpret_cast<const std::uint16_t*>(tokens.codes[t] + reach));
            tokens.narrow = most <= Class::kNarrowReach;
        }
        if constexpr (Class::kBias != 0 && Class::kSubs == 1) {
            for (int t = 0; t < n; ++t) {
                std::int32_t sum = 0;
                for (int j = 0; j < 16; ++j) sum += reinterpret_cast<const std::int16_t*>(tokens.codes[t] + sum16)[j];
                tokens.start[t][0] = -Class::kBias * sum;
            }
        } else if constexpr (Class::kBias != 0 && Arch::kHasDot4) {
            for (int t = 0; t < n; ++t)
                for (int j = 0; j < Class::kSubs; ++j) tokens.start[t][j] = -Class::kBias * tokens.sums(t)[j];
        }
    } else {
        tokens.d_offset = layout.d_offset + slice * 32 - at;
        tokens.s_offset = layout.s_offset + slice * 32 - at;
        for (int t = 0; Class::kBias != 0 && t < n; ++t) {
            const auto* sums = reinterpret_cast<const std::int32_t*>(tokens.codes[t] + (layout.sum_offset + slice * 32 - at));
            if constexpr (Class::kSteps == 1) {
                for (int u = 0; u < 8; ++u)   // the row's parts are padded to 8; what lies in the padding may overflow
                    tokens.start[t][u] = static_cast<std::int32_t>(0u - static_cast<std::uint32_t>(Class::kBias) * static_cast<std::uint32_t>(sums[u]));
            } else {
                for (int u = 0; u < n_units; ++u) {
                    std::int32_t first = 0;
                    for (int i = 0; i < 16; ++i) first += tokens.codes[t][32 * u + i];
                    tokens.start[t][2 * u] = -Class::kBias * first;
                    tokens.start[t][2 * u + 1] = -Class::kBias * (sums[u] - first);
                }
            }
        }
    }
}

/// Accumulators of a tile: two registers of rows by T tokens.
template <class V, int T>
struct TileOf {
    V v[T][2];
};

/// Where the sums of sub-block (or float step) j start.
template <class Arch, class Class, int T>
TINFER_INLINE void start_sums(const TokenSlice<Arch, Class>& tokens, int j, TileOf<i32v<Arch>, T>& sums) noexcept {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
        sums.v[t][0] = sums.v[t][1] = Class::kBias != 0 ? bcast4<Arch>(&tokens.start[t][j]) : i32v<Arch>(0);
}

/// sums[t] += Σ over `words` groups of four values; without dot4 times `scale`, two equal int16 per lane.
template <class Arch, int PairSums, int Words, int T>
TINFER_INLINE void dot_words(const std::uint8_t (*codes)[kPanelRows<Arch>][4], const std::int8_t* const* x, int k,
                             const i32v<Arch> (&scale)[2], TileOf<i32v<Arch>, T>& sums) noexcept {
    if constexpr (Arch::kHasDot4) {
#pragma GCC unroll 8
        for (int word = 0; word < Words; ++word) {
            const i32v<Arch> w0 = load_i32<Arch>(codes[word][0]), w1 = load_i32<Arch>(codes[word][Arch::kLanes]);
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
                const i32v<Arch> a = bcast4<Arch>(x[t] + k + 4 * word);
                sums.v[t][0] = dot4(sums.v[t][0], w0, a, Arch{});
                sums.v[t][1] = dot4(sums.v[t][1], w1, a, Arch{});
            }
        }
    } else {
        constexpr int kFit = PairSums == 0 ? 1 : PairSums < Words ? PairSums : Words;   // int16 sums that still fit
        for (int word = 0; word < Words; word += kFit) {
            TileOf<i32v<Arch>, T> pairs;
#pragma GCC unroll 8
            for (int g = 0; g < kFit; ++g) {
                const i32v<Arch> w0 = load_i32<Arch>(codes[word + g][0]),
                    w1 = load_i32<Arch>(codes[word + g][Arch::kLanes]);
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t) {
                    const i32v<Arch> a = once(bcast4<Arch>(x[t] + k + 4 * (word + g)), Arch{});
                    const i32v<Arch> p0 = PairSums == 0 ? dot_signed_bytes(w0, a, Arch{}) : dot_bytes(w0, a, Arch{});
                    const i32v<Arch> p1 = PairSums == 0 ? dot_signed_bytes(w1, a, Arch{}) : dot_bytes(w1, a, Arch{});
                    pairs.v[t][0] = g == 0 ? p0 : add_pairs(pairs.v[t][0], p0, Arch{});
                    pairs.v[t][1] = g == 0 ? p1 : add_pairs(pairs.v[t][1], p1, Arch{});
                }
            }
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t)
                for (int v = 0; v < 2; ++v) sums.v[t][v] = dot2(sums.v[t][v], pairs.v[t][v], scale[v], Arch{});
        }
    }
}

/// super −= bias · Σ scale_j · (sum of the activations of sub-block j), two sub-blocks at a time. Without dot4 a lane holds
/// its scale twice, so two neighbours are a lane of each.
template <class Arch, class Class, int T>
TINFER_INLINE void subtract_bias(const PanelSlice<Arch, Class>& slice, const TokenSlice<Arch, Class>& tokens,
                                 TileOf<i32v<Arch>, T>& super) noexcept {
    for (int v = 0; v < 2; ++v) {
        const auto scale = [&](int j) { return load_i32<Arch>(slice.scale[j] + v * Arch::kLanes); };
        TileOf<i32v<Arch>, T> sum;
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) sum.v[t][0] = i32v<Arch>(0);
#pragma GCC unroll 8
        for (int j = 0; j < Class::kSubs; j += 2) {
            const i32v<Arch> pair = join_halves(scale(j), scale(j + 1), Arch{});
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) sum.v[t][0] = dot2(sum.v[t][0], pair, bcast4<Arch>(tokens.sums(t) + j), Arch{});
        }
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) super.v[t][v] = super.v[t][v] - sum.v[t][0] * i32v<Arch>(Class::kBias);
    }
}

/// The scales of sub-block j, one of a pair in each lane.
template <class Arch>
TINFER_INLINE i32v<Arch> scale_of_pair(const i32v<Arch>& pair, int j) noexcept {
    return (j % 2 == 0 ? pair << 16 : pair) >> 16;
}

/// S of one super-block without scales: one sum.
template <class Arch, class Class, int T>
TINFER_INLINE void plain_sums(const PanelSlice<Arch, Class>& slice, const TokenSlice<Arch, Class>& tokens,
                              TileOf<i32v<Arch>, T>& super) noexcept {
    const i32v<Arch> ones[2] = {i32v<Arch>(0x00010001), i32v<Arch>(0x00010001)};
    start_sums(tokens, 0, super);
    for (int word = 0; word < 64; word += 8)
        dot_words<Arch, Class::kPairSums, 8>(slice.codes + word, tokens.codes, 4 * word, ones, super);
}

/// S of one super-block, the integer scales included, for every row and token of the tile, where the sum of every sub-block
/// fits sixteen bits: a lane takes those of two, and one instruction multiplies both with their scales. The sum of the second
/// is shifted up, that of the first accumulates below it, starting at 2^15, so that it never borrows from above.
template <class Arch, class Class, int T>
TINFER_INLINE void narrow_sums(const PanelSlice<Arch, Class>& slice, const TokenSlice<Arch, Class>& tokens,
                               TileOf<i32v<Arch>, T>& super) noexcept {
    constexpr int kWords = 64 / Class::kSubs;
    const i32v<Arch> middle(0x8000);
    for (int j = 0; j < Class::kSubs; j += 2) {
        for (int i = 0; i < 2 && j % (Class::kSubs > 8 ? 4 : 2) == 0; ++i) tokens.reader->read_share();
        const i32v<Arch> scale[2] = {load_i32<Arch>(slice.scale[j / 2]), load_i32<Arch>(slice.scale[j / 2] + Arch::kLanes)};
        TileOf<i32v<Arch>, T> pair;
        start_sums(tokens, j + 1, pair);
        dot_words<Arch, Class::kPairSums, kWords>(slice.codes + kWords * (j + 1), tokens.codes, 4 * kWords * (j + 1), scale, pair);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
            for (int v = 0; v < 2; ++v) {
                pair.v[t][v] = (pair.v[t][v] << 16) + middle;
                if constexpr (Class::kBias != 0) pair.v[t][v] = pair.v[t][v] + bcast4<Arch>(&tokens.start[t][j]);
            }
        dot_words<Arch, Class::kPairSums, kWords>(slice.codes + kWords * j, tokens.codes, 4 * kWords * j, scale, pair);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
            for (int v = 0; v < 2; ++v) super.v[t][v] = dot2(super.v[t][v], pair.v[t][v] ^ middle, scale[v], Arch{});
    }
}

/// The same where a sum of a sub-block may be wider.
template <class Arch, class Class, int T>
TINFER_INLINE void wide_sums(const PanelSlice<Arch, Class>& slice, const TokenSlice<Arch, Class>& tokens,
                             TileOf<i32v<Arch>, T>& super) noexcept {
    constexpr int kSubs = Class::kSubs, kWords = 64 / kSubs;
    for (int j = 0; j < kSubs; ++j) {
        if (j % (kSubs > 8 ? 2 : 1) == 0) tokens.reader->read_share();
        const auto* scales = slice.scale[Arch::kHasDot4 ? j / 2 : j];
        const i32v<Arch> scale[2] = {load_i32<Arch>(scales), load_i32<Arch>(scales + Arch::kLanes)};
        const auto* codes = slice.codes + kWords * j;
        if constexpr (Arch::kHasDot4) {
            TileOf<i32v<Arch>, T> sub;
            start_sums(tokens, j, sub);
            dot_words<Arch, Class::kPairSums, kWords>(codes, tokens.codes, 4 * kWords * j, scale, sub);
            const i32v<Arch> factor[2] = {scale_of_pair<Arch>(scale[0], j), scale_of_pair<Arch>(scale[1], j)};
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t)
                for (int v = 0; v < 2; ++v) super.v[t][v] = super.v[t][v] + sub.v[t][v] * factor[v];
        } else {
            dot_words<Arch, Class::kPairSums, kWords>(codes, tokens.codes, 4 * kWords * j, scale, super);
        }
    }
    if constexpr (!Arch::kHasDot4 && Class::kBias != 0) subtract_bias(slice, tokens, super);
}

/// S of one super-block, in the way that its class of formats and these tokens allow.
template <class Arch, class Class, int T, bool Narrow>
TINFER_INLINE void super_block_sums(const PanelSlice<Arch, Class>& slice, const TokenSlice<Arch, Class>& tokens,
                                    TileOf<i32v<Arch>, T>& super) noexcept {
    for (int t = 0; t < T; ++t) super.v[t][0] = super.v[t][1] = i32v<Arch>(0);
    if constexpr (Class::kSubs == 1) plain_sums(slice, tokens, super);
    else if constexpr (Narrow) narrow_sums(slice, tokens, super);
    else wide_sums(slice, tokens, super);
}

/// One slice of super-blocks: acc[t][row] continues by one or two fused steps.
template <class Arch, class Class, int T, bool Narrow>
[[gnu::noinline]] void tile_super_block(const PanelSlice<Arch, Class>& slice, const TokenSlice<Arch, Class>& tokens,
    float* acc) noexcept {
    TileOf<i32v<Arch>, T> super;
    super_block_sums<Arch, Class, T, Narrow>(slice, tokens, super);
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
        TileOf<i32v<Arch>, T> n;
        if constexpr (Class::kHasMin) {
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) n.v[t][0] = i32v<Arch>(0);
#pragma GCC unroll 8
            for (int j = 0; j < Class::kSubs / 2; ++j) {
                const i32v<Arch> min = load_i32<Arch>(slice.min[j] + v * Arch::kLanes);
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t)
                    n.v[t][0] = dot2(n.v[t][0], min, bcast4<Arch>(tokens.sums(t) + 2 * j), Arch{});
            }
        }
        const f32v<Arch> d = load_f32<Arch>(slice.d + v * Arch::kLanes);
        const f32v<Arch> dmin = Class::kHasMin ? load_f32<Arch>(slice.dmin + v * Arch::kLanes) : d;
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
            float* out = acc + t * kPanelRows<Arch> + v * Arch::kLanes;
            const f32v<Arch> d_x(*tokens.d(t));
            f32v<Arch> sum = fma(d * d_x, as_float(super.v[t][v], Arch{}), load_f32<Arch>(out), Arch{});
            if constexpr (Class::kHasMin) sum = fnma(dmin * d_x, as_float(n.v[t][0], Arch{}), sum, Arch{});
            sum.store_unaligned(out);
        }
    }
}

/// One slice of n_units blocks of 32.
template <class Arch, class Class, int T>
[[gnu::noinline]] void tile_blocks(const PanelSlice<Arch, Class>& slice, const TokenSlice<Arch, Class>& tokens,
    int n_units, float* acc) noexcept {
    constexpr int kSteps = Class::kSteps, kWords = 8 / kSteps;
    TileOf<f32v<Arch>, T> sum;
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
        for (int v = 0; v < 2; ++v) sum.v[t][v] = load_f32<Arch>(acc + t * kPanelRows<Arch> + v * Arch::kLanes);
    const i32v<Arch> ones[2] = {i32v<Arch>(0x00010001), i32v<Arch>(0x00010001)};
    for (int u = 0; u < n_units; ++u) {
        tokens.reader->read_share();
        for (int step = 0; step < kSteps; ++step) {
            TileOf<i32v<Arch>, T> dots;
            start_sums(tokens, u * kSteps + step, dots);
            const int word = 8 * u + kWords * step;
            dot_words<Arch, Class::kPairSums, kWords>(slice.codes + word, tokens.codes, 4 * word, ones, dots);
            const f32v<Arch> d[2] = {load_f32<Arch>(slice.d[u][step]), load_f32<Arch>(slice.d[u][step] + Arch::kLanes)};
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
                const f32v<Arch> d_x(tokens.d(t)[u]);
                for (int v = 0; v < 2; ++v)
                    sum.v[t][v] = fma(d[v] * d_x, as_float(dots.v[t][v], Arch{}), sum.v[t][v], Arch{});
            }
        }
        if constexpr (Class::kHasMin)
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t)
                for (int v = 0; v < 2; ++v)
                    sum.v[t][v] = fma(load_f32<Arch>(slice.m[u] + v * Arch::kLanes), f32v<Arch>(tokens.s(t)[u]),
                        sum.v[t][v], Arch{});
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
        for (int v = 0; v < 2; ++v) sum.v[t][v].store_unaligned(acc + t * kPanelRows<Arch> + v * Arch::kLanes);
}

/// The tile for the first `n` tokens of `tokens`, 1 ≤ n ≤ kTileTokens.
template <class Arch, class Class, int T = kTileTokens<Arch, Class>>
inline void run_tile(const PanelSlice<Arch, Class>& slice, const TokenSlice<Arch, Class>& tokens, int n, int n_units,
    float* acc) noexcept {
    if constexpr (T > 1)
        if (n < T) return run_tile<Arch, Class, T - 1>(slice, tokens, n, n_units, acc);
    if constexpr (Class::kUnit != 256) {
        tile_blocks<Arch, Class, T>(slice, tokens, n_units, acc);
    } else {
        if constexpr (Class::kMayBeNarrow)
            if (tokens.narrow) return tile_super_block<Arch, Class, T, true>(slice, tokens, acc);
        if constexpr (!Class::kAlwaysNarrow) tile_super_block<Arch, Class, T, false>(slice, tokens, acc);
    }
}

}  // namespace tinfer::kernels
