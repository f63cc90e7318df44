// SPDX-License-Identifier: MIT
// The micro-kernels of quantized products: one packed k-block (256 values of two registers of rows) against up to
// kMicroTileTokens activation rows. Integer sums are exact in any order; the float steps that follow them are those of
// kernels/quants/format.hpp, in ascending block order, into one accumulator per output.
#pragma once

#include "kernels/gemm/micro_tile_q8.hpp"

namespace tinfer::kernels {

/// Accumulators of a micro-tile: two registers of rows by T tokens.
template <class V, int T>
struct MicroTile {
    V v[T][2];
};

/// Where the sums of sub-block (or float step) j start.
template <class Arch, class Class, int T>
TINFER_INLINE void init_sums(const MicroTileTokens<Arch, Class, T>& tokens, int j,
                             MicroTile<i32v<Arch>, T>& sums) noexcept {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
        sums.v[t][0] = sums.v[t][1] = Class::kBias != 0 ? bcast4<Arch>(&tokens.acc_init[t][j]) : i32v<Arch>(0);
}

/// sums[t] += Σ over eight words of wide codes, from number `first` on, a multiple of eight.
template <class Arch, class Class, int T>
TINFER_INLINE void dot_wide_words(const PackedKBlock<Arch, Class>& k_block,
                                  const MicroTileTokens<Arch, Class, T>& tokens, int first,
                                  MicroTile<i32v<Arch>, T>& sums) noexcept {
    static_assert(Class::kSteps == 1);
    const int x = first / Arch::kLanes * 4 * Arch::kLanes + first % Arch::kLanes * 2;
#pragma GCC unroll 8
    for (int word = 0; word < 8; ++word)
#pragma GCC unroll 2
        for (int odd = 0; odd < 2; ++odd) {
            const auto& codes = k_block.codes[2 * (first + word) + odd];
            const i32v<Arch> w0 = load_i32<Arch>(codes[0]), w1 = load_i32<Arch>(codes[Arch::kLanes]);
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
                const i32v<Arch> a = once(bcast4<Arch>(tokens.wide[t] + x + 2 * word + 2 * Arch::kLanes * odd), Arch{});
                sums.v[t][0] = dot2(sums.v[t][0], w0, a, Arch{});
                sums.v[t][1] = dot2(sums.v[t][1], w1, a, Arch{});
            }
        }
}

#if defined(__ARM_FEATURE_MATMUL_INT8)
/// sums[t] += Σ over `words` groups of four values by products of two rows and two tokens; of an odd number the last
/// one is its own neighbour.
template <class Arch, int Words, int T>
TINFER_INLINE void dot_words_by_pairs(const std::uint8_t (*codes)[kPanelRows<Arch>][4], const std::int8_t* const* x,
                                      int k, MicroTile<i32v<Arch>, T>& sums) noexcept {
    constexpr int kPairs = (T + 1) / 2;
    i32v<Arch> acc[kPairs][4];
#    pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p)
        for (int r = 0; r < 4; ++r) acc[p][r] = i32v<Arch>(0);
#    pragma GCC unroll 4
    for (int word = 0; word < Words; word += 2) {
        i32v<Arch> rows[4];  // of two rows the next eight values
#    pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) {
            const i32v<Arch> first = load_i32<Arch>(codes[word][4 * v]), last = load_i32<Arch>(codes[word + 1][4 * v]);
            rows[2 * v] = vzip1q_s32(first, last);
            rows[2 * v + 1] = vzip2q_s32(first, last);
        }
#    pragma GCC unroll 4
        for (int p = 0; p < kPairs; ++p) {
            const int last = 2 * p + 1 < T ? 2 * p + 1 : 2 * p;
            const i32v<Arch> tokens =
                vreinterpretq_s32_s8(vcombine_s8(vld1_s8(x[2 * p] + k + 4 * word), vld1_s8(x[last] + k + 4 * word)));
#    pragma GCC unroll 4
            for (int r = 0; r < 4; ++r) acc[p][r] = multiply_pairs(acc[p][r], rows[r], tokens, Arch{});
        }
    }
#    pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p)
        for (int v = 0; v < 2; ++v) {
            sums.v[2 * p][v] = sums.v[2 * p][v] + i32v<Arch>(vuzp1q_s32(acc[p][2 * v], acc[p][2 * v + 1]));
            if (2 * p + 1 < T)
                sums.v[2 * p + 1][v] = sums.v[2 * p + 1][v] + i32v<Arch>(vuzp2q_s32(acc[p][2 * v], acc[p][2 * v + 1]));
        }
}
#endif

/// sums[t] += Σ over `words` groups of four values; without dot4 times `scale`, two equal int16 per lane.
template <class Arch, int PairSums, int Words, int T>
TINFER_INLINE void dot_words(const std::uint8_t (*codes)[kPanelRows<Arch>][4], const std::int8_t* const* x, int k,
                             const i32v<Arch> (&scale)[2], MicroTile<i32v<Arch>, T>& sums) noexcept {
#if defined(__ARM_FEATURE_MATMUL_INT8)
    if constexpr (T > 1 && kHasMatrixProducts<Arch>) return dot_words_by_pairs<Arch, Words>(codes, x, k, sums);
#endif
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
        constexpr int kFit = PairSums < Words ? PairSums : Words;  // int16 sums that still fit
        for (int word = 0; word < Words; word += kFit) {
            MicroTile<i32v<Arch>, T> pairs;
#pragma GCC unroll 8
            for (int g = 0; g < kFit; ++g) {
                const i32v<Arch> w0 = load_i32<Arch>(codes[word + g][0]),
                                 w1 = load_i32<Arch>(codes[word + g][Arch::kLanes]);
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t) {
                    const i32v<Arch> a = once(bcast4<Arch>(x[t] + k + 4 * (word + g)), Arch{});
                    const i32v<Arch> p0 = dot_bytes(w0, a, Arch{}), p1 = dot_bytes(w1, a, Arch{});
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

/// super −= bias · Σ scale_j · (sum of the activations of sub-block j), two sub-blocks at a time. Without dot4 a lane
/// holds its scale twice, so two neighbours are a lane of each.
template <class Arch, class Class, int T>
TINFER_INLINE void subtract_bias(const PackedKBlock<Arch, Class>& k_block,
                                 const MicroTileTokens<Arch, Class, T>& tokens,
                                 MicroTile<i32v<Arch>, T>& super) noexcept {
    for (int v = 0; v < 2; ++v) {
        const auto scale = [&](int j) { return load_i32<Arch>(k_block.scale[j] + v * Arch::kLanes); };
        MicroTile<i32v<Arch>, T> sum;
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

/// S of one super-block without scales: one sum.
template <class Arch, class Class, int T>
TINFER_INLINE void plain_sums(const PackedKBlock<Arch, Class>& k_block, const MicroTileTokens<Arch, Class, T>& tokens,
                              MicroTile<i32v<Arch>, T>& super) noexcept {
    const i32v<Arch> ones[2] = {i32v<Arch>(0x00010001), i32v<Arch>(0x00010001)};
    init_sums(tokens, 0, super);
    for (int word = 0; word < 64; word += 8)
        dot_words<Arch, Class::kPairSums, 8>(k_block.codes + word, tokens.codes, 4 * word, ones, super);
}

/// S of one super-block, the integer scales included, for every row and token of the micro-tile, where sums of two
/// sub-blocks make a pair (SumPairs).
template <class Arch, class Class, int T>
TINFER_INLINE void narrow_sums(const PackedKBlock<Arch, Class>& k_block, const MicroTileTokens<Arch, Class, T>& tokens,
                               ReadAhead* reader, MicroTile<i32v<Arch>, T>& super) noexcept {
    constexpr int kWords = 64 / Class::kSubs, kUp = 16 - Class::kPreShift;
    const i32v<Arch> carry_guard(Class::kCarryGuard), acc_init(Class::kPreShift == 0 ? 0 : Class::kCarryGuard >> kUp);
    if constexpr (Class::kPanelAccInit)
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
            for (int v = 0; v < 2; ++v) super.v[t][v] = load_i32<Arch>(k_block.acc_init + v * Arch::kLanes);
    for (int j = 0; j < Class::kSubs; j += 2) {
        for (int i = 0; reader != nullptr && i < 2 && j % (Class::kSubs > 8 ? 4 : 2) == 0; ++i) reader->read_share();
        const i32v<Arch> scale[2] = {load_i32<Arch>(k_block.scale[j / 2]),
                                     load_i32<Arch>(k_block.scale[j / 2] + Arch::kLanes)};
        MicroTile<i32v<Arch>, T> pair;
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
            pair.v[t][0] = pair.v[t][1] = Class::kBias != 0 ? bcast4<Arch>(&tokens.acc_init[t][j + 1]) : acc_init;
        dot_words<Arch, Class::kPairSums, kWords>(k_block.codes + kWords * (j + 1), tokens.codes, 4 * kWords * (j + 1),
                                                  scale, pair);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
            for (int v = 0; v < 2; ++v) {
                pair.v[t][v] = pair.v[t][v] << kUp;
                if constexpr (Class::kBias != 0) pair.v[t][v] = pair.v[t][v] + bcast4<Arch>(&tokens.acc_init[t][j]);
                else if constexpr (Class::kPreShift == 0) pair.v[t][v] = pair.v[t][v] + carry_guard;
            }
        dot_words<Arch, Class::kPairSums, kWords>(k_block.codes + kWords * j, tokens.codes, 4 * kWords * j, scale,
                                                  pair);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
            for (int v = 0; v < 2; ++v)
                super.v[t][v] = dot2(super.v[t][v], Class::kPanelAccInit ? pair.v[t][v] : pair.v[t][v] ^ carry_guard,
                                     scale[v], Arch{});
    }
}

/// The same where a sum of a sub-block may be wider.
template <class Arch, class Class, int T>
TINFER_INLINE void wide_sums(const PackedKBlock<Arch, Class>& k_block, const MicroTileTokens<Arch, Class, T>& tokens,
                             ReadAhead* reader, MicroTile<i32v<Arch>, T>& super) noexcept {
    constexpr int kSubs = Class::kSubs, kWords = 64 / kSubs;
    for (int j = 0; j < kSubs; ++j) {
        if (reader != nullptr && j % (kSubs > 8 ? 2 : 1) == 0) reader->read_share();
        const auto* scales = k_block.scale[Arch::kHasDot4 ? j / 2 : j];
        const i32v<Arch> scale[2] = {load_i32<Arch>(scales), load_i32<Arch>(scales + Arch::kLanes)};
        const auto* codes = k_block.codes + kWords * j;
        if constexpr (Arch::kHasDot4) {
            MicroTile<i32v<Arch>, T> sub;
            init_sums(tokens, j, sub);
            dot_words<Arch, Class::kPairSums, kWords>(codes, tokens.codes, 4 * kWords * j, scale, sub);
            const i32v<Arch> factor[2] = {scale_of_pair<Arch>(scale[0], j), scale_of_pair<Arch>(scale[1], j)};
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t)
                for (int v = 0; v < 2; ++v) {
                    const i32v<Arch> sum =
                        j % 2 == 1 && Class::kPreShift != 0 ? sub.v[t][v] >> Class::kPreShift : sub.v[t][v];
                    super.v[t][v] = super.v[t][v] + sum * factor[v];
                }
        } else {
            dot_words<Arch, Class::kPairSums, kWords>(codes, tokens.codes, 4 * kWords * j, scale, super);
        }
    }
    if constexpr (!Arch::kHasDot4 && Class::kBias != 0) subtract_bias(k_block, tokens, super);
}

/// The same where the bias of codes is taken off before their products are added, in sixteen bits.
template <class Arch, class Class, int T>
TINFER_INLINE void centred_sums(const PackedKBlock<Arch, Class>& k_block, const MicroTileTokens<Arch, Class, T>& tokens,
                                ReadAhead* reader, MicroTile<i32v<Arch>, T>& super) noexcept {
    for (int j = 0; j < Class::kSubs; ++j) {
        if (reader != nullptr && j % 2 == 0) reader->read_share();
        MicroTile<i32v<Arch>, T> pairs;
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
            pairs.v[t][0] = pairs.v[t][1] = bcast4<Arch>(&tokens.acc_init[t][8 * (j % 2) + j / 2]);
#pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) {
            const int word = 4 * j + g;
            const i32v<Arch> w0 = load_i32<Arch>(k_block.codes[word][0]),
                             w1 = load_i32<Arch>(k_block.codes[word][Arch::kLanes]);
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
                const i32v<Arch> a = once(bcast4<Arch>(tokens.codes[t] + 4 * word), Arch{});
                pairs.v[t][0] = add_pairs(pairs.v[t][0], dot_bytes(w0, a, Arch{}), Arch{});
                pairs.v[t][1] = add_pairs(pairs.v[t][1], dot_bytes(w1, a, Arch{}), Arch{});
            }
        }
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
            for (int v = 0; v < 2; ++v)
                super.v[t][v] =
                    dot2(super.v[t][v], pairs.v[t][v], load_i32<Arch>(k_block.scale[j] + v * Arch::kLanes), Arch{});
    }
}

/// The same of wide codes, which are multiplied by their scales.
template <class Arch, class Class, int T>
TINFER_INLINE void wide_code_sums(const PackedKBlock<Arch, Class>& k_block,
                                  const MicroTileTokens<Arch, Class, T>& tokens, ReadAhead* reader,
                                  MicroTile<i32v<Arch>, T>& super) noexcept {
    for (int word = 0; word < kKBlock / 4; word += 8) {
        if (reader != nullptr) reader->read_share();
        dot_wide_words(k_block, tokens, word, super);
    }
}

/// S of one super-block, in the way that its class of formats and these tokens allow.
template <class Arch, class Class, int T, bool Narrow>
TINFER_INLINE void super_block_sums(const PackedKBlock<Arch, Class>& k_block,
                                    const MicroTileTokens<Arch, Class, T>& tokens, ReadAhead* reader,
                                    MicroTile<i32v<Arch>, T>& super) noexcept {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) super.v[t][0] = super.v[t][1] = i32v<Arch>(0);
    if constexpr (Class::kWide) wide_code_sums(k_block, tokens, reader, super);
    else if constexpr (Class::kSubs == 1) plain_sums(k_block, tokens, super);
    else if constexpr (Class::kCentred) centred_sums(k_block, tokens, reader, super);
    else if constexpr (Narrow) narrow_sums(k_block, tokens, reader, super);
    else wide_sums(k_block, tokens, reader, super);
}

/// Where the sums of a micro-tile begin.
template <class Arch>
struct MicroTileZeros {
    alignas(64) static constexpr float kOf[8 * kPanelRows<Arch>] = {};
};

/// One k-block of super-blocks: acc[t][row] continues `from` there by one or two fused steps. Minimums come first: that
/// takes the time in which the micro-tile before it ends.
template <class Arch, class Class, int T, bool Narrow>
TINFER_INLINE void micro_tile_super_block(const PackedKBlock<Arch, Class>& k_block,
                                          const MicroTileTokens<Arch, Class, T>& tokens, ReadAhead* reader,
                                          const float* from, float* acc) noexcept {
    [[maybe_unused]] alignas(64) float mins[T][kPanelRows<Arch>];
    if constexpr (Class::kHasMin) {
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) {
            MicroTile<i32v<Arch>, T> n;
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) n.v[t][0] = i32v<Arch>(0);
#pragma GCC unroll 8
            for (int j = 0; j < Class::kSubs / 2; ++j) {
                const i32v<Arch> min = load_i32<Arch>(k_block.min[j] + v * Arch::kLanes);
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t)
                    n.v[t][0] = dot2(n.v[t][0], min, bcast4<Arch>(tokens.sums(t) + 2 * j), Arch{});
            }
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) as_float(n.v[t][0], Arch{}).store_unaligned(mins[t] + v * Arch::kLanes);
        }
        asm("" : "+m"(mins));  // to stay in memory, not in registers that the sums need
    }
    MicroTile<i32v<Arch>, T> super;
    super_block_sums<Arch, Class, T, Narrow>(k_block, tokens, reader, super);
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
        const f32v<Arch> d = load_f32<Arch>(k_block.d + v * Arch::kLanes);
        const f32v<Arch> dmin = Class::kHasMin ? load_f32<Arch>(k_block.dmin + v * Arch::kLanes) : d;
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
            float* out = acc + t * kPanelRows<Arch> + v * Arch::kLanes;
            const f32v<Arch> d_x(*tokens.d(t));
            f32v<Arch> sum = fma(d * d_x, as_float(super.v[t][v], Arch{}),
                                 load_f32<Arch>(from + t * kPanelRows<Arch> + v * Arch::kLanes), Arch{});
            if constexpr (Class::kHasMin)
                sum = fnma(dmin * d_x, load_f32<Arch>(mins[t] + v * Arch::kLanes), sum, Arch{});
            sum.store_unaligned(out);
        }
    }
}

/// One k-block of n_units blocks of 32.
template <class Arch, class Class, int T>
TINFER_INLINE void micro_tile_blocks(const PackedKBlock<Arch, Class>& k_block,
                                     const MicroTileTokens<Arch, Class, T>& tokens, int n_units, ReadAhead* reader,
                                     const float* from, float* acc) noexcept {
    constexpr int kSteps = Class::kSteps, kWords = 8 / kSteps;
    MicroTile<f32v<Arch>, T> sum;
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
        for (int v = 0; v < 2; ++v) sum.v[t][v] = load_f32<Arch>(from + t * kPanelRows<Arch> + v * Arch::kLanes);
    const i32v<Arch> ones[2] = {i32v<Arch>(0x00010001), i32v<Arch>(0x00010001)};
    for (int u = 0; u < n_units; ++u) {
        if (reader != nullptr) reader->read_share();
        for (int step = 0; step < kSteps; ++step) {
            MicroTile<i32v<Arch>, T> dots;
            init_sums(tokens, u * kSteps + step, dots);
            const int word = 8 * u + kWords * step;
            if constexpr (Class::kWide) dot_wide_words(k_block, tokens, word, dots);
            else dot_words<Arch, Class::kPairSums, kWords>(k_block.codes + word, tokens.codes, 4 * word, ones, dots);
            const f32v<Arch> d[2] = {load_f32<Arch>(k_block.d[u][step]),
                                     load_f32<Arch>(k_block.d[u][step] + Arch::kLanes)};
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
                    sum.v[t][v] = fma(load_f32<Arch>(k_block.m[u] + v * Arch::kLanes), f32v<Arch>(tokens.s(t)[u]),
                                      sum.v[t][v], Arch{});
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
        for (int v = 0; v < 2; ++v) sum.v[t][v].store_unaligned(acc + t * kPanelRows<Arch> + v * Arch::kLanes);
}

/// T tokens against n_panels k-blocks, one behind the other: acc[panel][t][row], from 0 on where it `begins`.
template <class Arch, class Class, int T, bool Narrow>
[[gnu::noinline]] void multiply_micro_tile(const PackedKBlock<Arch, Class>* k_blocks, int n_panels,
                                           MicroTileTokens<Arch, Class, T>& tokens, int n_units, ReadAhead* reader,
                                           bool begins, float* acc) noexcept {
    if constexpr (MicroTileTokens<Arch, Class, T>::kHasAccInit) tokens.template set_acc_init<Narrow>(n_units);
    if constexpr (Class::kWide) tokens.widen(n_units);
    for (int panel = 0; panel < n_panels; ++panel, acc += T * kPanelRows<Arch>) {
        const float* from = begins ? MicroTileZeros<Arch>::kOf : acc;
        if constexpr (Class::kUnit != 256)
            micro_tile_blocks<Arch, Class, T>(k_blocks[panel], tokens, n_units, reader, from, acc);
        else micro_tile_super_block<Arch, Class, T, Narrow>(k_blocks[panel], tokens, reader, from, acc);
    }
}

/// The same for the first n columns, 1 ≤ n ≤ kMicroTileTokens, of n_units blocks of 32.
template <class Arch, class Class, int T = kMicroTileTokens<Arch, Class>>
inline void run_microkernel(const PackedKBlock<Arch, Class>* k_blocks, int n_panels,
                            const ActivationKBlock<Arch, Class>& at, const Column* columns, int n, int n_units,
                            bool begins, float* acc) noexcept {
    static_assert(T <= 8);
    if constexpr (T > 1)
        if (n < T) return run_microkernel<Arch, Class, T - 1>(k_blocks, n_panels, at, columns, n, n_units, begins, acc);
    MicroTileTokens<Arch, Class, T> tokens(at, columns);
    if constexpr (Class::kMayBeNarrow)
        if (Class::kAlwaysNarrow || tokens.are_narrow(at.max_partial_sum - at.codes))
            return multiply_micro_tile<Arch, Class, T, true>(k_blocks, n_panels, tokens, n_units, at.reader, begins,
                                                             acc);
    if constexpr (!Class::kAlwaysNarrow)
        multiply_micro_tile<Arch, Class, T, false>(k_blocks, n_panels, tokens, n_units, at.reader, begins, acc);
}

}  // namespace tinfer::kernels
