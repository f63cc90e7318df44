// SPDX-License-Identifier: MIT
// Attention of a block: some queries of one sequence, each with heads that share one KV head, against a run of chunks.
// Every KV slot is loaded once for all rows (query, head) of the block; where these are many it is widened to
// float32 first, where they are few a block may hold several KV heads. The order of operations of each row is that of
// reference/attention.cpp, whatever the block.
#pragma once

#include <type_traits>

#include "base/dtype.hpp"
#include "base/math.hpp"
#include "kernels/attention/packed_queries.hpp"
#include "kernels/attention/page_reads.hpp"
#include "kernels/attention/score_mods.hpp"

namespace tinfer::kernels {

template <class Arch>
class AttentionBlock {
public:
    static constexpr int kTile = AttentionTile<Arch>::kSize;

    AttentionBlock(const KernelCall& call, const BlockScratch<Arch>& scratch) noexcept
        : call_(call), params_(call.params.attention), scratch_(scratch), padded_(scratch.padded(params_)),
          reads_(call), packed_(scratch.packed, call[2].type, params_),
          has_score_mods_(params_.softcap != 0.0f || params_.max_bias > 0.0f || call[9].present()) {}

    /// Rows: tokens [token, token + n_tokens), which are of one sequence, with heads [head, head + n_heads), which
    /// share a KV head, and then with those of each of the n_kv − 1 KV heads behind it.
    void open(std::int64_t token, int n_tokens, std::int64_t head, int n_heads, int n_kv) noexcept {
        const std::int64_t per_kv = params_.n_head / params_.n_head_kv;
        const int shared = n_tokens * n_heads;
        reads_.open(head / per_kv, n_kv);
        packed_.open();
        n_rows_ = shared * n_kv;
        begin_ = first_end_ = INT64_MAX;
        end_ = last_begin_ = 0;
        for (int r = 0; r < n_rows_; ++r) {
            AttentionRow<Arch>& row = rows_[r];
            row.token = token + r % shared / n_heads;
            row.head = head + r / shared * per_kv + r % n_heads;
            const auto* span = call_[6].template row<const std::int32_t>(row.token);
            row.q = call_[1].template row<const float>(row.head, row.token);
            row.begin = span[1];
            row.end = span[0] >= 0 ? span[2] : span[1];
            row.position = span[3];
            row.slope = params_.max_bias > 0.0f
                            ? math::alibi_slope(params_.max_bias, static_cast<int>(row.head), params_.n_head)
                            : 0.0f;
            row.bias = call_[9].present() ? call_[9].template row<const float>(row.head) + call_[9].ne[0] / 2 : nullptr;
            row.o = scratch_.o + r * padded_;
            row.whole_o = scratch_.whole_o + r * padded_;
            row.any = false;
            if (is_coded<Arch>(call_[2].type)) {
                const std::int64_t d = params_.head_dim_k;
                row.codes = coded_query<Arch>(scratch_.queries + r * CodedQuery::floats(d), d);
                quantize_query<Arch>(
                    row.q, d, call_[2].type == DType::q8_0 ? kKeyBias<Arch, DType::q8_0> : kKeyBias<Arch, DType::q4_0>,
                    row.codes);
            }
            first_end_ = row.end < first_end_ ? row.end : first_end_;
            last_begin_ = row.begin > last_begin_ ? row.begin : last_begin_;
            if (row.begin >= row.end) continue;
            begin_ = row.begin < begin_ ? row.begin : begin_;
            end_ = row.end > end_ ? row.end : end_;
        }
    }
    /// All rows see the ordinals [begin, end), whatever their spans say.
    void see(std::int64_t begin, std::int64_t end) noexcept {
        for (int r = 0; r < n_rows_; ++r) rows_[r].begin = begin, rows_[r].end = end;
        begin_ = last_begin_ = begin;
        end_ = first_end_ = end;
    }
    /// Chunks that some row sees something of.
    [[nodiscard]] std::int64_t first_chunk() const noexcept {
        return begin_ < end_ ? begin_ / (kChunkTiles * kTile) : 0;
    }
    [[nodiscard]] std::int64_t end_chunk() const noexcept {
        return begin_ < end_ ? (end_ - 1) / (kChunkTiles * kTile) + 1 : 0;
    }
    [[nodiscard]] AttentionRow<Arch>* rows() noexcept { return rows_; }
    [[nodiscard]] int n_rows() const noexcept { return n_rows_; }

    /// Reads chunks [first, end): begin(chunk) before the first tile of each, close(chunk) behind its last.
    template <class Begin, class Close>
    void for_each_tile(const std::int32_t* sequence, std::int64_t first, std::int64_t end, Begin begin,
                       Close close) noexcept {
        const std::int64_t first_tile = begin_ / kTile > first * kChunkTiles ? begin_ / kTile : first * kChunkTiles;
        const std::int64_t end_tile =
            (end_ + kTile - 1) / kTile < end * kChunkTiles ? (end_ + kTile - 1) / kTile : end * kChunkTiles;
        if (first_tile >= end_tile) return;
        TileIterator<Arch> tiles(call_[4], sequence, first_tile);
        AttentionTile<Arch> tile[2];
        bool more = tiles.next(tile[0]);
        int current = 0;
        for (std::int64_t chunk = -1; more; current = 1 - current) {
            AttentionTile<Arch>&now = tile[current], &then = tile[1 - current];
            if (now.number >= end_tile) {
                if (chunk >= 0) close(chunk);
                return;
            }
            if (now.number / kChunkTiles != chunk) {
                if (chunk >= 0) close(chunk);
                begin(chunk = now.number / kChunkTiles);
            }
            more = tiles.next(then);
            add(now, more ? then : now);
            if (!more) close(chunk);
        }
    }

    /// A tile whose KV slots lie anywhere: four groups of keys, gathered in the order of the ordinals, and a pointer to
    /// each row of values. For one KV head.
    void add_gathered(const AttentionTile<Arch>& tile, const std::byte* keys, const std::byte* (&row)[kTile]) noexcept {
        const std::uint64_t visible = find_active(tile);
        if (visible == 0) return;
        direct_ = n_active_ <= kDirectQueries;
        KeyGroups<Arch> groups;
        for (groups.n = 0; groups.n < 4; ++groups.n) groups.k[groups.n] = keys + groups.n * kGroup * reads_.k_bytes();
        widen_groups(groups);
        widen_rows(row, visible);
        next_keys_ = {keys, keys, NextRead::Way::into_l1};  // what comes next is unknown: prefetches do nothing
        next_values_ = {row[0], row[0], NextRead::Way::into_l1};
        if (direct_) packed_.pack(active_, n_active_, n_active_, n_active_ == n_rows_);
        first_packed_ = 0;
        add_steps(tile, groups, row);
    }

private:
    /// One tile, for the rows that see something of it.
    void add(const AttentionTile<Arch>& tile, const AttentionTile<Arch>& next) noexcept {
        const std::uint64_t visible = find_active(tile);
        if (visible == 0) return;
        const std::int64_t then = next.page >= 0 ? next.page * kPageSlots : 0;
        direct_ = n_active_ <= kDirectQueries * reads_.n_kv();
        if (direct_ || tile.page < 0) return add_heads(tile, visible, then);
        next_keys_.at = reads_.key_group(then, 0);
        next_values_.at = reads_.value_row(then, 0);
        add_many(tile, visible);
    }

    using Groups = KeyGroups<Arch>;
    /// Some of the active rows, `first` being the number of the first.
    struct Step {
        AttentionRow<Arch>* const* rows;
        int n, first;
    };

    /// The scores of one KV head after the other, the weights of all rows, the values of one KV head after the other.
    void add_heads(const AttentionTile<Arch>& tile, std::uint64_t visible, std::int64_t then) noexcept {
        const std::int64_t now = tile.kv_slot(__builtin_ctzll(visible)) / kPageSlots * kPageSlots;
        const int n_kv = reads_.n_kv(), n = n_active_ / n_kv;  // rows of one token see the same
        for (int r = 0; r < n_active_; ++r) active_[r]->s = scratch_.s + r * kScorePitch;
        if (direct_) packed_.pack(active_, n_active_, n, n_active_ == n_rows_);
        for (int h = 0; h < n_kv; ++h) {
            const Step step{active_ + h * n, n, 0};
            first_packed_ = h * n;
            next_keys_ = reads_.in_step(now, then, h, n_active_);
            if (tile.page >= 0) dot_all(page_groups(tile, visible, h), step, true);
            else dot_scattered(tile, visible, h, step);
        }
        const Step all{active_, n_active_, 0};
        prefetch_in_weights_ = direct_ && reads_.in_turn();
        if (prefetch_in_weights_) next_weights_ = reads_.in_weights(then);
        whole_ ? weigh<true>(tile, all) : weigh<false>(tile, all);
        prefetch_in_weights_ = false;
        for (int h = 0; h < n_kv; ++h) {
            const std::byte* row[kTile];
            next_values_ = reads_.in_step(now, then, n_kv + h, n_active_);
            find_values(tile, visible, h, row);
            add_values(row, {active_ + h * n, n, 0});
        }
    }
    /// Many rows of one KV head and a tile that is a page.
    void add_many(const AttentionTile<Arch>& tile, std::uint64_t visible) noexcept {
        const Groups groups = page_groups(tile, visible, 0);
        const std::byte* row[kTile];
        find_values(tile, visible, 0, row);
        add_steps(tile, groups, row);
    }
    void add_steps(const AttentionTile<Arch>& tile, const Groups& groups,
                   const std::byte* const (&row)[kTile]) noexcept {
        for (int a = 0; a < n_active_; a += kStepRows) {
            const Step step{active_ + a, n_active_ - a < kStepRows ? n_active_ - a : kStepRows, a};
            for (int r = 0; r < step.n; ++r) step.rows[r]->s = scratch_.s + r * kScorePitch;
            dot_all(groups, step, true);
            whole_ ? weigh<true>(tile, step) : weigh<false>(tile, step);
            add_values(row, step);
        }
    }

    /// Lists the rows that see something of the tile; returns the union of what they see.
    std::uint64_t find_active(const AttentionTile<Arch>& tile) noexcept {
        whole_ = tile.visible(last_begin_, first_end_) == ~std::uint64_t{0};
        n_active_ = 0;
        if (whole_) {
            for (int r = 0; r < n_rows_; ++r) active_[n_active_++] = &rows_[r];
            return ~std::uint64_t{0};
        }
        std::uint64_t visible = 0;
        for (int r = 0; r < n_rows_; ++r) {
            rows_[r].visible = tile.visible(rows_[r].begin, rows_[r].end);
            visible |= rows_[r].visible;
            if (rows_[r].visible != 0) active_[n_active_++] = &rows_[r];
        }
        return visible;
    }

    /// Those of a tile that is a page.
    Groups page_groups(const AttentionTile<Arch>& tile, std::uint64_t visible, int head) noexcept {
        Groups groups;
        const std::byte* first = reads_.key_group(tile.page * kPageSlots, head);
        for (int g = 0, some = __builtin_ctzll(visible) / 16; g < 4; ++g) {
            const bool needed = (visible >> 16 * g & 0xFFFF) != 0;
            groups.k[g] = first + (needed ? g : some) * kGroup * reads_.k_bytes();
        }
        groups.n = 4;
        widen_groups(groups);
        return groups;
    }
    /// A tile that draws on more than one page, or has holes. Whole groups of sixteen KV slots are multiplied and the
    /// visible ones taken: lanes do not mix, so it does not matter what the others hold.
    void dot_scattered(const AttentionTile<Arch>& tile, std::uint64_t visible, int head, const Step& step) noexcept {
        for (std::uint64_t rest = visible; rest != 0;) {
            Groups groups;
            for (; rest != 0; rest &= rest - 1) {
                const int i = __builtin_ctzll(rest);
                const std::int64_t number = tile.kv_slots[i] / kGroup;
                if (groups.n == 0 || groups.number[groups.n - 1] != number) {
                    if (groups.n == 4) break;
                    groups.k[groups.n] = reads_.key_group(number * kGroup, head);
                    groups.number[groups.n++] = number;
                }
                groups.slot[i] = static_cast<std::uint8_t>((groups.n - 1) * kGroup + tile.kv_slots[i] % kGroup);
                groups.ordinals |= std::uint64_t{1} << i;
            }
            for (int g = groups.n; g < 4; ++g) groups.k[g] = groups.k[0];
            widen_groups(groups);
            dot_all(groups, step, false);
        }
    }
    /// Where the rows of V lie; where many rows use them, or they are no whole pieces of 16, as float32 in scratch.
    void find_values(const AttentionTile<Arch>& tile, std::uint64_t visible, int head,
                     const std::byte* (&row)[kTile]) noexcept {
        if (tile.page >= 0) {
            const std::byte* const first = reads_.value_row(tile.page * kPageSlots, head);
            for (int i = 0; i < kTile; ++i) row[i] = first + i * reads_.v_bytes();
        } else {
            for (std::uint64_t rest = visible; rest != 0; rest &= rest - 1)
                row[__builtin_ctzll(rest)] = reads_.value_row(tile.kv_slots[__builtin_ctzll(rest)], head);
        }
        widen_rows(row, visible);
    }

    /// straight: lane i is ordinal i, so scores are stored where they belong.
    void dot_all(const Groups& groups, const Step& step, bool straight) noexcept {
        if (call_[2].type == DType::q8_0) return dot_all_codes<DType::q8_0>(groups, step, straight);
        if (call_[2].type == DType::q4_0) return dot_all_codes<DType::q4_0>(groups, step, straight);
        if (!direct_) return dot_all_floats<KvSlotF32<Arch>, false, kTileQueries<Arch>>(groups, step, straight);
        with_kv_slot<Arch>(call_[2].type, [&](auto kv_slot) {
            dot_all_floats<decltype(kv_slot), true, kDirectTile<Arch>>(groups, step, straight);
        });
    }
    template <class KvSlot, bool Ahead, int Queries>
    void dot_all_floats(const Groups& groups, const Step& step, bool straight) noexcept {
        dot_tiles<Ahead, Queries>(groups, step, straight, [&](int n, AttentionRow<Arch>* const* rows, float* const* s) {
            if constexpr (Ahead) {
                dot_groups<Arch, KvSlot, Ahead, Queries>(
                    n, packed_.floats(first_packed_ + static_cast<int>(rows - step.rows)), groups.k, next_keys_,
                    params_.head_dim_k, 0, s);
            } else {
                const float* q[Queries];
                std::uint64_t needed = straight && !whole_ ? 0 : ~std::uint64_t{0};
                for (int r = 0; r < n; ++r) {
                    q[r] = rows[r]->q;
                    needed |= rows[r]->visible;
                }
                dot_groups<Arch, KvSlot, Ahead, Queries>(n, q, groups.k, {}, params_.head_dim_k, needed, s);
            }
        });
    }
    template <DType Type>
    void dot_all_codes(const Groups& groups, const Step& step, bool straight) noexcept {
        if (direct_) {
            constexpr int kQueries = kDirectCodes<Arch>;
            return dot_tiles<true, kQueries>(
                groups, step, straight, [&](int n, AttentionRow<Arch>* const* rows, float* const* s) {
                    const PackedCodes q = packed_.codes(first_packed_ + static_cast<int>(rows - step.rows), n);
                    dot_coded_groups<Arch, Type, true, kQueries>(n, q, groups.k, next_keys_, params_.head_dim_k, s);
                });
        }
        constexpr int kQueries = Arch::kLanes == 16 ? 6 : 3;
        dot_tiles<false, kQueries>(
            groups, step, straight, [&](int n, AttentionRow<Arch>* const* rows, float* const* s) {
                CodedQuery q[kQueries];
                for (int r = 0; r < n; ++r) q[r] = rows[r]->codes;
                dot_coded_groups<Arch, Type, false, kQueries>(n, q, groups.k, {}, params_.head_dim_k, s);
            });
    }
    template <bool Ahead, int Queries, class Dot>
    void dot_tiles(const Groups& groups, const Step& step, bool straight, Dot dot) noexcept {
        alignas(64) float dots[Queries][kTile];
        for (int first = 0; first < step.n; first += Queries) {
            const int n = step.n - first < Queries ? step.n - first : Queries;
            AttentionRow<Arch>* const* rows = step.rows + first;
            float* s[Queries];
            for (int r = 0; r < n; ++r) s[r] = straight ? rows[r]->s : dots[r];
            if constexpr (!Ahead) prefetch_share(next_keys_.at, reads_.k_bytes(), step.first + first, Queries);
            dot(n, rows, s);
            for (int r = 0; r < n && !straight; ++r)
                for (std::uint64_t rest = groups.ordinals; rest != 0; rest &= rest - 1)
                    rows[r]->s[__builtin_ctzll(rest)] = dots[r][groups.slot[__builtin_ctzll(rest)]];
        }
    }
    /// Where many rows use them, groups as float32 in this thread's scratch.
    void widen_groups(Groups& groups) noexcept {
        if (direct_ || call_[2].type == DType::f32 || is_coded<Arch>(call_[2].type)) return;
        const std::int64_t n = kGroup * params_.head_dim_k;
        with_kv_slot<Arch>(call_[2].type, [&](auto kv_slot) {
            using KvSlot = decltype(kv_slot);
            for (int g = 0; g < groups.n; ++g) {
                float* to = scratch_.keys + g * n;
                const auto* from = reinterpret_cast<const typename KvSlot::Stored*>(groups.k[g]);
                for (std::int64_t i = 0; i < n; i += 16) KvSlot::load(from + i).store(to + i);
                groups.k[g] = reinterpret_cast<const std::byte*>(to);
            }
        });
        for (int g = groups.n; g < 4; ++g) groups.k[g] = groups.k[0];
    }
    /// What the next tile will read, while n of the rows from `first` on are worked: into L2, since it is read by and
    /// by.
    void prefetch_share(const std::byte* p, std::int64_t bytes_per_kv_slot, int first, int n) const noexcept {
        const std::int64_t each = (bytes_per_kv_slot * kTile / n_active_ * n + 63) / 64 * 64;
        for (std::int64_t line = 0; line < each; line += 64) __builtin_prefetch(p + first / n * each + line, 0, 2);
    }

    /// Of each active row: s · scale; then c · tanh(s / c); then fma(−slope, |distance|, s); then s + bias[distance].
    /// Then m from the visible ones, p = exp(s − m), zero where nothing is visible, l = l · factor + Σ p with
    /// factor = exp(m_old − m). Step by step for all rows, so that no chain waits for itself.
    template <bool Whole>
    void weigh(const AttentionTile<Arch>& tile, const Step& step) noexcept {
        const f32x16<Arch> one(1.0f), zero(0.0f);
        for (int first = 0; first < step.n; first += 16) {
            AttentionRow<Arch>* const* rows = step.rows + first;
            const int n = step.n - first < 16 ? step.n - first : 16;
            alignas(64) float lanes[16][16], old[16] = {}, top[16] = {}, factor[16], l[16] = {}, sums[16] = {};
            for (int r = n; r < 16; ++r) zero.store(lanes[r]);
            for (int r = 0; r < n; ++r) {
                old[r] = rows[r]->m;
                l[r] = rows[r]->l;
                finish_scores<Whole>(tile, *rows[r]).store(lanes[r]);
            }
            top_lanes<Arch>(lanes, n, top);
            const auto before = f32x16<Arch>::load(old),
                       after = f32x16<Arch>::load(top);  // exp(0) = 1; what is equal may be infinite
            const auto shrink = if_greater(after, before, exp_below(before - after), one);
            shrink.store(factor);
            for (int r = 0; r < n; ++r) {
                float* s = rows[r]->s;
                const auto m = f32x16<Arch>::broadcast(top + r);
                f32x16<Arch> sum = zero;
#pragma GCC unroll 4
                for (int i = 0; i < 4; ++i) {
                    if (prefetch_in_weights_) next_weights_.template prefetch<64>(((first + r) * 4 + i) * 64);
                    if (!Whole && (rows[r]->visible >> 16 * i & 0xFFFF) == 0) {
                        zero.store(s + 16 * i);
                        continue;
                    }
                    auto p = exp_below(f32x16<Arch>::load(s + 16 * i) - m);
                    if constexpr (!Whole) p = keep(static_cast<std::uint32_t>(rows[r]->visible >> 16 * i), p, zero);
                    sum = sum + p;
                    p.store(s + 16 * i);
                }
                sum.store(lanes[r]);
            }
            reduce_each<Arch>(lanes, n, sums);
            (f32x16<Arch>::load(l) * shrink + f32x16<Arch>::load(sums)).store(l);
            for (int r = 0; r < n; ++r) {
                rows[r]->m = top[r];
                rows[r]->l = l[r];
                rows[r]->factor = factor[r];
                rows[r]->seen = true;
            }
        }
    }
    /// The lanes of which the largest is the new maximum. Scores that are not visible become −inf.
    template <bool Whole>
    f32x16<Arch> finish_scores(const AttentionTile<Arch>& tile, const AttentionRow<Arch>& row) const noexcept {
        const f32x16<Arch> scale(params_.scale), lowest(-__builtin_inff());
        f32x16<Arch> x[4], max = f32x16<Arch>::broadcast(&row.m);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) x[i] = f32x16<Arch>::load(row.s + 16 * i) * scale;
        if (has_score_mods_) apply_score_mods(call_, tile, row, x);
        if constexpr (!Whole)
            for (int i = 0; i < 4; ++i) x[i] = keep(static_cast<std::uint32_t>(row.visible >> 16 * i), x[i], lowest);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            max = larger(x[i], max);
            x[i].store(row.s + 16 * i);
        }
        return max;
    }
    /// o[c] = fma(p, v[c], o[c]) over the visible tokens in ascending order.
    void add_values(const std::byte* const (&row)[kTile], const Step& step) noexcept {
        ValueRows v{row, 0, 0, padded_, scratch_.values, next_values_};
        if (!direct_ || padded_ != params_.head_dim_v)
            return add_all<KvSlotF32<Arch>, false, kTileQueries<Arch>>(v, step);
        with_direct_values<Arch>(call_[3].type,
                                 [&](auto kv_slot) { add_all<decltype(kv_slot), true, kDirectTile<Arch>>(v, step); });
    }
    /// As widen_groups; rows that are no whole pieces of 16 are always copied.
    void widen_rows(const std::byte* (&row)[kTile], std::uint64_t visible) noexcept {
        const std::int64_t d = params_.head_dim_v;
        if (padded_ == d && (direct_ || call_[3].type == DType::f32))
            return widen_row_scales<Arch>(call_[3].type, row, visible, d, scratch_.values);
        with_value_slots<Arch>(call_[3].type, [&](auto kv_slot) {
            using KvSlot = decltype(kv_slot);
            for (; visible != 0; visible &= visible - 1) {
                const int i = __builtin_ctzll(visible);
                float* to = scratch_.values + i * padded_;
                std::int64_t c = 0;
                for (; c + 16 <= d; c += 16) KvSlot::load_row(row[i], c, d).store(to + c);
                if (c < d) KvSlot::load_row(row[i], c, d, static_cast<int>(d - c)).store(to + c);
                row[i] = reinterpret_cast<const std::byte*>(to);
            }
        });
    }
    template <class KvSlot, bool Ahead, int Queries>
    void add_all(ValueRows& v, const Step& step) noexcept {
        for (int first = 0; first < step.n; first += Queries) {
            if constexpr (!Ahead) prefetch_share(next_values_.at, reads_.v_bytes(), step.first + first, Queries);
            add_tile<KvSlot, Ahead, Queries>(v, step.rows + first, step.n - first < Queries ? step.n - first : Queries);
        }
    }
    /// The tokens that all n rows see, together; those before and behind, which only some see, row by row.
    template <class KvSlot, bool Ahead, int Queries>
    void add_tile(ValueRows& v, AttentionRow<Arch>* const* rows, int n) noexcept {
        if (n < 1) return;                  // there is one; without this GCC warns that it may be missing
        const float* const p = rows[0]->s;  // of neighbours kScorePitch apart
        float factor[Queries], *o[Queries];
        int from[Queries], to[Queries], last_from = 0, first_to = kTile;
        for (int r = 0; r < n; ++r) {
            factor[r] = rows[r]->factor;
            o[r] = rows[r]->o;
        }
        if (whole_) {
            v.from = 0;
            v.to = kTile;
            return add_rows<Arch, KvSlot, Ahead, Queries>(n, v, p, factor, o);
        }
        for (int r = 0; r < n; ++r) {
            from[r] = __builtin_ctzll(rows[r]->visible);
            to[r] = kTile - __builtin_clzll(rows[r]->visible);
            last_from = from[r] > last_from ? from[r] : last_from;
            first_to = to[r] < first_to ? to[r] : first_to;
        }
        const auto alone = [&](int r, int begin, int end) {
            v.from = begin;
            v.to = end;
            add_rows<Arch, KvSlot, false, 1>(1, v, p + r * kScorePitch, factor + r, o + r);
            factor[r] = 1.0f;
        };
        const bool common = last_from < first_to;
        for (int r = 0; r < n; ++r)
            if (from[r] < last_from || !common) alone(r, from[r], common ? last_from : to[r]);
        if (!common) return;
        v.from = last_from;
        v.to = first_to;
        add_rows<Arch, KvSlot, Ahead, Queries>(n, v, p, factor, o);
        for (int r = 0; r < n; ++r) factor[r] = 1.0f;
        for (int r = 0; r < n; ++r)
            if (first_to < to[r]) alone(r, first_to, to[r]);
    }

    const KernelCall& call_;
    const AttentionParams& params_;
    const BlockScratch<Arch> scratch_;
    const std::int64_t padded_;
    PageReads<Arch> reads_;
    PackedQueries<Arch> packed_;
    int first_packed_ = 0;                         ///< row of the KV head at hand
    const bool has_score_mods_;                    ///< soft cap, ALiBi or bias (score_mods.hpp)
    std::int64_t begin_ = 0, end_ = 0;             ///< of what some row sees
    std::int64_t last_begin_ = 0, first_end_ = 0;  ///< of what all rows see
    NextRead next_keys_{}, next_values_{}, next_weights_{};
    int n_rows_ = 0, n_active_ = 0;
    bool whole_ = false, prefetch_in_weights_ = false;  ///< whole_: all rows see the whole tile
    bool direct_ = false;  ///< few rows: KV slots are used where they lie, not widened first
    AttentionRow<Arch> rows_[kBlockRows];
    AttentionRow<Arch>* active_[kBlockRows];
};

}  // namespace tinfer::kernels
