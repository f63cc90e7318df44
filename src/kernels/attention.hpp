// SPDX-License-Identifier: MIT
// Attention as an online softmax, in the order that reference/attention.cpp states: chunks of 256 ordinals, tiles of
// 64. Lanes are positions while scores are made (K lies interleaved for that) and channels while values are summed. A
// few heads that share their K and V are worked together, so that each cell is loaded and widened once for all of them.
#pragma once

#include "base/math.hpp"
#include "kernels/cache.hpp"

namespace tinfer::kernels {

/// Heads worked together.
template <class Arch>
inline constexpr int kHeads = Arch::kLanes == 16 ? 4 : 2;

/// 64 consecutive ordinals, a multiple of 64 first. Tokens that are not visible have cell −1.
template <class Arch>
struct AttentionTile {
    static constexpr std::int64_t kSize = 64, kChunk = 256;
    std::int64_t number;                      ///< first ordinal / 64
    std::int64_t cell[kSize];
    alignas(64) float visible[kSize];         ///< 1 or 0
};

/// The live tokens of a query's sequence within its visible ordinals, a tile at a time.
template <class Arch>
class TileWalk {
public:
    TileWalk(const KernelCall& call, std::int64_t token) noexcept : table_(call[4]) {
        const auto* span = call[6].template row<const std::int32_t>(token);
        begin_ = span[1];
        end_ = span[2];
        if (span[0] >= 0 && begin_ < end_) {
            const auto* sequence = call[5].template row<const std::int32_t>(span[0]);
            entry_ = sequence[0];
            entries_end_ = sequence[0] + sequence[1];
        }
        more_ = advance();
    }
    /// False behind the last tile. Tiles without a visible token are passed over.
    bool next(AttentionTile<Arch>& tile) noexcept {
        if (!more_) return false;
        tile.number = ordinal_ / tile.kSize;
        for (int i = 0; i < tile.kSize; ++i) tile.cell[i] = -1, tile.visible[i] = 0.0f;
        for (; more_ && ordinal_ / tile.kSize == tile.number; more_ = step()) {
            tile.cell[ordinal_ % tile.kSize] = page_ * kPageSlots + __builtin_ctzll(mask_);
            tile.visible[ordinal_ % tile.kSize] = 1.0f;
        }
        return true;
    }
    /// Whether the tile after this one belongs to another chunk, or there is none.
    [[nodiscard]] bool chunk_ends(const AttentionTile<Arch>& tile) const noexcept {
        return !more_ || ordinal_ / tile.kChunk != tile.number * tile.kSize / tile.kChunk;
    }

private:
    bool step() noexcept {      // past the token that mask_ and ordinal_ stand at
        mask_ &= mask_ - 1;
        ++ordinal_;
        return advance();
    }
    bool advance() noexcept {   // to the next visible token, the present one included
        while (mask_ == 0 || ordinal_ < begin_) {
            if (mask_ != 0) {
                mask_ &= mask_ - 1;
                ++ordinal_;
                continue;
            }
            if (entry_ >= entries_end_) return false;
            const auto* entry = table_.template row<const std::int32_t>(entry_++);
            page_ = entry[0];
            ordinal_ = entry[1];
            const auto low = static_cast<std::uint32_t>(entry[2]), high = static_cast<std::uint32_t>(entry[3]);
            mask_ = low | static_cast<std::uint64_t>(high) << 32;
        }
        return ordinal_ < end_;
    }
    const Operand& table_;
    std::int64_t begin_ = 0, end_ = 0, entry_ = 0, entries_end_ = 0, page_ = 0, ordinal_ = 0;
    std::uint64_t mask_ = 0;
    bool more_ = false;
};

/// Running maximum m, l = Σ exp(s − m), o = Σ exp(s − m)·v. o is padded to whole pieces of 16.
template <class Arch>
struct SoftmaxState {
    float m, l;
    float* o;

    void clear(std::int64_t padded) noexcept {
        m = -__builtin_inff();
        l = 0.0f;
        for (std::int64_t d = 0; d < padded; ++d) o[d] = 0.0f;
    }
    void rescale(float m_new, std::int64_t padded) noexcept {
        if (m_new == m) return;
        const float factor = math::exp(m - m_new);
        l *= factor;
        for (std::int64_t d = 0; d < padded; d += 16) (f32x16<Arch>::load(o + d) * f32x16<Arch>(factor)).store(o + d);
        m = m_new;
    }
    /// The tokens after, o_other null for zeros: l = fma(l', f, l), o = fma(o', f, o) with f = exp(m' − m).
    void merge(float m_other, float l_other, const float* o_other, std::int64_t padded) noexcept {
        rescale(m < m_other ? m_other : m, padded);
        const float factor = math::exp(m_other - m);
        l = __builtin_fmaf(l_other, factor, l);
        for (std::int64_t d = 0; d < padded; d += 16) {
            const auto other = o_other == nullptr ? f32x16<Arch>(0.0f) : f32x16<Arch>::load(o_other + d);
            fma(other, f32x16<Arch>(factor), f32x16<Arch>::load(o + d)).store(o + d);
        }
    }
};

/// The heads of one query that are worked together: they share a KV head.
template <class Arch, class K, class V>
struct HeadGroup {
    static constexpr std::int64_t kTile = AttentionTile<Arch>::kSize;
    const KernelCall& call;
    const float* q[kHeads<Arch>];
    float slope[kHeads<Arch>];      ///< ALiBi, 0 = none
    SoftmaxState<Arch> chunk[kHeads<Arch>], whole[kHeads<Arch>];
    std::int64_t kv_head, last;     ///< last: the query's own ordinal

    /// dots[h][i] = Σ_d q[h][d] · k[d] for the sixteen cells of each of four groups, one fma chain per cell.
    template <int H>
    void dot_groups(const typename K::Stored* const (&k)[4], float (&dots)[kHeads<Arch>][kTile]) const noexcept {
        const std::int64_t dk = call.params.attention.head_dim_k;
        for (int pair = 0; pair < 4; pair += 2) {
            f32x16<Arch> sum[H][2];
            for (int h = 0; h < H; ++h) sum[h][0] = sum[h][1] = f32x16<Arch>(0.0f);
            for (std::int64_t d = 0; d < dk; ++d) {
                const auto k0 = K::load(k[pair] + d * kGroup), k1 = K::load(k[pair + 1] + d * kGroup);
#pragma GCC unroll 4
                for (int h = 0; h < H; ++h) {
                    const f32x16<Arch> query(q[h][d]);
                    sum[h][0] = fma(query, k0, sum[h][0]);
                    sum[h][1] = fma(query, k1, sum[h][1]);
                }
            }
            for (int h = 0; h < H; ++h)
                for (int i = 0; i < 2; ++i) sum[h][i].store(dots[h] + (pair + i) * kGroup);
        }
    }

    /// q·k of every visible token of the tile, by ordinal; others are left as they are. Whole groups of sixteen cells
    /// are multiplied and the visible ones taken: lanes do not mix, so it does not matter what the others hold.
    template <int H>
    void dot_tile(const AttentionTile<Arch>& tile, float (&s)[kHeads<Arch>][kTile]) const noexcept {
        const AttentionParams& p = call.params.attention;
        const auto* keys = reinterpret_cast<const typename K::Stored*>(call[2].data);
        for (int done = 0; done < kTile;) {
            std::int64_t group[4] = {-1, -1, -1, -1};
            int slot[kTile], n_groups = 0, end = done;   // slot: where in `dots` the token's score will be
            for (; end < kTile; ++end) {
                if (tile.cell[end] < 0) continue;
                const std::int64_t wanted = tile.cell[end] / kGroup;
                if (n_groups == 0 || group[n_groups - 1] != wanted) {
                    if (n_groups == 4) break;
                    group[n_groups++] = wanted;
                }
                slot[end] = static_cast<int>((n_groups - 1) * kGroup + tile.cell[end] % kGroup);
            }
            if (n_groups == 0) return;
            const typename K::Stored* k[4];
            for (int g = 0; g < 4; ++g) {
                const std::int64_t cell = group[g < n_groups ? g : 0] * kGroup;
                k[g] = keys + k_index(cell, kv_head, p.n_head_kv, p.head_dim_k);
            }
            alignas(64) float dots[kHeads<Arch>][kTile];
            dot_groups<H>(k, dots);
            for (int h = 0; h < H; ++h)
                for (int i = done; i < end; ++i)
                    if (tile.cell[i] >= 0) s[h][i] = dots[h][slot[i]];
            done = end;
        }
    }

    /// · scale; then c · tanh(s / c); then fma(−slope, distance, s). Invisible tokens get −inf.
    void finish_scores(const AttentionTile<Arch>& tile, int h, float (&s)[kTile]) const noexcept {
        const AttentionParams& p = call.params.attention;
        const f32x16<Arch> scale(p.scale), cap(p.softcap), half(0.5f), lowest(-__builtin_inff());
        for (int i = 0; i < kTile; i += 16) {
            auto x = f32x16<Arch>::load(s + i) * scale;
            if (p.softcap != 0.0f) x = cap * tanh(x / cap);
            if (slope[h] != 0.0f) {
                alignas(64) float distance[16];
                for (int l = 0; l < 16; ++l) distance[l] = static_cast<float>(last - (tile.number * kTile + i + l));
                x = fma(f32x16<Arch>(-slope[h]), f32x16<Arch>::load(distance), x);
            }
            if_greater(f32x16<Arch>::load(tile.visible + i), half, x, lowest).store(s + i);
        }
    }

    /// p = exp(s − m) for the state's new maximum, zero where invisible; l += Σ p.
    void weigh(const AttentionTile<Arch>& tile, int h, float (&s)[kTile], std::int64_t padded) noexcept {
        f32x16<Arch> max(chunk[h].m);
        for (int i = 0; i < kTile; i += 16) max = greater(f32x16<Arch>::load(s + i), max);
        chunk[h].rescale(max_lane(max), padded);
        const f32x16<Arch> m(chunk[h].m), half(0.5f), zero(0.0f);
        f32x16<Arch> sum = zero;
        for (int i = 0; i < kTile; i += 16) {
            const auto weight = exp(f32x16<Arch>::load(s + i) - m);
            const auto p = if_greater(f32x16<Arch>::load(tile.visible + i), half, weight, zero);
            sum = sum + p;
            p.store(s + i);
        }
        chunk[h].l += fold(sum);
    }

    /// o[d] = fma(p, v[d], o[d]) over the visible tokens in ascending order, a piece of channels at a time.
    template <int H>
    void add_values(const AttentionTile<Arch>& tile, const float (&p)[kHeads<Arch>][kTile]) noexcept {
        const AttentionParams& params = call.params.attention;
        const auto* values = reinterpret_cast<const typename V::Stored*>(call[3].data);
        const typename V::Stored* row[kTile];
        int ordinal[kTile], n = 0;
        for (int i = 0; i < kTile; ++i)
            if (tile.cell[i] >= 0) {
                row[n] = values + v_index(tile.cell[i], kv_head, params.n_head_kv, params.head_dim_v);
                ordinal[n++] = i;
            }
        each_piece<Arch>(params.head_dim_v, [&](std::int64_t d, int count) {
            f32x16<Arch> sum[H];
#pragma GCC unroll 4
            for (int h = 0; h < H; ++h) sum[h] = f32x16<Arch>::load(chunk[h].o + d);
            for (int i = 0; i < n; ++i) {
                f32x16<Arch> v;
                if (count == 16) {
                    v = V::load(row[i] + d);
                } else {
                    typename V::Stored piece[16] = {};
                    for (int l = 0; l < count; ++l) piece[l] = row[i][d + l];
                    v = V::load(piece);
                }
#pragma GCC unroll 4
                for (int h = 0; h < H; ++h) sum[h] = fma(f32x16<Arch>(p[h][ordinal[i]]), v, sum[h]);
            }
#pragma GCC unroll 4
            for (int h = 0; h < H; ++h) sum[h].store(chunk[h].o + d);
        });
    }

    /// All tiles of the query for the first H heads: chunks start empty, the first is taken over as it is, later ones
    /// are merged in ascending order. False if nothing was visible.
    template <int H>
    bool walk(TileWalk<Arch> tiles, std::int64_t padded) noexcept {
        bool any = false;
        for (int h = 0; h < H; ++h) chunk[h].clear(padded), whole[h].clear(padded);
        AttentionTile<Arch> tile;
        alignas(64) float s[kHeads<Arch>][kTile] = {};
        while (tiles.next(tile)) {
            dot_tile<H>(tile, s);
            for (int h = 0; h < H; ++h) {
                finish_scores(tile, h, s[h]);
                weigh(tile, h, s[h], padded);
            }
            add_values<H>(tile, s);
            if (!tiles.chunk_ends(tile)) continue;
            for (int h = 0; h < H; ++h) {
                if (any) {
                    whole[h].merge(chunk[h].m, chunk[h].l, chunk[h].o, padded);
                } else {
                    const SoftmaxState<Arch> first = chunk[h];      // the buffers change places
                    chunk[h] = whole[h];
                    whole[h] = first;
                }
                chunk[h].clear(padded);
            }
            any = true;
        }
        return any;
    }
    template <int H = kHeads<Arch>>
    bool walk(int n_heads, const TileWalk<Arch>& tiles, std::int64_t padded) noexcept {
        if constexpr (H > 1)
            if (n_heads < H) return walk<H - 1>(n_heads, tiles, padded);
        return walk<H>(tiles, padded);
    }
};

template <class Arch>
TINFER_INLINE std::int64_t padded_head(const AttentionParams& p) noexcept { return (p.head_dim_v + 15) / 16 * 16; }

/// Per thread and head worked together: the chunk's and the whole's o.
template <class Arch>
std::uint64_t attention_scratch(const StepShape& shape) noexcept {
    const auto floats = static_cast<std::uint64_t>(2 * kHeads<Arch> * padded_head<Arch>(shape.params.attention));
    return floats * sizeof(float) * static_cast<std::uint64_t>(shape.n_threads);
}

/// Heads head … head + n − 1 of a query, which share a KV head.
template <class Arch, class K, class V>
inline void attend(const KernelCall& call, std::int64_t token, std::int64_t head, int n, float* scratch) noexcept {
    const AttentionParams& p = call.params.attention;
    const std::int64_t padded = padded_head<Arch>(p), dv = p.head_dim_v;
    HeadGroup<Arch, K, V> group{call, {}, {}, {}, {}, head / (p.n_head / p.n_head_kv), 0};
    group.last = call[6].template row<const std::int32_t>(token)[2] - std::int64_t{1};
    for (int h = 0; h < n; ++h) {
        group.q[h] = call[1].template row<const float>(head + h, token);
        group.slope[h] = p.max_bias > 0.0f ? math::alibi_slope(p.max_bias, static_cast<int>(head + h), p.n_head) : 0.0f;
        group.chunk[h].o = scratch + 2 * h * padded;
        group.whole[h].o = scratch + (2 * h + 1) * padded;
    }
    const bool any = group.walk(n, TileWalk<Arch>(call, token), padded);
    for (int h = 0; h < n; ++h) {
        SoftmaxState<Arch>& whole = group.whole[h];
        if (call[7].present()) whole.merge(call[7].template row<const float>(0)[head + h], 1.0f, nullptr, padded);
        float* out = call[0].template row<float>(token) + (head + h) * dv;
        const f32x16<Arch> zero(0.0f), l(whole.l);
        each_piece<Arch>(dv, [&](std::int64_t d, int count) {
            store_piece(any ? f32x16<Arch>::load(whole.o + d) / l : zero, out + d, count);
        });
    }
}

template <class Arch>
void attention(const KernelCall& call, WorkSlice slice) noexcept {
    const AttentionParams& p = call.params.attention;
    auto* scratch = reinterpret_cast<float*>(call.scratch(slice.thread));
    const std::int64_t per_kv = p.n_head / p.n_head_kv;
    const Range items = slice.share(call[6].ne[1] * p.n_head);
    visit_cell<Arch>(call[2].type, [&](auto k) {
        visit_cell<Arch>(call[3].type, [&](auto v) {
            for (std::int64_t i = items.begin; i < items.end;) {
                const std::int64_t head = i % p.n_head, left = per_kv - head % per_kv;
                std::int64_t n = items.end - i < left ? items.end - i : left;
                if (n > kHeads<Arch>) n = kHeads<Arch>;
                attend<Arch, decltype(k), decltype(v)>(call, i / p.n_head, head, static_cast<int>(n), scratch);
                i += n;
            }
        });
    });
}

}  // namespace tinfer::kernels
