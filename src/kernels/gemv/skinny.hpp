// SPDX-License-Identifier: MIT
// Products of a few tokens straight from rows of the file, for registers of any number of lanes: as many rows are
// decoded together, transposed so that lanes are rows, and their codes meet the tokens while they are in registers.
// Products of bytes add up in pairs of sixteen bits, as many as surely fit (Int8Encoding), and meet a scale or a one on
// their way to 32 bits; with a dot4 they get there at once. Nothing need be horizontally reduced, and minimums and
// float steps have rows in lanes. A format gives its decoder (kernels/pack/transposed_decode_k.hpp) and nothing else.
// It serves AVX2, AVX-VNNI and AVX-512 without VNNI with eight lanes, and NEON with four.
#pragma once

#include "kernels/gemv/row_streams.hpp"
#include "kernels/quants/activation_q8.hpp"

#if defined(__AVX2__) || defined(__aarch64__)

namespace tinfer::kernels {

template <class Arch>
using LaneRows = RowGroup<Arch::kLanes>;
template <int N>
TINFER_INLINE RowBlocks<N> blocks_of(const RowGroup<N>& rows) noexcept {
    RowBlocks<N> blocks;
    std::memcpy(blocks.row, rows.row, sizeof(blocks.row));
    return blocks;
}

/// Sums of byte products of a row in each lane and T tokens.
template <class Arch, class Format, int T>
struct LaneSums {
    static constexpr int kPairSums = Int8Encoding<Arch, Format>::kPairSums;
    const std::int8_t* q[T];      ///< codes of the tokens at a k-block
    i32v<Arch> pairs[T], sum[T];  ///< pairs: or, with a dot4, sums that still lack their scale

    /// Word i of n words that share a scale: sum[t] grows by its products when as many as fit are together.
    template <int n>
    TINFER_INLINE void add(int i, int word, const i32v<Arch>& codes, const i32v<Arch>& scale) noexcept {
        if constexpr (Arch::kHasDot4) add_dots<n>(i, word, codes, scale);
        else add_pairs_of_products<n>(i, word, codes, scale);
    }

private:
    template <int n>
    TINFER_INLINE void add_pairs_of_products(int i, int word, const i32v<Arch>& codes,
                                             const i32v<Arch>& scale) noexcept {
        constexpr int kTogether = kPairSums == 0 ? 1 : kPairSums < n ? kPairSums : n;
#    pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
            const i32v<Arch> a = bcast4<Arch>(q[t] + 4 * word);
            const i32v<Arch> pair = kPairSums == 0 ? dot_signed_bytes(codes, a, Arch{}) : dot_bytes(codes, a, Arch{});
            pairs[t] = i % kTogether == 0 ? pair : add_pairs(pairs[t], pair, Arch{});
            if (i % kTogether == kTogether - 1) sum[t] = dot2(sum[t], pairs[t], scale, Arch{});
        }
    }
    template <int n>
    TINFER_INLINE void add_dots(int i, int word, const i32v<Arch>& codes, const i32v<Arch>& scale) noexcept {
#    pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
            if constexpr (Format::kUnit == 32) {
                sum[t] = dot4_word(sum[t], codes, q[t], word, Arch{});
            } else {
                pairs[t] = dot4_word(i == 0 ? i32v<Arch>(0) : pairs[t], codes, q[t], word, Arch{});
                if (i == n - 1) sum[t] = sum[t] + pairs[t] * scale;
            }
        }
    }
};

/// S and N of a super-block: what decode_rows tells of.
template <class Arch, class Format, int T>
struct LaneSuperSums : LaneSums<Arch, Format, T> {
    static constexpr int kSubs = 256 / Format::kScaleElems, kWords = 64 / kSubs,
                         kBias = Int8Encoding<Arch, Format>::kBias;
    static constexpr bool kTakesPreShift = false;
    const PrefetchAhead<LaneRows<Arch>>& ahead;
    const std::int16_t* sums[T];  ///< of codes of tokens, per sub-block
    i32v<Arch> pair_scales, scale, of_bias[T], of_mins[T];
    f32v<Arch> d_w, dmin_w;

    TINFER_INLINE LaneSuperSums(const PrefetchAhead<LaneRows<Arch>>& prefetches, const Activations* x,
                                std::int64_t block) noexcept
        : ahead(prefetches) {
#    pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
            this->q[t] = x[t].q + 256 * block;
            sums[t] = kSubs == 16 ? x[t].sum16 + 16 * block : x[t].sum32 + 8 * block;
            this->sum[t] = of_bias[t] = of_mins[t] = i32v<Arch>(0);
        }
    }
    TINFER_INLINE void d(const f32v<Arch>& d) noexcept { d_w = d; }
    TINFER_INLINE void dmin(const f32v<Arch>& dmin) noexcept { dmin_w = dmin; }
    TINFER_INLINE void mins(int pair, const i32v<Arch>& mins) noexcept { add_sums(of_mins, mins, pair); }
    TINFER_INLINE void scales(int pair, const i32v<Arch>& scales) noexcept {
        pair_scales = scales;
        if constexpr (kBias != 0) add_sums(of_bias, scales, pair);
    }
    TINFER_INLINE void begin(int j) noexcept {
        if constexpr (Arch::kHasDot4) scale = scale_of_pair<Arch>(pair_scales, j);
        else scale = int16_of_pair<Arch::kLanes>(pair_scales, j % 2);
    }
    TINFER_INLINE void codes(int j, int word, const i32v<Arch>& c) noexcept {
        this->template add<kWords>(word - kWords * j, word, c, scale);
    }
    TINFER_INLINE void end(int j) noexcept { ahead.template prefetch<kKBlockBytes<Format>, kSubs>(j); }

private:
    /// to[t] + Σ factor · sum of codes over a pair of sub-blocks.
    TINFER_INLINE void add_sums(i32v<Arch> (&to)[T], const i32v<Arch>& factors, int pair) noexcept {
#    pragma GCC unroll 8
        for (int t = 0; t < T; ++t) to[t] = dot2(to[t], factors, bcast4<Arch>(sums[t] + 2 * pair), Arch{});
    }
};

/// Super-block i of a row in each lane: acc[t][row] continues by its float steps.
template <class Arch, class Format, int T>
TINFER_INLINE void multiply_super_blocks_in_lanes(const RowBlocks<Arch::kLanes>& blocks,
                                                  const PrefetchAhead<LaneRows<Arch>>& ahead, std::int64_t i,
                                                  const Activations* x, float (*acc)[Arch::kLanes]) noexcept {
    using Sums = LaneSuperSums<Arch, Format, T>;
    Sums sums(ahead, x, i);
    decode_rows<Arch>(Format{}, blocks, 8, sums);
#    pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
        const f32v<Arch> d_x(x[t].d[i]);
        if constexpr (Sums::kBias != 0) sums.sum[t] = sums.sum[t] - sums.of_bias[t] * i32v<Arch>(Sums::kBias);
        f32v<Arch> out = fma(sums.d_w * d_x, as_float(sums.sum[t], Arch{}), load_f32<Arch>(acc[t]), Arch{});
        if constexpr (Format::kHasMin) out = fnma(sums.dmin_w * d_x, as_float(sums.of_mins[t], Arch{}), out, Arch{});
        out.store_unaligned(acc[t]);
    }
}

/// Blocks of 32 and their float steps.
template <class Arch, class Format, int T>
struct LaneBlockSums : LaneSums<Arch, Format, T> {
    static constexpr int kBias = Int8Encoding<Arch, Format>::kBias;
    static constexpr bool kTakesPreShift = false;
    const PrefetchAhead<LaneRows<Arch>>& ahead;
    const Activations* x;
    std::int64_t first;  ///< number of the k-block's first block
    f32v<Arch> acc[T], d_w, m_w;

    TINFER_INLINE LaneBlockSums(const PrefetchAhead<LaneRows<Arch>>& prefetches, const Activations* tokens,
                                std::int64_t first_block) noexcept
        : ahead(prefetches), x(tokens), first(first_block) {
#    pragma GCC unroll 8
        for (int t = 0; t < T; ++t) this->q[t] = x[t].q + 32 * first;
    }
    TINFER_INLINE void d(int, const f32v<Arch>& d) noexcept { d_w = d; }
    TINFER_INLINE void m(int, const f32v<Arch>& m) noexcept { m_w = m; }
    TINFER_INLINE void begin(int u) noexcept {
#    pragma GCC unroll 8
        for (int t = 0; t < T; ++t) this->sum[t] = i32v<Arch>(kBias == 0 ? 0 : -kBias * x[t].sum[first + u]);
    }
    TINFER_INLINE void codes(int u, int word, const i32v<Arch>& c) noexcept {
        this->template add<8>(word - 8 * u, word, c, i32v<Arch>(0x00010001));
    }
    TINFER_INLINE void end(int u) noexcept {
        ahead.template prefetch<kKBlockBytes<Format>, kKBlock / 32>(u);
#    pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
            acc[t] = fma(d_w * f32v<Arch>(x[t].d[first + u]), as_float(this->sum[t], Arch{}), acc[t], Arch{});
            if constexpr (Format::kHasMin) acc[t] = fma(m_w, f32v<Arch>(x[t].s[first + u]), acc[t], Arch{});
        }
    }
};

/// n_units blocks of 32 of a row in each lane, from block number `first` on.
template <class Arch, class Format, int T>
TINFER_INLINE void multiply_blocks_in_lanes(const RowBlocks<Arch::kLanes>& blocks,
                                            const PrefetchAhead<LaneRows<Arch>>& ahead, std::int64_t first, int n_units,
                                            const Activations* x, float (*acc)[Arch::kLanes]) noexcept {
    LaneBlockSums<Arch, Format, T> sums(ahead, x, first);
#    pragma GCC unroll 8
    for (int t = 0; t < T; ++t) sums.acc[t] = load_f32<Arch>(acc[t]);
    decode_rows<Arch>(Format{}, blocks, n_units, sums);
#    pragma GCC unroll 8
    for (int t = 0; t < T; ++t) sums.acc[t].store_unaligned(acc[t]);
}

/// Results of a row of k values in each lane against T tokens.
template <class Arch, class Format, int T>
[[gnu::noinline]] void multiply_rows_in_lanes(const LaneRows<Arch>& rows, std::int64_t k, const Activations* x,
                                              float (*results)[Arch::kLanes]) noexcept {
    RowBlocks<Arch::kLanes> blocks = blocks_of(rows);
    for (int t = 0; t < T; ++t) f32v<Arch>(0.0f).store_unaligned(results[t]);
    for (std::int64_t s = 0; s * kKBlock < k; ++s, blocks.advance(kKBlockBytes<Format>)) {
        const PrefetchAhead<LaneRows<Arch>> ahead{&rows, s * kKBlockBytes<Format>};
        if constexpr (Format::kUnit == 256) {
            multiply_super_blocks_in_lanes<Arch, Format, T>(blocks, ahead, s, x, results);
        } else {
            const int n_units = static_cast<int>(std::min<std::int64_t>(k - s * kKBlock, kKBlock) / 32);
#    if defined(__aarch64__)  // the loop over eight is unrolled
            if (n_units == 8) {
                multiply_blocks_in_lanes<Arch, Format, T>(blocks, ahead, 8 * s, 8, x, results);
                continue;
            }
            for (int u = 0; u < n_units; ++u, blocks.advance(Format::kBlockBytes))
                multiply_blocks_in_lanes<Arch, Format, T>(blocks, {nullptr, 0}, 8 * s + u, 1, x, results);
#    else
            multiply_blocks_in_lanes<Arch, Format, T>(blocks, ahead, 8 * s, n_units, x, results);
#    endif
        }
    }
}

}  // namespace tinfer::kernels

#endif
