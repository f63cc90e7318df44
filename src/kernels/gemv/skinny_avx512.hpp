// SPDX-License-Identifier: MIT
// Products of several tokens straight from rows of the file, for AVX-512 with VNNI: sixteen rows are decoded together,
// transposed so that lanes are rows, and their codes meet the tokens while they are in registers. Nothing is stored
// on the way, so a pass costs little more than its dot products: up to eight or twelve tokens share one
// (skinny_avx512_pass), more of them take two, of which the second finds the rows in L1.
#pragma once

#include "kernels/gemv/common_avx512.hpp"

#if defined(__AVX512VNNI__)

namespace tinfer::kernels {

/// Up to so many tokens have registers of their own for both sums of a pair. Third bits take some, too.
template <class Format>
inline constexpr int kPairedTokens = Format::kType == DType::q3_k ? 3 : 4;
/// Whether a pass of T tokens loads by masks (RowBlocks): transposing is a large part of it.
template <class Format, int T>
inline constexpr bool kLoadsMasked = Format::kUnit == 256 && T <= (Format::kType == DType::q4_k ? 8
                                                                   : Format::kScaleElems == 32  ? 4
                                                                                                : 2);

/// acc + the products of unsigned bytes of w with four signed ones at p, which go to every lane: one instruction, where
/// GCC would take a register more.
static TINFER_INLINE __m512i dot_each(__m512i acc, __m512i w, const void* p) {
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*static_cast<const std::int8_t(*)[4]>(p)));
    return acc;
}

/// T activation rows at one k-block.
template <int T>
struct TransposedTokens {
    const std::int8_t* q[T];
    PrefetchAhead<SixteenRows> ahead;
    alignas(64) std::int32_t acc_init[T][16];  ///< where the sum of a sub-block starts, of codes with a bias
};

/// S of a super-block of sixteen rows and T tokens: what decode_rows tells of. The sum of a sub-block meets its scale
/// in 32 bits. Where Paired, sums fit sixteen bits: those of two sub-blocks become one register, and one instruction
/// multiplies both with their scales. Of few tokens each has a register of its own before that; of more the first one
/// adds below the second, which was shifted up, from kCarryGuard on, so that no borrow reaches the upper one. What the
/// guard adds is taken off as in panels (SumPairs): by an exclusive or, or once for all tokens.
template <class Arch, class Format, int T, bool Paired>
struct TransposedSuperSums {
    using Class = panel_class<Arch, Format>;
    static constexpr int kSubs = Class::kSubs;
    static constexpr bool kTakesPreShift = Paired, kBiased = Class::kBias != 0,
                          kApart = Paired && T <= kPairedTokens<Format>, kBelow = Paired && !kApart;
    static constexpr int kUp = 16 - kPreShiftBits<Format>, kCarryGuard = Class::kCarryGuard;
    static constexpr bool kHasAccInit = kBelow && Class::kPanelAccInit,
                          kAccInitAbove = kBelow && kPreShiftBits<Format> != 0;
    static_assert(!kAccInitAbove || (kHasAccInit && !kBiased));  // the guard comes with the sum above it

    const TransposedTokens<T>& tokens;
    __m512i first[T], second[T], super[T], pair_scales, acc_init = _mm512_setzero_si512();
    struct {
        __m512i mins[(kSubs + 1) / 2];
        __m512 d, dmin;
    } kept;

    TINFER_INLINE explicit TransposedSuperSums(const TransposedTokens<T>& k_block) noexcept : tokens(k_block) {
#    pragma GCC unroll 12
        for (int t = 0; t < T; ++t) super[t] = _mm512_setzero_si512();
    }
    TINFER_INLINE void d(__m512 d) noexcept { kept.d = d; }
    TINFER_INLINE void dmin(__m512 dmin) noexcept { kept.dmin = dmin; }
    TINFER_INLINE void mins(int pair, __m512i mins) noexcept { kept.mins[pair] = mins; }
    TINFER_INLINE void scales(int, __m512i scales) noexcept {
        pair_scales = scales;
        if constexpr (kHasAccInit)
            acc_init = _mm512_dpwssd_epi32(acc_init, scales, _mm512_set1_epi32(-kCarryGuard & 0xFFFF));
    }

    /// The sum that the codes of sub-block j add to.
    TINFER_INLINE __m512i& sum(int j, int t) noexcept { return kApart && j % 2 == 1 ? second[t] : first[t]; }
    TINFER_INLINE void begin(int j) noexcept {
#    pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
            if (kBelow && j % 2 == 0) {
                first[t] = _mm512_slli_epi32(first[t], kUp);
                if (!kAccInitAbove)
                    first[t] =
                        _mm512_add_epi32(first[t], _mm512_set1_epi32(kBiased ? tokens.acc_init[t][j] : kCarryGuard));
            } else {
                sum(j, t) = _mm512_set1_epi32(kBiased ? tokens.acc_init[t][j] : kAccInitAbove ? kCarryGuard >> kUp : 0);
            }
        }
    }
    TINFER_INLINE void codes(int j, int word, __m512i c) noexcept {
#    pragma GCC unroll 12
        for (int t = 0; t < T; ++t) sum(j, t) = dot_each(sum(j, t), c, tokens.q[t] + 4 * word);
    }
    TINFER_INLINE void end(int j) noexcept {
        tokens.ahead.template prefetch<kKBlockBytes<Format>, kSubs>(j);
        const __m512i scale = _mm512_srai_epi32(j % 2 == 0 ? _mm512_slli_epi32(pair_scales, 16) : pair_scales, 16);
#    pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
            if constexpr (!Paired) {
                super[t] = _mm512_add_epi32(super[t], _mm512_mullo_epi32(sum(j, t), scale));
            } else if (j % 2 == 0) {  // the second sub-block came before
                const __m512i pair =
                    kHasAccInit ? first[t]
                    : kBelow    ? _mm512_xor_si512(first[t], _mm512_set1_epi32(kCarryGuard))
                                : _mm512_mask_mov_epi16(first[t], 0xAAAAAAAA, _mm512_slli_epi32(second[t], kUp));
                super[t] = _mm512_dpwssd_epi32(super[t], pair, pair_scales);
            }
        }
    }
    [[nodiscard]] TINFER_INLINE __m512i sum_of_all(int t) const noexcept {
        return kHasAccInit ? _mm512_add_epi32(super[t], acc_init) : super[t];
    }
};

/// Block i of sixteen rows: acc[t][row] continues by its float steps.
template <class Arch, class Format, int T, bool Paired>
[[gnu::noinline]] void multiply_transposed_super_block(const RowBlocks<16, kLoadsMasked<Format, T>>& blocks,
                                                       const PrefetchAhead<SixteenRows>& ahead, std::int64_t i,
                                                       const Activations* x, float (*acc)[16]) noexcept {
    using Sums = TransposedSuperSums<Arch, Format, T, Paired>;
    constexpr int kSubs = Sums::kSubs;
    const auto sums_of = [&](int t) { return kSubs == 16 ? x[t].sum16 + 16 * i : x[t].sum32 + 8 * i; };
    TransposedTokens<T> tokens;
    tokens.ahead = ahead;
#    pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
        tokens.q[t] = x[t].q + 256 * i;
        for (int j = 0; Sums::kBiased && j < kSubs; ++j)
            tokens.acc_init[t][j] =
                (Sums::kBelow && j % 2 == 0 ? Sums::kCarryGuard : 0) - Sums::Class::kBias * sums_of(t)[j];
    }
    Sums sums(tokens);
    decode_rows<Arch>(Format{}, blocks, 8, sums);
#    pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
        const __m512 d_x = _mm512_set1_ps(x[t].d[i]);
        __m512 out = _mm512_fmadd_ps(_mm512_mul_ps(sums.kept.d, d_x), _mm512_cvtepi32_ps(sums.sum_of_all(t)),
                                     _mm512_load_ps(acc[t]));
        if constexpr (Format::kHasMin) {
            __m512i n = _mm512_setzero_si512();
#    pragma GCC unroll 12
            for (int pair = 0; pair < kSubs / 2; ++pair)
                n = _mm512_dpwssd_epi32(n, sums.kept.mins[pair], bcast4<Arch>(sums_of(t) + 2 * pair));
            out = _mm512_fnmadd_ps(_mm512_mul_ps(sums.kept.dmin, d_x), _mm512_cvtepi32_ps(n), out);
        }
        _mm512_store_ps(acc[t], out);
    }
}

/// Dots of blocks of 32, and their float steps.
template <class Arch, class Format, int T>
struct TransposedBlockSums {
    static constexpr int kBias = Int8Encoding<Arch, Format>::kBias;
    static constexpr bool kTakesPreShift = false;
    const TransposedTokens<T>& tokens;
    const Activations* x;
    std::int64_t first;  ///< number of the k-block's first block
    __m512 acc[T], d_w, m_w;
    __m512i sum[2][T];
    static constexpr int kSums = T <= 3 ? 2 : 1;  ///< of one dot, where there are few to wait for

    TINFER_INLINE void d(int, __m512 d) noexcept { d_w = d; }
    TINFER_INLINE void m(int, __m512 m) noexcept { m_w = m; }
    TINFER_INLINE void begin(int u) noexcept {
#    pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
            sum[0][t] = _mm512_set1_epi32(kBias != 0 ? tokens.acc_init[t][u] : 0);
            sum[1][t] = _mm512_setzero_si512();
        }
    }
    TINFER_INLINE void codes(int u, int word, __m512i c) noexcept {
        __m512i(&to)[T] = sum[(word - 8 * u) % kSums];
#    pragma GCC unroll 12
        for (int t = 0; t < T; ++t) to[t] = dot_each(to[t], c, tokens.q[t] + 4 * word);
    }
    TINFER_INLINE void end(int u) noexcept {
        tokens.ahead.template prefetch<kKBlockBytes<Format>, kKBlock / 32>(u);
#    pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
            const __m512i dot = kSums == 1 ? sum[0][t] : _mm512_add_epi32(sum[0][t], sum[1][t]);
            acc[t] =
                _mm512_fmadd_ps(_mm512_mul_ps(d_w, _mm512_set1_ps(x[t].d[first + u])), _mm512_cvtepi32_ps(dot), acc[t]);
            if constexpr (Format::kHasMin) acc[t] = _mm512_fmadd_ps(m_w, _mm512_set1_ps(x[t].s[first + u]), acc[t]);
        }
    }
};

/// n_units blocks of 32 of sixteen rows, from block number `first` on.
template <class Arch, class Format, int T>
[[gnu::noinline]] void multiply_transposed_blocks(const RowBlocks<16>& blocks, const PrefetchAhead<SixteenRows>& ahead,
                                                  std::int64_t first, int n_units, const Activations* x,
                                                  float (*acc)[16]) noexcept {
    TransposedTokens<T> tokens;
    tokens.ahead = ahead;
    TransposedBlockSums<Arch, Format, T> sums{tokens, x, first, {}, {}, {}, {{}, {}}};
#    pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
        tokens.q[t] = x[t].q + 32 * first;
        sums.acc[t] = _mm512_load_ps(acc[t]);
        for (int u = 0; sums.kBias != 0 && u < 8;
             ++u)  // the row's parts are padded to 8; what lies in the padding may overflow
            tokens.acc_init[t][u] = static_cast<std::int32_t>(0u - static_cast<unsigned>(sums.kBias) *
                                                                       static_cast<unsigned>(x[t].sum[first + u]));
    }
    decode_rows<Arch>(Format{}, blocks, n_units, sums);
#    pragma GCC unroll 12
    for (int t = 0; t < T; ++t) _mm512_store_ps(acc[t], sums.acc[t]);
}

/// Results of sixteen rows of k values against T tokens. What follows the rows is prefetched where `prefetches`.
template <class Arch, class Format, int T>
inline void multiply_transposed_rows(const SixteenRows& rows, std::int64_t k, const Activations* x, bool prefetches,
                                     float (*results)[16]) noexcept {
    using Class = panel_class<Arch, Format>;
    RowBlocks<16, kLoadsMasked<Format, T>> blocks;
    std::memcpy(blocks.row, rows.row, sizeof(blocks.row));
    for (int t = 0; t < T; ++t) _mm512_store_ps(results[t], _mm512_setzero_ps());
    for (std::int64_t s = 0; s * kKBlock < k; ++s, blocks.at += kKBlockBytes<Format>) {
        const PrefetchAhead<SixteenRows> ahead{prefetches ? &rows : nullptr, blocks.at};
        if constexpr (Class::kUnit == 256) {
            bool paired = Class::kAlwaysNarrow;
            if constexpr (kPreShiftBits<Format> != 0) {
                int most = 0;
                for (int t = 0; t < T; ++t) most = std::max<int>(most, x[t].max_partial_sum[2 * s]);
                paired = most <= (T <= kPairedTokens<Format> ? SumPairs<Arch, Format>::kSixteenBits
                                                             : Class::kNarrowMaxPartialSum);
            }
            if constexpr (Class::kAlwaysNarrow || kPreShiftBits<Format> != 0)
                if (paired) multiply_transposed_super_block<Arch, Format, T, true>(blocks, ahead, s, x, results);
            if constexpr (!Class::kAlwaysNarrow)
                if (!paired) multiply_transposed_super_block<Arch, Format, T, false>(blocks, ahead, s, x, results);
        } else {
            const int n_units = static_cast<int>(std::min<std::int64_t>(k - s * kKBlock, kKBlock) / 32);
            multiply_transposed_blocks<Arch, Format, T>(blocks, ahead, 8 * s, n_units, x, results);
        }
    }
}

}  // namespace tinfer::kernels

#endif
