// SPDX-License-Identifier: MIT
// The register tiles of attention: scores of a few queries against four groups of sixteen KV slots, and the weighted
// sum of V rows for a few queries. Each score is one fma chain over the channels and each channel of a result one over
// the positions, so the shape of a tile never changes a bit.
#pragma once

#include <type_traits>

#include "kernels/attention/kv_store.hpp"
#include "kernels/simd/math.hpp"
#include "kernels/simd/prefetch.hpp"
#include "kernels/simd/reduce_avx512.hpp"

namespace tinfer::kernels {

/// Queries of a tile, and the most that are worked straight from the cache, without widening it first.
template <class Arch>
inline constexpr int kTileQueries = 6;
inline constexpr int kDirectQueries = 8;
/// So many of the latter at a time, of float keys and of codes: with 32 registers all.
template <class Arch>
inline constexpr int kDirectTile = Arch::kLanes == 16 ? 8 : 4;
template <class Arch>
inline constexpr int kDirectCodes = Arch::kLanes == 16 ? 8 : 3;
/// Vectors of sixteen beside them: as many accumulators as registers hold, and the whole of a row of V where it may be.
template <class Arch>
constexpr int tile_vectors(int queries) noexcept {
    if (Arch::kLanes == 16) return queries <= 2 ? 8 : queries <= 6 ? 4 : 2;
    return queries <= 3 ? 2 : 1;
}

inline constexpr std::int64_t kScorePitch = 80;  ///< floats between the scores of two rows

/// So many channels or rows of V between two prefetches: the end of a loop of few turns is foreseen, and what comes
/// behind it can be begun.
inline constexpr int kUnrolled = 4;

// ---- Lanes ----------------------------------------------------------------------------------------------------------

// keep: a in the lanes whose bit is set, else b.
#if defined(__x86_64__)
static TINFER_INLINE f32v<avx2> keep(std::uint32_t bits, f32v<avx2> a, f32v<avx2> b, avx2) {
    const __m256i lane_bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane_bit);
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane_bit)));
}
/// The largest lane, where none is NaN.
static TINFER_INLINE float top_lane(f32v<avx2> a, avx2) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
static TINFER_INLINE float top_lane(const f32v<avx2> (&part)[2], avx2) {
    return top_lane(f32v<avx2>(_mm256_max_ps(part[0], part[1])), avx2{});
}
#    if defined(__AVX512DQ__)
static TINFER_INLINE f32v<avx512> keep(std::uint32_t bits, f32v<avx512> a, f32v<avx512> b, avx512) {
    return _mm512_mask_mov_ps(b, static_cast<__mmask16>(bits), a);
}
static TINFER_INLINE float top_lane(const f32v<avx512> (&part)[1], avx512) {
    return top_lane(f32v<avx2>(_mm256_max_ps(_mm512_castps512_ps256(part[0]), _mm512_extractf32x8_ps(part[0], 1))),
                    avx2{});
}
#    endif
#elif defined(__aarch64__)
static TINFER_INLINE f32v<neon> keep(std::uint32_t bits, f32v<neon> a, f32v<neon> b, neon) {
    constexpr std::uint32_t kLaneBits[4] = {1, 2, 4, 8};
    return vbslq_f32(vtstq_u32(vdupq_n_u32(bits), vld1q_u32(kLaneBits)), a, b);
}
static TINFER_INLINE float top_lane(const f32v<neon> (&part)[4], neon) {
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(part[0], part[1]), vmaxq_f32(part[2], part[3])));
}
#endif

template <class Arch>
TINFER_INLINE f32x16<Arch> larger(const f32x16<Arch>& a, const f32x16<Arch>& b) noexcept {
    return f32x16<Arch>::each([&](int i) { return larger(a.part[i], b.part[i], Arch{}); });
}
template <class Arch>
TINFER_INLINE f32x16<Arch> keep(std::uint32_t bits, const f32x16<Arch>& a, const f32x16<Arch>& b) noexcept {
    return f32x16<Arch>::each([&](int i) { return keep(bits >> i * Arch::kLanes, a.part[i], b.part[i], Arch{}); });
}
template <class Arch>
inline float exp_below(float x) noexcept {
    alignas(64) float lanes[16];
    exp_below(f32x16<Arch>(x)).store(lanes);
    return lanes[0];
}

inline constexpr int kFewVectors = 4;  ///< so many are horizontally reduced one by one

/// Of n ≤ 16 vectors the largest lane of each, where none is NaN. Both functions may read all sixteen and fill out[0 …
/// 16).
template <class Arch>
TINFER_INLINE void top_lanes(const float (&v)[16][16], int n, float* out) noexcept {
#if defined(__AVX512BW__)
    if constexpr (Arch::kLanes == 16)
        if (n > kFewVectors) return _mm512_store_ps(out, reduce_sixteen(v, MaxFloats{}));
#endif
    for (int i = 0; i < n; ++i) out[i] = top_lane(f32x16<Arch>::load(v[i]).part, Arch{});
}
/// The sum of each, as `reduce` adds it.
template <class Arch>
TINFER_INLINE void reduce_each(const float (&v)[16][16], int n, float* out) noexcept {
#if defined(__AVX512BW__)
    if constexpr (Arch::kLanes == 16)
        if (n > kFewVectors) return _mm512_store_ps(out, reduce_sixteen(v, AddFloats{}));
#endif
    for (int i = 0; i < n; ++i) out[i] = reduce(f32x16<Arch>::load(v[i]));
}

/// Memory that will be read soon, in two places that go forward together.
struct NextRead {
    /// into_l1: `at` alone, once is enough. twice: each line is prefetched into L2 twice, at `later` first, because a
    /// processor drops some of the requests. in_turn: lines at `at` and at `later` take turns, into L2; each place goes
    /// forward half as fast. A processor whose own prefetcher follows both reads as fast as a plain loop beside the
    /// arithmetic; with one place it does not come beyond the requests that a core can have under way.
    enum class Way : std::uint8_t { into_l1, twice, in_turn };
    const std::byte *at, *later;
    Way way;
    /// Behind so many bytes of this.
    [[nodiscard]] TINFER_INLINE NextRead operator+(std::int64_t bytes) const noexcept {
        const std::int64_t each = way == Way::in_turn ? bytes / 128 * 64 : bytes;
        return {at + each, later + each, way};
    }
    template <std::int64_t Bytes>
    TINFER_INLINE void prefetch(std::int64_t from) const noexcept {
        if (way == Way::in_turn) {
            std::int64_t line = (from + 63) / 64;
            const std::int64_t end = Bytes % 64 == 0 ? line + Bytes / 64 : (from + Bytes + 63) / 64;
#pragma GCC unroll 4
            for (; line < end; ++line) __builtin_prefetch((line % 2 == 0 ? at : later) + line / 2 * 64, 0, 2);
            return;
        }
        prefetch_lines<Bytes>(at + from, way == Way::into_l1);
        if (way == Way::twice) prefetch_lines<Bytes>(later + from, false);
    }
};

// ---- Scores ---------------------------------------------------------------------------------------------------------

/// Queries of a tile: a pointer to each; or, where they meet the cache itself, channel after channel of all of them,
/// so that one pointer is enough and none has to wait in a vector register.
template <bool Packed>
using TileOfQueries = std::conditional_t<Packed, const float*, const float* const*>;
template <int Queries>
TINFER_INLINE const float* query_channel(const float* packed, int r, std::int64_t c) noexcept {
    return packed + c * Queries + r;
}
template <int Queries>
TINFER_INLINE const float* query_channel(const float* const* q, int r, std::int64_t c) noexcept {
    return q[r] + c;
}

/// s[r][16·g + l] = Σ_c q[r][c] · k[g][c][l]. Ahead: k lies in the cache and not in scratch; `next` is what the next
/// tile has in the place of these groups.
template <class Arch, class KvSlot, int Queries, int Groups, bool Ahead>
[[gnu::noinline]] void dot_kv_slots(TileOfQueries<Ahead> q, const std::byte* const* k, [[maybe_unused]] NextRead next,
                                    std::int64_t d, float* const* s) noexcept {
    using Stored = typename KvSlot::Stored;
    f32x16<Arch> sum[Queries][Groups];
#pragma GCC unroll 8
    for (int r = 0; r < Queries; ++r)
#pragma GCC unroll 4
        for (int g = 0; g < Groups; ++g) sum[r][g] = f32x16<Arch>(0.0f);
    constexpr std::int64_t kStep = kGroup * sizeof(Stored);
    const auto add_channel = [&](std::int64_t c) __attribute__((always_inline)) {
        f32x16<Arch> kv_slots[Groups];
#pragma GCC unroll 4
        for (int g = 0; g < Groups; ++g) kv_slots[g] = KvSlot::load(reinterpret_cast<const Stored*>(k[g] + c * kStep));
#pragma GCC unroll 8
        for (int r = 0; r < Queries; ++r) {
            const auto channel = f32x16<Arch>::broadcast(query_channel<Queries>(q, r, c));
#pragma GCC unroll 4
            for (int g = 0; g < Groups; ++g) sum[r][g] = fma(channel, kv_slots[g], sum[r][g]);
        }
    };
    std::int64_t c = 0;
    for (; c + kUnrolled <= d; c += kUnrolled) {
        if constexpr (Ahead) next.prefetch<kUnrolled * kStep * Groups>(c * kStep * Groups);
#pragma GCC unroll 4
        for (int i = 0; i < kUnrolled; ++i) add_channel(c + i);
    }
    for (; c < d; ++c) add_channel(c);
#pragma GCC unroll 8
    for (int r = 0; r < Queries; ++r)
#pragma GCC unroll 4
        for (int g = 0; g < Groups; ++g) sum[r][g].store(s[r] + g * kGroup);
}

/// The same for n ≤ Groups groups.
template <class Arch, class KvSlot, int Queries, int Groups>
inline void dot_some_kv_slots(int n, const float* const* q, const std::byte* const* k, std::int64_t d,
                              float* const* s) noexcept {
    if constexpr (Groups > 1)
        if (n < Groups) return dot_some_kv_slots<Arch, KvSlot, Queries, Groups - 1>(n, q, k, d, s);
    dot_kv_slots<Arch, KvSlot, Queries, Groups, false>(q, k, {}, d, s);
}

/// The same for n ≤ Queries queries and four groups. Not Ahead: only for groups that have a bit in `needed` or lie
/// between such.
template <class Arch, class KvSlot, bool Ahead, int Queries>
inline void dot_groups(int n, TileOfQueries<Ahead> q, const std::byte* const (&k)[4], NextRead next, std::int64_t d,
                       std::uint64_t needed, float* const* s) noexcept {
    if constexpr (Queries > 1)
        if (n < Queries) return dot_groups<Arch, KvSlot, Ahead, Queries - 1>(n, q, k, next, d, needed, s);
    constexpr int kMax = tile_vectors<Arch>(Queries) < 4 ? tile_vectors<Arch>(Queries) : 4;
    constexpr int kGroups = !Ahead || Arch::kLanes < 16 ? kMax
                            : Queries <= 2              ? 1
                                                        : 2;  // from memory, few streams are better
    const std::int64_t group = kGroup * d * std::int64_t{sizeof(typename KvSlot::Stored)};
    for (int g = 0; g < 4; g += kGroups) {
        int first = g, end = g + kGroups;
        if constexpr (!Ahead) {
            while (first < end && (needed >> kGroup * first & 0xFFFF) == 0) ++first;
            while (first < end && (needed >> kGroup * (end - 1) & 0xFFFF) == 0) --end;
            if (first == end) continue;
        }
        float* to[Queries];
        for (int r = 0; r < Queries; ++r) to[r] = s[r] + first * kGroup;
        if constexpr (Ahead) dot_kv_slots<Arch, KvSlot, Queries, kGroups, Ahead>(q, k + g, next + g * group, d, to);
        else dot_some_kv_slots<Arch, KvSlot, Queries, kGroups>(end - first, q, k + first, d, to);
    }
}

// ---- Values ---------------------------------------------------------------------------------------------------------

/// V rows [from, to) of a tile of 64.
struct ValueRows {
    const std::byte* const* row;
    int from, to;
    std::int64_t d;       ///< channels; whole pieces of 16
    const float* scales;  ///< of rows of codes where KvSlot::kScaled, one row's after the other's
    NextRead next;        ///< the rows of the next tile lie here one after the other
};

/// o[r][c] = o[r][c] · factor[r], then fma(p[r][i], v[i][c], o[r][c]) for i ascending: 16·Pieces channels from c on.
/// p[r][i] is p[r · kScorePitch + i].
template <class Arch, class KvSlot, int Queries, int Pieces, bool Ahead>
[[gnu::noinline]] void add_kv_slots(const ValueRows& v, const float* p, const float* factor, std::int64_t c,
                                    float* const* o) noexcept {
    f32x16<Arch> sum[Queries][Pieces];
#pragma GCC unroll 8
    for (int r = 0; r < Queries; ++r)
#pragma GCC unroll 8
        for (int i = 0; i < Pieces; ++i)
            sum[r][i] = f32x16<Arch>::load(o[r] + c + 16 * i) * f32x16<Arch>::broadcast(factor + r);
    const int to = v.to;
    const std::int64_t d = v.d;
    // The next tile's share of these channels, line after line as it lies, scales among them.
    constexpr std::int64_t kBytes = KvSlot::row_bytes(16 * Pieces);
    [[maybe_unused]] const NextRead next = v.next + 64 * KvSlot::row_bytes(c);
    const std::byte* const* row = v.row;
    [[maybe_unused]] const float* const scales = v.scales;
    [[maybe_unused]] const std::int64_t n_scales = d / kKvBlock;
    const auto add_row = [&](int at) __attribute__((always_inline)) {
        f32x16<Arch> kv_slots[Pieces];
        if constexpr (KvSlot::kScaled) {
            typename KvSlot::template Row<Pieces>(row[at], c, scales + at * n_scales).load(kv_slots);
        } else {
            const typename KvSlot::template Row<Pieces> of_row(row[at], c, d);
#pragma GCC unroll 8
            for (int i = 0; i < Pieces; ++i) kv_slots[i] = of_row.load(i);
        }
#pragma GCC unroll 8
        for (int r = 0; r < Queries; ++r) {
            const auto weight = f32x16<Arch>::broadcast(p + r * kScorePitch + at);
#pragma GCC unroll 8
            for (int i = 0; i < Pieces; ++i) sum[r][i] = fma(weight, kv_slots[i], sum[r][i]);
        }
    };
    int at = v.from;
    for (; at + kUnrolled <= to; at += kUnrolled) {
        if constexpr (Ahead) next.prefetch<kUnrolled * kBytes>(at * kBytes);
#pragma GCC unroll 4
        for (int i = 0; i < kUnrolled; ++i) add_row(at + i);
    }
    for (; at < to; ++at) add_row(at);
#pragma GCC unroll 8
    for (int r = 0; r < Queries; ++r)
#pragma GCC unroll 8
        for (int i = 0; i < Pieces; ++i) sum[r][i].store(o[r] + c + 16 * i);
}

template <class Arch, class KvSlot, int Queries, bool Ahead, int Pieces>
inline void add_last_kv_slots(const ValueRows& v, const float* p, const float* factor, std::int64_t c,
                              float* const* o) noexcept {
    if constexpr (Pieces > 1)
        if (v.d - c < 16 * Pieces)
            return add_last_kv_slots<Arch, KvSlot, Queries, Ahead, Pieces - 1>(v, p, factor, c, o);
    add_kv_slots<Arch, KvSlot, Queries, Pieces, Ahead>(v, p, factor, c, o);
}

/// All channels, for n ≤ Queries queries.
template <class Arch, class KvSlot, bool Ahead, int Queries>
inline void add_rows(int n, const ValueRows& v, const float* p, const float* factor, float* const* o) noexcept {
    if constexpr (Queries > 1)
        if (n < Queries) return add_rows<Arch, KvSlot, Ahead, Queries - 1>(n, v, p, factor, o);
    constexpr int kPieces = tile_vectors<Arch>(Queries);
    std::int64_t c = 0;
    for (; c + 16 * kPieces <= v.d; c += 16 * kPieces)
        add_kv_slots<Arch, KvSlot, Queries, kPieces, Ahead>(v, p, factor, c, o);
    if constexpr (kPieces > 1)
        if (c < v.d) add_last_kv_slots<Arch, KvSlot, Queries, Ahead, kPieces - 1>(v, p, factor, c, o);
}

}  // namespace tinfer::kernels
