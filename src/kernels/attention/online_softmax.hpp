// SPDX-License-Identifier: MIT
// The state of the online softmax of one query and head, how the parts of two runs of tokens become one, and the memory
// in which a block of such rows is worked.
#pragma once

#include "kernels/attention/q8_kv.hpp"
#include "kernels/attention/tile_iterator.hpp"

namespace tinfer::kernels {

inline constexpr int kBlockRows = 192;          ///< most rows of a block: what amortizes the widening
inline constexpr std::int64_t kChunkTiles = 4;  ///< a chunk is 256 ordinals
inline constexpr int kStepRows = 24;            ///< rows worked at a time: their scores stay in L1 beside K and V

/// A query and a head: the running maximum m, l = Σ exp(s − m) and o = Σ exp(s − m)·v of a chunk and of the chunks
/// before it, which are merged. o is padded to whole pieces of 16.
template <class Arch>
struct alignas(64) AttentionRow {
    // What every tile needs: one line of many rows.
    const float* q;
    float *o, *s;             ///< s: scores, then weights, of one tile
    std::uint64_t visible;    ///< in the tile
    float m, l, factor;       ///< factor: what o has still to be multiplied by
    bool seen, any;           ///< something in this chunk; in those before
    std::int64_t begin, end;  ///< ordinals it sees

    float* whole_o;
    float whole_m, whole_l;
    std::int64_t token, head, position;
    CodedQuery codes;   ///< where K is of codes
    const float* bias;  ///< of distance 0; null = none
    float slope;        ///< ALiBi, 0 = none

    void clear(std::int64_t padded) noexcept {
        m = -__builtin_inff();
        l = 0.0f;
        seen = false;
        for (std::int64_t c = 0; c < padded; c += 16) f32x16<Arch>(0.0f).store(o + c);
    }
};

/// Runs of tokens that come after those of their rows, up to sixteen at a time. All of a row is brought to the larger
/// maximum, then l = fma(l', f, l), o = fma(o', f, o), f = exp(m' − m).
template <class Arch>
class RowMerges {
public:
    explicit RowMerges(std::int64_t padded) noexcept : padded_(padded) {}
    RowMerges(const RowMerges&) = delete;
    RowMerges& operator=(const RowMerges&) = delete;
    ~RowMerges() { flush(); }

    /// `o` null stands for zeros. A row once before the next flush.
    void add(AttentionRow<Arch>& row, float m, float l, const float* o) noexcept {
        rows_[n_] = &row;
        o_[n_] = o;
        m_[n_] = m;
        l_[n_] = l;
        if (++n_ == 16) flush();
    }
    void flush() noexcept {
        if (n_ == 0) return;
        alignas(64) float whole_m[16] = {}, whole_l[16] = {}, shrink[16], factor[16];
        for (int r = 0; r < n_; ++r) {
            whole_m[r] = rows_[r]->whole_m;
            whole_l[r] = rows_[r]->whole_l;
        }
        const f32x16<Arch> one(1.0f), before = f32x16<Arch>::load(whole_m), other = f32x16<Arch>::load(m_);
        const auto smaller = if_greater(other, before, exp_below(before - other), one);
        const auto after = if_greater(other, before, other, before), share = exp_below(other - after);
        smaller.store(shrink);
        share.store(factor);
        after.store(whole_m);
        fma(f32x16<Arch>::load(l_), share, f32x16<Arch>::load(whole_l) * smaller).store(whole_l);
        for (int r = 0; r < n_; ++r) {
            rows_[r]->whole_m = whole_m[r];
            rows_[r]->whole_l = whole_l[r];
            merge_values(rows_[r]->whole_o, f32x16<Arch>::broadcast(shrink + r), o_[r],
                         f32x16<Arch>::broadcast(factor + r));
        }
        n_ = 0;
    }

private:
    void merge_values(float* whole, const f32x16<Arch>& shrink, const float* o,
                      const f32x16<Arch>& factor) const noexcept {
        for (std::int64_t c = 0; c < padded_; c += 16) {
            const auto other = o == nullptr ? f32x16<Arch>(0.0f) : f32x16<Arch>::load(o + c);
            fma(other, factor, f32x16<Arch>::load(whole + c) * shrink).store(whole + c);
        }
    }

    const std::int64_t padded_;
    int n_ = 0;
    AttentionRow<Arch>* rows_[16];
    const float* o_[16];
    alignas(64) float m_[16] = {}, l_[16] = {};
};

// ---- Rows of a block, all of whose chunks one thread works in order -------------------------------------------------

template <class Arch>
void clear_rows(AttentionRow<Arch>* rows, int n, std::int64_t padded) noexcept {
    for (int r = 0; r < n; ++r) rows[r].clear(padded);
}
/// The first chunk that saw something is taken over as it is, later ones are merged.
template <class Arch>
void close_chunk(AttentionRow<Arch>* rows, int n, std::int64_t padded) noexcept {
    RowMerges<Arch> merges(padded);
    for (int r = 0; r < n; ++r) {
        AttentionRow<Arch>& row = rows[r];
        if (!row.seen) continue;
        if (row.any) {
            merges.add(row, row.m, row.l, row.o);
            continue;
        }
        float* const first = row.o;  // the buffers change places
        row.o = row.whole_o;
        row.whole_o = first;
        row.whole_m = row.m;
        row.whole_l = row.l;
        row.any = true;
    }
}
/// The sink, merged last; then o / l, or zeros where nothing was visible.
template <class Arch>
void write_row(const KernelCall& call, AttentionRow<Arch>& row, std::int64_t padded) noexcept {
    const std::int64_t dv = call.params.attention.head_dim_v;
    if (call[7].present() && row.any)
        RowMerges<Arch>(padded).add(row, call[7].template row<const float>(0)[row.head], 1.0f, nullptr);
    float* out = call[0].template row<float>(row.token) + row.head * dv;
    const f32x16<Arch> zero(0.0f), l(row.any ? row.whole_l : 1.0f);
    each_piece<Arch>(dv, [&](std::int64_t c, int n) {
        store_piece(row.any ? f32x16<Arch>::load(row.whole_o + c) / l : zero, out + c, n);
    });
}

/// Memory of one thread for one block.
template <class Arch>
struct BlockScratch {
    float *o, *whole_o, *s, *queries, *packed, *keys, *values;
    static std::int64_t padded(const AttentionParams& p) noexcept {
        return (p.head_dim_v + std::int64_t{15}) / 16 * 16;
    }
    static std::int64_t padded_keys(const AttentionParams& p) noexcept {
        return (p.head_dim_k + std::int64_t{15}) / 16 * 16;
    }
    static std::int64_t floats(const AttentionParams& p, std::int64_t rows) noexcept {
        return rows * (2 * padded(p) + kScorePitch + CodedQuery::floats(p.head_dim_k) + padded_keys(p)) +
               AttentionTile<Arch>::kSize * (p.head_dim_k + padded(p));
    }
    BlockScratch(float* memory, const AttentionParams& p, std::int64_t rows) noexcept
        : o(memory), whole_o(o + rows * padded(p)), s(whole_o + rows * padded(p)), queries(s + rows * kScorePitch),
          packed(queries + rows * CodedQuery::floats(p.head_dim_k)), keys(packed + rows * padded_keys(p)),
          values(keys + AttentionTile<Arch>::kSize * p.head_dim_k) {}
};

}  // namespace tinfer::kernels
