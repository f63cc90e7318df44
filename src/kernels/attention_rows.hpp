// SPDX-License-Identifier: MIT
// The state of the online softmax of one query and head, how the parts of two runs of tokens become one, and the memory
// in which a block of such rows is worked.
#pragma once

#include "kernels/attention_codes.hpp"
#include "kernels/attention_walk.hpp"

namespace tinfer::kernels {

inline constexpr int kBlockRows = 192;           ///< most rows of a block: what amortizes the widening
inline constexpr std::int64_t kChunkTiles = 4;   ///< a chunk is 256 ordinals
inline constexpr std::int64_t kScorePitch = 80;  ///< floats between the scores of two rows
inline constexpr int kStepRows = 24;             ///< rows worked at a time: their scores stay in L1 beside K and V

/// A query and a head: the running maximum m, l = Σ exp(s − m) and o = Σ exp(s − m)·v of a chunk and of the chunks
/// before it, which are merged. o is padded to whole pieces of 16.
template <class Arch>
struct alignas(64) AttentionRow {
    // What every tile asks for: one line of many rows.
    const float* q;
    float *o, *s;                          ///< s: scores, then weights, of one tile
    std::uint64_t visible;                 ///< in the tile
    float m, l, factor;                    ///< factor: what o has still to be multiplied by
    bool seen, any;                        ///< something in this chunk; in those before
    std::int64_t begin, end;               ///< ordinals it sees

    float* whole_o;
    float whole_m, whole_l;
    std::int64_t token, head, position;
    CodedQuery codes;                      ///< where K is of codes
    const float* bias;                     ///< of distance 0; null = none
    float slope;                           ///< ALiBi, 0 = none

    void clear(std::int64_t padded) noexcept {
        m = -__builtin_inff();
        l = 0.0f;
        seen = false;
        for (std::int64_t c = 0; c < padded; c += 16) f32x16<Arch>(0.0f).store(o + c);
    }
};

/// The tokens after: all is brought to the larger maximum, then l = fma(l', f, l), o = fma(o', f, o), f = exp(m' − m).
/// o_other null stands for zeros.
template <class Arch>
inline void merge(AttentionRow<Arch>& row, float m_other, float l_other, const float* o_other,
                  std::int64_t padded) noexcept {
    const bool grows = row.whole_m < m_other;
    const f32x16<Arch> shrink(grows ? exp_below<Arch>(row.whole_m - m_other) : 1.0f);
    if (grows) row.whole_l *= exp_below<Arch>(row.whole_m - m_other), row.whole_m = m_other;
    const float factor = exp_below<Arch>(m_other - row.whole_m);
    row.whole_l = __builtin_fmaf(l_other, factor, row.whole_l);
    for (std::int64_t c = 0; c < padded; c += 16) {
        const auto other = o_other == nullptr ? f32x16<Arch>(0.0f) : f32x16<Arch>::load(o_other + c);
        fma(other, f32x16<Arch>(factor), f32x16<Arch>::load(row.whole_o + c) * shrink).store(row.whole_o + c);
    }
}

/// Memory of one thread for one block.
template <class Arch>
struct BlockScratch {
    float *o, *whole_o, *s, *queries, *keys, *values;
    static std::int64_t padded(const AttentionParams& p) noexcept {
        return (p.head_dim_v + std::int64_t{15}) / 16 * 16;
    }
    static std::int64_t floats(const AttentionParams& p, std::int64_t rows) noexcept {
        return rows * (2 * padded(p) + kScorePitch + CodedQuery::floats(p.head_dim_k)) +
               AttentionTile<Arch>::kSize * (p.head_dim_k + padded(p));
    }
    BlockScratch(float* memory, const AttentionParams& p, std::int64_t rows) noexcept
        : o(memory), whole_o(o + rows * padded(p)), s(whole_o + rows * padded(p)), queries(s + rows * kScorePitch),
          keys(queries + rows * CodedQuery::floats(p.head_dim_k)),
          values(keys + AttentionTile<Arch>::kSize * p.head_dim_k) {}
};

}  // namespace tinfer::kernels
