// SPDX-License-Identifier: MIT
// Reference: attention of one query as an online softmax over tokens in ascending ordinals, cut into chunks of 256 and
// tiles of 64 wherever the pages lie (numerics rule 8). Shared by attention over all visible tokens and over chosen
// ones.
#pragma once

#include <bit>
#include <cmath>
#include <limits>

#include "base/dtype.hpp"
#include "base/math.hpp"
#include "base/reduce.hpp"
#include "kernels/attention/kv_layout.hpp"
#include "kernels/kernel.hpp"
#include "kernels/reference/kv_slot.hpp"

namespace tinfer::kernels::ref {

constexpr std::int64_t kTile = 64, kChunk = 256;
constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

/// A token's place in the order that sums follow, and where it lies.
struct KvSlotToken {
    std::int64_t ordinal, kv_slot;
};

/// Reads the live tokens of a sequence whose ordinals lie in [begin, end).
class VisibleKvSlots {
public:
    VisibleKvSlots(const KernelCall& call, std::int64_t token) noexcept : table_(call[4]) {
        const auto* span = call[6].row<const std::int32_t>(token);
        begin_ = span[1];
        end_ = span[2];
        if (span[0] < 0 || begin_ >= end_) return;
        const auto* sequence = call[5].row<const std::int32_t>(span[0]);
        entry_ = sequence[0];
        entries_end_ = sequence[0] + sequence[1];
    }
    /// False at the end.
    bool next(KvSlotToken& token) noexcept {
        while (mask_ == 0 || ordinal_ < begin_) {
            if (mask_ != 0) {
                mask_ &= mask_ - 1;
                ++ordinal_;
            } else if (!open_entry()) {
                return false;
            }
        }
        if (ordinal_ >= end_) return false;
        token = {ordinal_++, page_ * kPageSlots + std::countr_zero(mask_)};
        mask_ &= mask_ - 1;
        return true;
    }

private:
    bool open_entry() noexcept {
        if (entry_ >= entries_end_) return false;
        const auto* entry = table_.row<const std::int32_t>(entry_++);
        page_ = entry[0];
        ordinal_ = entry[1];
        mask_ = static_cast<std::uint32_t>(entry[2]) | static_cast<std::uint64_t>(static_cast<std::uint32_t>(entry[3]))
                                                           << 32;
        return true;
    }
    const Operand& table_;
    std::int64_t begin_ = 0, end_ = 0, entry_ = 0, entries_end_ = 0, page_ = 0, ordinal_ = 0;
    std::uint64_t mask_ = 0;
};

/// The KV slots of a list, up to the first −1; ordinals are places in it.
class ChosenKvSlots {
public:
    ChosenKvSlots(const std::int32_t* list, std::int64_t n) noexcept : list_(list), n_(n) {}
    bool next(KvSlotToken& token) noexcept {
        if (i_ >= n_ || list_[i_] < 0) return false;
        token = {i_, list_[i_]};
        ++i_;
        return true;
    }

private:
    const std::int32_t* list_;
    std::int64_t n_, i_ = 0;
};

/// Running maximum, Σ exp(s − m) and Σ exp(s − m)·v of the tokens seen so far.
struct Softmax {
    float m, l;
    float* o;
    std::int64_t n;
    void clear() noexcept {
        m = kMinusInf;
        l = 0.0f;
        for (std::int64_t d = 0; d < n; ++d) o[d] = 0.0f;
    }
    /// To a new maximum: l and o times exp(m_old − m_new), which is 1 where nothing changes.
    void rescale(float m_new) noexcept {
        if (m_new == m) return;
        const float factor = math::exp(m - m_new);
        l *= factor;
        for (std::int64_t d = 0; d < n; ++d) o[d] *= factor;
        m = m_new;
    }
    /// The tokens after: everything is brought to the larger maximum, then l = fma(l', f, l), o = fma(o', f, o) with
    /// f = exp(m' − m).
    void merge(float m_other, float l_other, const float* o_other) noexcept {
        rescale(m < m_other ? m_other : m);
        const float factor = math::exp(m_other - m);
        l = std::fma(l_other, factor, l);
        for (std::int64_t d = 0; d < n; ++d) o[d] = std::fma(o_other == nullptr ? 0.0f : o_other[d], factor, o[d]);
    }
};

/// 64 consecutive ordinals; KV slots that are not visible are −1 and take no part.
struct Tile {
    std::int64_t number = -1;
    std::int64_t kv_slot[kTile];
};

/// One (query, head).
template <class K, class V>
struct QueryHead {
    const KernelCall& call;
    Query q;
    std::int64_t head;
    std::int64_t position;
    float slope;        ///< ALiBi, 0 = none
    const float* bias;  ///< of distance 0; null = none
    std::int64_t farthest;

    [[nodiscard]] std::int64_t kv_head() const noexcept {
        const AttentionParams& p = call.params.attention;
        return head / (p.n_head / p.n_head_kv);
    }

    /// s = q · k (kv_slot.hpp); then · scale; then c · tanh(s / c); then fma(−slope, |distance|, s); then s +
    /// bias[distance], the distance being p_k − p_q, to the bias no farther than its ends.
    [[nodiscard]] float score(std::int64_t kv_slot) const noexcept {
        const AttentionParams& p = call.params.attention;
        const auto* group =
            call[2].data + k_group_offset(kv_slot, kv_head(), p.n_head_kv, row_bytes(call[2].type, p.head_dim_k));
        float s = K::dot(q, group, kv_slot % kGroup, p.head_dim_k);
        s *= p.scale;
        if (p.softcap != 0.0f) s = p.softcap * math::tanh(s / p.softcap);
        if (slope == 0.0f && bias == nullptr) return s;
        const std::int64_t distance = call[8].row<const std::int32_t>(0)[kv_slot] - position;
        if (slope != 0.0f) s = std::fma(-slope, static_cast<float>(distance < 0 ? -distance : distance), s);
        if (bias != nullptr) s += bias[distance < -farthest ? -farthest : distance > farthest ? farthest : distance];
        return s;
    }

    void add_value(std::int64_t kv_slot, float p, float* o) const noexcept {
        const AttentionParams& params = call.params.attention;
        const auto* v = call[3].data +
                        v_row_offset(kv_slot, kv_head(), params.n_head_kv, row_bytes(call[3].type, params.head_dim_v));
        for (std::int64_t d = 0; d < params.head_dim_v; ++d)
            o[d] = std::fma(p, V::value(v, d, params.head_dim_v), o[d]);
    }
};

/// m from the tile's scores, rescale, p = exp(s − m), l += Σ p by 16 lanes (lane = ordinal mod 16, unseen tokens are
/// zeros), o[d] = fma(p, v[d], o[d]) in ascending ordinals.
template <class AnyQuery>
void add_tile(const AnyQuery& query, const Tile& tile, Softmax& state) noexcept {
    float p[kTile];
    float m = state.m;
    for (std::int64_t i = 0; i < kTile; ++i) {
        if (tile.kv_slot[i] < 0) continue;
        p[i] = query.score(tile.kv_slot[i]);
        m = m < p[i] ? p[i] : m;
    }
    state.rescale(m);
    for (std::int64_t i = 0; i < kTile; ++i) p[i] = tile.kv_slot[i] < 0 ? 0.0f : math::exp(p[i] - m);
    state.l += sum16(p, kTile);
    for (std::int64_t i = 0; i < kTile; ++i)
        if (tile.kv_slot[i] >= 0) query.add_value(tile.kv_slot[i], p[i], state.o);
}

/// The softmax of all that one query sees, in the making.
struct Attended {
    Softmax chunk, whole;
    std::int64_t n_chunks = 0;

    void clear() noexcept {
        n_chunks = 0;
        whole.clear();
        chunk.clear();
    }
    /// Chunks start empty; the first is taken over as it is, later ones are merged in ascending order.
    void close_chunk() noexcept {
        if (n_chunks++ == 0) {
            whole.m = chunk.m;
            whole.l = chunk.l;
            for (std::int64_t d = 0; d < whole.n; ++d) whole.o[d] = chunk.o[d];
        } else {
            whole.merge(chunk.m, chunk.l, chunk.o);
        }
        chunk.clear();
    }
    template <class AnyQuery, class KvSlots>
    void add(const AnyQuery& query, KvSlots visible) noexcept {
        Tile tile;
        KvSlotToken token{};
        for (bool more = visible.next(token); more;) {
            tile.number = token.ordinal / kTile;
            for (std::int64_t& kv_slot : tile.kv_slot) kv_slot = -1;
            for (; more && token.ordinal / kTile == tile.number; more = visible.next(token))
                tile.kv_slot[token.ordinal % kTile] = token.kv_slot;
            add_tile(query, tile, chunk);
            if (!more || token.ordinal / kChunk != tile.number * kTile / kChunk) close_chunk();
        }
    }
    /// A sink is one more part with m = sink, l = 1, o = 0, merged last. Finally out = o / l, or 0 where nothing is
    /// visible.
    void finish(const Operand& sinks, std::int64_t head, float* out) noexcept {
        if (sinks.present()) whole.merge(sinks.row<const float>(0)[head], 1.0f, nullptr);
        for (std::int64_t d = 0; d < whole.n; ++d) out[d] = n_chunks == 0 ? 0.0f : whole.o[d] / whole.l;
    }
};

template <class K, class V, class KvSlots>
void attend(const QueryHead<K, V>& query, KvSlots visible, const Operand& sinks, Softmax chunk, Softmax whole,
            float* out) noexcept {
    Attended all{.chunk = chunk, .whole = whole};
    all.clear();
    all.add(query, visible);
    all.finish(sinks, query.head, out);
}

}  // namespace tinfer::kernels::ref
