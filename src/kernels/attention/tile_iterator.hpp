// SPDX-License-Identifier: MIT
// The order in which attention meets the tokens of a sequence: tiles of 64 consecutive ordinals, cut on the list of its
// live tokens wherever their KV slots lie (numerics rule 8). Table entries are those of kernels/ops.hpp, kv_table.
#pragma once

#include "kernels/kernel.hpp"

namespace tinfer::kernels {

/// Ordinals 64·number … 64·number + 63 of one sequence and the KV slots they lie in.
template <class Arch>
struct AttentionTile {
    static constexpr int kSize = 64;
    std::int64_t number = 0;
    std::uint64_t live = 0;        ///< bit i: ordinal 64·number + i has a KV slot
    std::int64_t page = -1;        ///< the i-th ordinal lies in slot i of this page; −1: where kv_slots[i] says
    std::int64_t kv_slots[kSize];  ///< of live ordinals, where page < 0

    [[nodiscard]] std::int64_t kv_slot(int i) const noexcept { return page >= 0 ? page * kPageSlots + i : kv_slots[i]; }
    /// Those of the ordinals [begin, end) that lie in the tile.
    [[nodiscard]] std::uint64_t visible(std::int64_t begin, std::int64_t end) const noexcept {
        const std::int64_t from = begin - number * kSize, to = end - number * kSize;
        if (to <= 0 || from >= kSize || from >= to) return 0;
        const std::uint64_t below_end = to >= kSize ? ~std::uint64_t{0} : (std::uint64_t{1} << to) - 1;
        return live & below_end & (from > 0 ? ~std::uint64_t{0} << from : ~std::uint64_t{0});
    }
};

/// Up to four groups of K that hold the KV slots of a tile; slot[i]: the lane, of 4 · 16, that holds ordinal i.
template <class Arch>
struct KeyGroups {
    const std::byte* k[4];
    std::int64_t number[4];
    int n = 0;
    std::uint64_t ordinals = 0;
    std::uint8_t slot[AttentionTile<Arch>::kSize];
};

/// The tiles of a sequence from a given one on.
template <class Arch>
class TileIterator {
public:
    /// `sequence`: a row of kv_seqs.
    TileIterator(const Operand& table, const std::int32_t* sequence, std::int64_t first_tile) noexcept
        : table_(table), entry_(sequence[0]), entries_end_(sequence[0] + sequence[1]) {
        const std::int64_t first = first_tile * AttentionTile<Arch>::kSize;
        std::int64_t end = entries_end_;
        while (end - entry_ > 1) {  // binary search: the last entry whose first ordinal is at most `first`
            const std::int64_t middle = entry_ + (end - entry_) / 2;
            (row(middle)[1] <= first ? entry_ : end) = middle;
        }
        while (open() && ordinal_ < first) skip();
    }
    /// False behind the last tile.
    bool next(AttentionTile<Arch>& tile) noexcept {
        if (!open()) return false;
        tile.number = ordinal_ / tile.kSize;
        tile.live = 0;
        tile.page = -1;
        const bool leading = (mask_ & (mask_ + 1)) == 0;  // slots 0, 1, … without a gap
        const bool whole = mask_ == ~std::uint64_t{0} || entry_ == entries_end_;
        if (ordinal_ % tile.kSize == 0 && leading && whole && page_ >= 0) {
            tile.live = mask_;
            tile.page = page_;
            mask_ = 0;
            return true;
        }
        for (; open() && ordinal_ / tile.kSize == tile.number; skip()) {
            if (page_ < 0) continue;
            tile.live |= std::uint64_t{1} << ordinal_ % tile.kSize;
            tile.kv_slots[ordinal_ % tile.kSize] = page_ * kPageSlots + __builtin_ctzll(mask_);
        }
        return true;
    }

private:
    [[nodiscard]] const std::int32_t* row(std::int64_t entry) const noexcept {
        return table_.template row<const std::int32_t>(entry);
    }
    /// Makes mask_ the live slots that remain of an entry, ordinal_ that of the lowest. False at the end.
    bool open() noexcept {
        while (mask_ == 0) {
            if (entry_ >= entries_end_) return false;
            const std::int32_t* entry = row(entry_++);
            page_ = entry[0];
            ordinal_ = entry[1];
            const auto low = static_cast<std::uint32_t>(entry[2]), high = static_cast<std::uint32_t>(entry[3]);
            mask_ = low | static_cast<std::uint64_t>(high) << 32;
        }
        return true;
    }
    void skip() noexcept {
        mask_ &= mask_ - 1;
        ++ordinal_;
    }

    const Operand& table_;
    std::int64_t entry_, entries_end_, page_ = 0, ordinal_ = 0;
    std::uint64_t mask_ = 0;
};

}  // namespace tinfer::kernels
