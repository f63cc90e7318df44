// SPDX-License-Identifier: MIT
// The queries of few rows, packed for the tiles that meet the cache itself (TileOfQueries, TileOfCodes): once for a
// block, and again where not all of its rows see a tile.
#pragma once

#include "kernels/attention/online_softmax.hpp"

namespace tinfer::kernels {

template <class Arch>
class PackedQueries {
public:
    PackedQueries(float* memory, DType type, const AttentionParams& params) noexcept
        : memory_(memory), coded_(is_coded<Arch>(type)), d_(params.head_dim_k),
          pitch_(BlockScratch<Arch>::padded_keys(params)) {}
    void open() noexcept { n_packed_ = 0; }
    /// `n` rows, of which each KV head has `per_head`; `all`: of the block.
    void pack(AttentionRow<Arch>* const* rows, int n, int per_head, bool all) noexcept {
        if (all && n_packed_ == n) return;
        n_packed_ = all ? n : 0;
        const int tile = coded_ ? kDirectCodes<Arch> : kDirectTile<Arch>;
        for (int head = 0; head < n; head += per_head)
            for (int first = 0; first < per_head; first += tile) {
                const int some = per_head - first < tile ? per_head - first : tile;
                coded_ ? pack_codes(rows, head + first, some) : pack_floats(rows, head + first, some);
            }
    }
    /// Of the tile that begins with this row.
    [[nodiscard]] float* floats(int row) const noexcept { return memory_ + row * pitch_; }
    [[nodiscard]] PackedCodes codes(int row, int n) const noexcept {
        float* const at = floats(row);
        return {reinterpret_cast<std::int8_t*>(at), at + n * d_ / 4,
                reinterpret_cast<std::int32_t*>(at + n * (d_ / 4 + d_ / kKvBlock))};
    }

private:
    void pack_floats(AttentionRow<Arch>* const* rows, int first, int n) const noexcept {
        float* const to = floats(first);
        for (std::int64_t c = 0; c < d_; ++c)
            for (int r = 0; r < n; ++r) to[c * n + r] = rows[first + r]->q[c];
    }
    void pack_codes(AttentionRow<Arch>* const* rows, int first, int n) const noexcept {
        const PackedCodes to = codes(first, n);
        for (int r = 0; r < n; ++r) {
            const CodedQuery& from = rows[first + r]->codes;
            for (std::int64_t w = 0; w < d_ / 4; ++w) std::memcpy(to.codes + 4 * (w * n + r), from.codes + 4 * w, 4);
            for (std::int64_t b = 0; b < d_ / kKvBlock; ++b) {
                to.d[b * n + r] = from.d[b];
                to.acc_init[b * n + r] = from.acc_init[b];
            }
        }
    }

    float* const memory_;
    const bool coded_;
    const std::int64_t d_, pitch_;
    int n_packed_ = 0;  ///< rows, all of the block
};

}  // namespace tinfer::kernels
