// SPDX-License-Identifier: MIT
#include "memory/window_pages.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace tinfer::memory {

namespace {

std::size_t at_page(std::int32_t page) noexcept { return static_cast<std::size_t>(page); }

/// Calls fn(page, position) for the tokens of a sequence, last first, until it returns false.
template <class Fn>
void from_the_end(const KvCache& cache, SeqId seq, Fn fn) {
    const auto entries = cache.entries(seq);
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry)
        for (std::uint64_t live = entry->live; live != 0;) {
            const std::int32_t slot = 63 - std::countl_zero(live);
            if (!fn(entry->page, cache.position(entry->page * kPageSlots + slot))) return;
            live &= ~(std::uint64_t{1} << slot);
        }
}

bool in_window_range(std::int32_t pos, Pos p0, Pos p1) noexcept {
    return pos >= static_cast<std::int32_t>(p0) && (p1 < Pos{0} || pos < static_cast<std::int32_t>(p1));
}

}  // namespace

// W rounded up to pages: then two pages for the ends of what a sequence sees are enough, wherever it begins.
std::int32_t WindowPages::n_pages(const KvLimits& limits, const Window& window, std::int32_t n_batch) noexcept {
    const std::int64_t w = (std::int64_t{window.size} + kPageSlots - 1) / kPageSlots * kPageSlots, all = limits.n_seq_max * w;
    const std::int64_t cells = std::min<std::int64_t>(limits.n_ctx, all + std::min<std::int64_t>(n_batch, all + limits.n_run));
    return static_cast<std::int32_t>(std::min<std::int64_t>(limits.n_pages(), (cells + kPageSlots - 1) / kPageSlots + 2 * std::int64_t{limits.n_seq_max}));
}

WindowPages::WindowPages(const KvLimits& limits, const Window& window, std::int32_t n_batch) : window_(window) {
    const auto n_logical = static_cast<std::size_t>(limits.n_pages()), n = static_cast<std::size_t>(n_pages(limits, window, n_batch));
    map_.resize(n_logical);
    mapped_.resize(n);
    free_.resize(n);
    marked_.resize(n_logical);
    kept_.resize(n_logical);
    copies_.resize(static_cast<std::size_t>(limits.n_seq_max));
    first_.resize(static_cast<std::size_t>(limits.n_seq_max));
    clear();
}

std::uint64_t WindowPages::bytes(const KvLimits& limits, const Window& window, std::int32_t n_batch) noexcept {
    const auto n = static_cast<std::uint64_t>(n_pages(limits, window, n_batch)), n_logical = static_cast<std::uint64_t>(limits.n_pages());
    return n_logical * (sizeof(std::int32_t) + 2 * sizeof(std::uint64_t)) + n * 2 * sizeof(std::int32_t) +
           static_cast<std::uint64_t>(limits.n_seq_max) * (sizeof(PageCopy) + sizeof(std::int32_t));
}

std::uint64_t WindowPages::bytes_held() const noexcept {
    return (map_.capacity() + mapped_.capacity() + free_.capacity() + first_.capacity()) * sizeof(std::int32_t) +
           (marked_.capacity() + kept_.capacity()) * sizeof(std::uint64_t) + copies_.capacity() * sizeof(PageCopy);
}

void WindowPages::clear() noexcept {
    std::ranges::fill(map_, -1);
    std::iota(free_.rbegin(), free_.rend(), 0);   // descending: the lowest page is on top
    n_free_ = static_cast<std::int32_t>(free_.size());
    n_mapped_ = 0;
    n_copies_ = 0;
}

// ---- which pages are needed -----------------------------------------------------------------------------------------

/// Pages that a query of the sequence at `first_query` or later may see, and in any case the last one, which is written next.
void WindowPages::mark(const KvCache& cache, SeqId seq, std::int64_t first_query) noexcept {
    const std::int64_t begin = std::min(window_.begin(first_query), first_query - 1);
    const auto entries = cache.entries(seq);
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
        const std::int32_t last = 63 - std::countl_zero(entry->live);
        if (cache.position(entry->page * kPageSlots + last) < begin) return;   // positions ascend along the table
        marked_[at_page(entry->page)] = marking_;
    }
}

void WindowPages::mark_all(const KvCache& cache) noexcept {
    ++marking_;
    for (std::int32_t seq = 0; seq < cache.limits().n_seq_max; ++seq) mark(cache, SeqId{seq}, std::int64_t{cache.pos_max(SeqId{seq})} + 1);
}

void WindowPages::release_unmarked() noexcept {
    std::int32_t kept = 0;
    for (std::int32_t i = 0; i < n_mapped_; ++i) {
        const std::int32_t page = mapped_[at_page(i)];
        if (marked_[at_page(page)] == marking_) {
            mapped_[at_page(kept++)] = page;
        } else {
            free_[at_page(n_free_++)] = map_[at_page(page)];
            map_[at_page(page)] = -1;
        }
    }
    n_mapped_ = kept;
}

bool WindowPages::take(std::int32_t page) noexcept {
    if (map_[at_page(page)] >= 0) return true;
    if (n_free_ == 0) return false;
    map_[at_page(page)] = free_[at_page(--n_free_)];
    mapped_[at_page(n_mapped_++)] = page;
    return true;
}

// ---- a transaction --------------------------------------------------------------------------------------------------

void WindowPages::begin(const KvCache& cache) noexcept {
    ++transaction_;
    n_copies_ = 0;
    mark_all(cache);
    release_unmarked();   // of sequences that were removed since
    for (const std::int32_t page : std::span(mapped_).first(at_page(n_mapped_))) kept_[at_page(page)] = transaction_;
}

bool WindowPages::place(const KvCache& cache) noexcept {
    std::ranges::fill(first_, -1);
    cache.for_each_placed([&](SeqId seq, std::int32_t, std::int32_t pos) {
        std::int32_t& first = first_[static_cast<std::size_t>(seq)];
        if (first < 0) first = pos;   // they ascend
    });
    ++marking_;
    for (std::int32_t seq = 0; seq < cache.limits().n_seq_max; ++seq) {
        const std::int32_t first = first_[at_page(seq)];
        mark(cache, SeqId{seq}, first >= 0 ? first : std::int64_t{cache.pos_max(SeqId{seq})} + 1);
    }
    for (const std::int32_t page : std::span(mapped_).first(at_page(n_mapped_)))
        if (kept_[at_page(page)] == transaction_) marked_[at_page(page)] = marking_;
    for (const PageCopy& copy : cache.copies()) marked_[at_page(copy.from)] = marking_;
    release_unmarked();

    bool fits = true;
    cache.for_each_placed([&](SeqId, std::int32_t cell, std::int32_t) { fits = fits && take(cell / kPageSlots); });
    n_copies_ = 0;
    for (const PageCopy& copy : cache.copies())
        if (fits && holds(copy.from) && take(copy.to)) copies_[n_copies_++] = {map_[at_page(copy.from)], map_[at_page(copy.to)]};
    return fits;
}

void WindowPages::commit(const KvCache& cache) noexcept {
    mark_all(cache);
    release_unmarked();
}

void WindowPages::rollback() noexcept {
    ++marking_;
    for (const std::int32_t page : std::span(mapped_).first(at_page(n_mapped_)))
        if (kept_[at_page(page)] == transaction_) marked_[at_page(page)] = marking_;
    release_unmarked();
}

void WindowPages::write_inputs(const KvInputs& cache_inputs, const KvInputSizes& sizes, std::span<std::int32_t> table, std::span<std::int32_t> cells) const noexcept {
    for (std::size_t entry = 0; entry < sizes.entries; ++entry) {
        std::copy_n(&cache_inputs.table[4 * entry], 4, &table[4 * entry]);
        table[4 * entry] = map_[at_page(cache_inputs.table[4 * entry])];
    }
    for (std::size_t i = 0; i < cells.size(); ++i)
        cells[i] = map_[at_page(cache_inputs.cells[i] / kPageSlots)] * kPageSlots + cache_inputs.cells[i] % kPageSlots;
}

// ---- what is still there --------------------------------------------------------------------------------------------

std::int32_t WindowPages::pos_min(const KvCache& cache, SeqId seq) const noexcept {
    std::int32_t first = -1;
    from_the_end(cache, seq, [&](std::int32_t page, std::int32_t pos) {
        if (!holds(page)) return false;
        first = pos;
        return true;
    });
    return first;
}

bool WindowPages::would_miss(const KvCache& cache, SeqId seq, Pos p0, Pos p1) const noexcept {
    std::int64_t begin = -1;   // of the window after the removal; known once its last token is
    bool misses = false;
    from_the_end(cache, seq, [&](std::int32_t page, std::int32_t pos) {
        if (in_window_range(pos, p0, p1)) return true;
        if (begin < 0) begin = std::max<std::int64_t>(0, window_.begin(std::int64_t{pos} + 1));
        if (pos < begin) return false;
        misses = misses || !holds(page);
        return !misses;
    });
    return misses;
}

bool WindowPages::move_would_miss(const KvCache& cache, SeqId seq, Pos p0, Pos p1, std::int32_t delta, std::int32_t divisor) const noexcept {
    std::int64_t begin = -1;
    bool misses = false;
    from_the_end(cache, seq, [&](std::int32_t page, std::int32_t pos) {   // the order of tokens does not change
        const std::int64_t sum = in_window_range(pos, p0, p1) ? std::int64_t{pos} + delta : pos;
        const std::int64_t moved = in_window_range(pos, p0, p1) && divisor > 1 ? sum / divisor : sum;
        if (moved < 0) return true;   // it leaves the sequence
        if (begin < 0) begin = std::max<std::int64_t>(0, window_.begin(moved + 1));
        if (moved < begin) return false;
        misses = misses || !holds(page);
        return !misses;
    });
    return misses;
}

bool WindowPages::copy_would_miss(const KvCache& cache, SeqId from, SeqId to, Pos p0, Pos p1) const noexcept {
    std::int64_t last = -1;
    const auto look = [&](auto fn) {
        from_the_end(cache, to, [&](std::int32_t page, std::int32_t pos) { return in_window_range(pos, p0, p1) || fn(page, pos); });
        from_the_end(cache, from, [&](std::int32_t page, std::int32_t pos) { return !in_window_range(pos, p0, p1) || fn(page, pos); });
    };
    look([&](std::int32_t, std::int32_t pos) {
        last = std::max<std::int64_t>(last, pos);
        return false;
    });
    bool misses = false;
    look([&](std::int32_t page, std::int32_t pos) {
        if (pos < window_.begin(last + 1)) return false;
        misses = misses || !holds(page);
        return true;
    });
    return misses;
}

}  // namespace tinfer::memory
