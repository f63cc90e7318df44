// SPDX-License-Identifier: MIT
// What the access descriptions of several ops share: numbers of an operand in ascending order, rows of a cache as
// merged runs, and the KV slots that the queries of a run see.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/dtype.hpp"
#include "kernels/attention/kv_layout.hpp"
#include "kernels/kernel.hpp"

namespace tinfer::kernels {

/// The distinct non-negative numbers of an i32 operand in ascending order. Lists that ascend already, as those of one
/// sequence do, cost one pass; others one pass per distinct number, which needs no memory.
class DistinctIds {
public:
    explicit DistinctIds(const Operand& ids) noexcept
        : ids_(ids), n_(ids.ne[0] * ids.n_rows()),
          together_(lie_together(ids) ? reinterpret_cast<const std::int32_t*>(ids.data) : nullptr) {
        for (std::int64_t i = 1; i < n_ && ascending_; ++i) ascending_ = at(i - 1) <= at(i);
    }
    struct Id {
        std::int64_t id;
        std::uint32_t count;
    };
    /// The next one with the number of its occurrences; count 0 at the end.
    Id next() noexcept {
        Id found{0, 0};
        for (std::int64_t i = ascending_ ? cursor_ : 0; i < n_; ++i) {
            const std::int64_t id = at(i);
            if (id <= last_) continue;
            if (found.count == 0 || id < found.id) {
                found = {id, 1};
            } else if (id == found.id) {
                ++found.count;
            } else if (ascending_) {
                cursor_ = i;
                break;
            }
        }
        if (found.count == 0) cursor_ = n_;
        last_ = found.count == 0 ? last_ : found.id;
        return found;
    }

private:
    [[nodiscard]] static bool lie_together(const Operand& ids) noexcept {
        const std::int64_t row = 4 * ids.ne[0];
        return ids.n_rows() == 1 || (ids.n_rows() == ids.ne[1] && ids.nb[1] == row);
    }
    [[nodiscard]] std::int64_t
    at(std::int64_t i) const noexcept {  // finding a row divides five times: too slow for long lists
        return together_ != nullptr ? together_[i] : ids_.flat_row<const std::int32_t>(i / ids_.ne[0])[i % ids_.ne[0]];
    }
    const Operand& ids_;
    std::int64_t n_, cursor_ = 0, last_ = -1;
    const std::int32_t* together_;
    bool ascending_ = true;
};

/// Collects rows of a cache in ascending order and hands on merged runs.
class RowRuns {
public:
    RowRuns(AccessSink& sink, int slot, AccessMode mode, const Operand& cache) noexcept
        : sink_(sink), slot_(static_cast<std::uint16_t>(slot)), mode_(mode),
          row_bytes_(static_cast<std::uint64_t>(row_bytes(cache.type, cache.ne[0]))) {}
    void add(std::int64_t row, std::int64_t n, std::uint32_t weight, bool padding = false) noexcept {
        if (n_ > 0 && row == first_ + n_ && padding == padding_) {
            n_ += n;
            weight_ = std::max(weight_, weight);
            return;
        }
        flush();
        first_ = row;
        n_ = n;
        weight_ = weight;
        padding_ = padding;
    }
    void flush() noexcept {
        if (n_ > 0)
            sink_.range(slot_, mode_,
                        {.offset = static_cast<std::uint64_t>(first_) * row_bytes_,
                         .length = static_cast<std::uint64_t>(n_) * row_bytes_,
                         .weight = weight_,
                         .padding = padding_});
        n_ = 0;
    }

private:
    AccessSink& sink_;
    std::uint16_t slot_;
    AccessMode mode_;
    std::uint64_t row_bytes_;
    std::int64_t first_ = 0, n_ = 0;
    std::uint32_t weight_ = 0;
    bool padding_ = false;
};

/// Of select_keys: a query that sees no more tokens than this scores none, because it takes them all or sees no whole
/// block. Blocks are scored even where all are chosen.
inline std::int32_t unscored_tokens(const OpParams& params) noexcept {
    if (params.whole_blocks != 0) return params.block - 1;
    return params.block == 1 && params.local == 0 ? params.k : 0;
}

/// The entries of all sequences of an attention call, by page. Of every `block` tokens a query reads the last one; one
/// that sees no more than `unread` tokens reads none.
class VisiblePages {
public:
    explicit VisiblePages(const KernelCall& call, std::int32_t block = 1, std::int32_t unread = 0) noexcept
        : table_(call[4]), seqs_(call[5]), spans_(call[6]), block_(block), unread_(unread) {
        std::int64_t last = -1;
        for_each_entry([&](std::int64_t, const std::int32_t* entry) {
            ascending_ = ascending_ && entry[0] > last;
            last = entry[0];
        });
    }

    /// fn(page, counts of queries that see each of the 64 slots), or whole(page, count) where it is the same for all;
    /// pages ascending, each once.
    template <class Whole, class Fn>
    void for_each_page(Whole whole, Fn fn) const noexcept {
        std::uint32_t counts[kPageSlots];
        if (ascending_) {
            for_each_entry([&](std::int64_t sequence, const std::int32_t* entry) {
                if (const std::int64_t n = count_whole(sequence, entry); n >= 0)
                    return whole(entry[0], static_cast<std::uint32_t>(n));
                std::fill(std::begin(counts), std::end(counts), 0u);
                count(sequence, entry, counts);
                fn(entry[0], counts);
            });
            return;
        }
        for (std::int64_t last = -1;;) {
            std::int64_t page = -1;
            for_each_entry([&](std::int64_t, const std::int32_t* entry) {
                if (entry[0] > last && (page < 0 || entry[0] < page)) page = entry[0];
            });
            if (page < 0) return;
            std::fill(std::begin(counts), std::end(counts), 0u);
            for_each_entry([&](std::int64_t sequence, const std::int32_t* entry) {
                if (entry[0] == page) count(sequence, entry, counts);
            });
            fn(page, counts);
            last = page;
        }
    }

private:
    template <class Fn>
    void for_each_entry(Fn fn) const noexcept {
        for (std::int64_t s = 0; s < seqs_.ne[1]; ++s) {
            const auto* sequence = seqs_.row<const std::int32_t>(s);
            for (std::int64_t e = 0; e < sequence[1]; ++e) {
                const auto* entry = table_.row<const std::int32_t>(sequence[0] + e);
                if (entry[0] >= 0) fn(s, entry);
            }
        }
    }

    [[nodiscard]] static std::uint64_t live_slots(const std::int32_t* entry) noexcept {
        return static_cast<std::uint32_t>(entry[2]) | static_cast<std::uint64_t>(static_cast<std::uint32_t>(entry[3]))
                                                          << 32;
    }
    /// How many queries see all slots of an entry, where the others see none: nearly everywhere in a long context. Else
    /// -1.
    [[nodiscard]] std::int64_t count_whole(std::int64_t sequence, const std::int32_t* entry) const noexcept {
        std::int64_t n = 0;
        const bool full = live_slots(entry) == ~std::uint64_t{0} && block_ == 1;
        for (std::int64_t t = 0; t < spans_.ne[1]; ++t) {
            const auto* span = spans_.row<const std::int32_t>(t);
            const std::int32_t begin = span[1] - entry[1], end = span[2] - entry[1];
            if (span[0] != sequence || end <= 0 || begin >= kPageSlots || end - begin <= unread_) continue;
            if (!full || begin > 0 || end < kPageSlots) return -1;
            ++n;
        }
        return n;
    }
    /// Adds to each live slot of an entry the number of queries whose span holds its ordinal.
    void count(std::int64_t sequence, const std::int32_t* entry, std::uint32_t* counts) const noexcept {
        const std::uint64_t mask = live_slots(entry);
        const std::int32_t live = std::popcount(mask);
        std::uint32_t n_whole = 0;                  // queries that see all of it
        std::uint32_t change[kPageSlots + 1] = {};  // differences along the ordinals of this entry, by the others
        bool in_parts = false;
        for (std::int64_t t = 0; t < spans_.ne[1]; ++t) {
            const auto* span = spans_.row<const std::int32_t>(t);
            if (span[0] != sequence || span[2] - span[1] <= unread_) continue;
            const std::int32_t begin = std::max(span[1] - entry[1], 0), end = std::min(span[2] - entry[1], live);
            if (begin >= end) continue;
            if (begin == 0 && end == kPageSlots) {
                ++n_whole;
                continue;
            }
            in_parts = true;
            ++change[begin];
            --change[end];
        }
        if (n_whole > 0 && block_ == 1)
            for (std::int64_t slot = 0; slot < kPageSlots; ++slot) counts[slot] += n_whole;
        if (!in_parts && (n_whole == 0 || block_ == 1)) return;
        std::uint32_t seen = block_ == 1 ? 0 : n_whole;
        std::int32_t ordinal = 0;
        for (std::uint64_t rest = mask; rest != 0; rest &= rest - 1) {
            seen += change[ordinal++];
            if ((entry[1] + ordinal) % block_ == 0) counts[std::countr_zero(rest)] += seen;
        }
    }

    const Operand &table_, &seqs_, &spans_;
    std::int32_t block_, unread_;
    bool ascending_ = true;
};

}  // namespace tinfer::kernels
