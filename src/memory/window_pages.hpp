// SPDX-License-Identifier: MIT
// Pages of the layers that have a window: a pool that holds what windows can still see, not what sequences remember.
// The KvCache decides which token lies in which page and slot; this maps its pages to pages of the pool, assigns one
// where a run writes, and releases it once no window of the state before a call (for rollback), of the running call or
// of later ones reaches it. A table keeps the entries of such pages, with page -1, so that ordinals, and with them the
// order of every sum, stay.
#pragma once

#include "memory/kv_cache.hpp"

namespace tinfer::memory {

class WindowPages {
public:
    WindowPages(const KvLimits& limits, const Window& window, std::int32_t n_batch);

    /// Pages of the pool: what windows saw before a call, which a rollback needs, and what the running call still
    /// needs, however its tokens are spread over the sequences. Never more than the cache has.
    [[nodiscard]] static std::int32_t n_pages(const KvLimits& limits, const Window& window,
                                              std::int32_t n_batch) noexcept;
    [[nodiscard]] std::int32_t n_pages() const noexcept { return static_cast<std::int32_t>(free_.size()); }
    [[nodiscard]] std::int32_t n_pages_free() const noexcept { return n_free_; }

    void clear() noexcept;
    /// Outside transactions: releases what no window sees any more. Has to be done before the cache takes pages that an
    /// operation has freed: what is noted of them is of their former tokens.
    void release_unseen(const KvCache& cache) noexcept;

    // -- a transaction of the cache, step by step

    void begin(const KvCache& cache) noexcept;
    /// After the cache has placed a run: gives its pages a place in the pool. False where there is none left.
    [[nodiscard]] bool place(const KvCache& cache) noexcept;
    void commit(const KvCache& cache) noexcept;
    void rollback() noexcept;

    /// Outside transactions: a slot of the cache, whose keys and values come from elsewhere, gets its place. False
    /// where there is none left.
    [[nodiscard]] bool adopt(std::int32_t slot) noexcept {
        if (!acquire(slot / kPageSlots)) return false;
        resident_[static_cast<std::size_t>(slot / kPageSlots)] |= std::uint64_t{1} << slot % kPageSlots;
        return true;
    }

    // -- compaction with the cache, outside transactions

    /// Do the windows lie on more pages than they do where tokens follow each other without holes? Then a call might
    /// find none left.
    [[nodiscard]] bool is_scattered(const KvCache& cache) noexcept;
    /// Once the cache can compact: adds the moves inside the pool to `moves`. False where the pool has too few pages.
    [[nodiscard]] bool can_compact(const KvCache& cache, SlotMoves& moves) noexcept;
    void compact() noexcept;  ///< before the cache does

    // -- the run placed last

    /// Copies inside the pool that go with the cache's.
    [[nodiscard]] std::span<const PageCopy> copies() const noexcept { return std::span(copies_).first(n_copies_); }
    /// The cache's inputs with pages of the pool.
    void write_inputs(const KvInputs& cache_inputs, const KvInputSizes& sizes, std::span<std::int32_t> table,
                      std::span<std::int32_t> slots) const noexcept;

    /// The place of a slot of the cache, or -1.
    [[nodiscard]] std::int32_t slot(std::int32_t slot) const noexcept {
        return slot < 0 || !holds(slot)
                   ? -1
                   : map_[static_cast<std::size_t>(slot / kPageSlots)] * kPageSlots + slot % kPageSlots;
    }

    // -- what is still there

    /// Keys and values of this slot; a page of the pool may have some of a page's only.
    [[nodiscard]] bool holds(std::int32_t slot) const noexcept {
        return (resident_[static_cast<std::size_t>(slot / kPageSlots)] >> slot % kPageSlots & 1) != 0;
    }

    [[nodiscard]] static std::uint64_t bytes(const KvLimits& limits, const Window& window,
                                             std::int32_t n_batch) noexcept;
    [[nodiscard]] std::uint64_t allocated_bytes() const noexcept;

private:
    void mark(const KvCache& cache, SeqId seq, std::int64_t first_query) noexcept;
    void release_unmarked() noexcept;
    [[nodiscard]] bool acquire(std::int32_t page) noexcept;

    Window window_;
    std::vector<std::int32_t> map_;        // {pages of the cache}: page of the pool, or -1
    std::vector<std::uint64_t> resident_;  // {pages of the cache}: slots whose keys and values lie in it
    std::vector<std::int32_t> mapped_;     // {pages of the pool}: pages of the cache that have one
    std::vector<std::int32_t> free_;       // a stack
    std::vector<std::uint64_t> marked_;    // {pages of the cache}: the last marking that needs it
    std::vector<std::uint64_t> kept_;      // {pages of the cache}: the last transaction whose beginning needs it
    std::vector<PageCopy> copies_;         // {n_seq_max}
    std::vector<std::int32_t> first_;      // {n_seq_max}: first position of the run in each sequence, or -1
    std::vector<std::int32_t> source_;    // {slots of the cache}: slot that moves here; -1: none, or it is not resident
    std::vector<std::int32_t> next_map_;  // {pages of the cache}: map_ after the compaction
    std::vector<std::uint8_t> used_;      // {pages of the pool}
    std::int32_t n_seq_max_ = 1;
    std::int32_t n_free_ = 0, n_mapped_ = 0;
    std::uint64_t marking_ = 0, transaction_ = 0;
    std::size_t n_copies_ = 0;
};

}  // namespace tinfer::memory
