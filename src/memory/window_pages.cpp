// SPDX-License-Identifier: MIT
#include "memory/window_pages.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "memory/resident.hpp"

namespace tinfer::memory {

namespace {

constexpr std::int32_t kWanted = -2;  // needs a page of the pool, not assigned yet

std::size_t at_page(std::int32_t page) noexcept { return static_cast<std::size_t>(page); }

/// Pages that n tokens in a row touch at most: they may begin with the last slot of one.
std::int64_t most_pages(std::int64_t n_tokens) noexcept { return (n_tokens + kPageSlots - 2) / kPageSlots + 1; }

/// Pages with tokens that the window of a sequence's next token sees: W − 1 of them, and in any case the last one.
std::int64_t pages_of_window(const Window& window) noexcept {
    return most_pages(std::max<std::int64_t>(window.size - 1, 1));
}

}  // namespace

// How many pages a call may need at once. Let S be n_seq_max, P = pages_of_window() and ⌊⌋ rounding down.
//
// Kept for a rollback: what the windows saw before the call, S · P pages (is_scattered() has them compacted otherwise).
//
// New ones, which the call takes. A token takes a page where its sequences have no page of their own to go on
// with: at the call's first token of theirs (a fresh page, or a copy of one that others share), when some of them
// go on alone (a copy), and when the page is full. The first two happen once for a sequence, whichever of those
// that went on together it is counted for. A fresh page is full after 64 tokens, a copy or one from before the
// call after one. So n_s tokens that are counted for a sequence take at most 1 + ⌈(n_s − 1) / 64⌉ pages. Together,
// over A = min(S, n_batch) sequences:
//     new ≤ A + ⌊(n_batch + 62 · A) / 64⌋.
//
// But new pages that no window sees any more are released before each run. What is left of a sequence's is a row
// of at most W − 1 tokens before the run and its n_s tokens of the run: ⌈(W − 2 + n_s) / 64⌉ + 1 ≤ P + ⌈n_s / 64⌉
// pages. A copied page that the row leaves is another sequence's last page, and counted there, or kept. Together,
// with R = min(S, n_ubatch) sequences in the run:
//     new ≤ A · P + ⌊(n_ubatch + 63 · R) / 64⌋.
std::int32_t WindowPages::n_pages(const KvLimits& limits, const Window& window, std::int32_t n_batch) noexcept {
    const std::int64_t n_seqs = limits.n_seq_max, per_seq = pages_of_window(window),
                       n_active = std::min<std::int64_t>(n_seqs, n_batch),
                       n_in_run = std::min<std::int64_t>(n_seqs, limits.n_run);
    const std::int64_t of_call = n_active + (n_batch + 62 * n_active) / kPageSlots,
                       of_run = n_active * per_seq + (limits.n_run + 63 * n_in_run) / kPageSlots;
    return static_cast<std::int32_t>(
        std::min<std::int64_t>(limits.n_pages(), n_seqs * per_seq + std::min(of_call, of_run)));
}

WindowPages::WindowPages(const KvLimits& limits, const Window& window, std::int32_t n_batch)
    : window_(window), n_seq_max_(limits.n_seq_max) {
    const auto n_logical = static_cast<std::size_t>(limits.n_pages()),
               n = static_cast<std::size_t>(n_pages(limits, window, n_batch));
    map_.resize(n_logical);
    resident_.resize(n_logical);
    source_.resize(n_logical * kPageSlots);
    next_map_.resize(n_logical);
    used_.resize(n);
    mapped_.resize(n);
    free_.resize(n);
    marked_.resize(n_logical);
    kept_.resize(n_logical);
    copies_.resize(static_cast<std::size_t>(limits.n_seq_max));
    first_.resize(static_cast<std::size_t>(limits.n_seq_max));
    clear();
}

std::uint64_t WindowPages::bytes(const KvLimits& limits, const Window& window, std::int32_t n_batch) noexcept {
    const auto n = static_cast<std::uint64_t>(n_pages(limits, window, n_batch)),
               n_logical = static_cast<std::uint64_t>(limits.n_pages());
    return n_logical * ((2 + kPageSlots) * sizeof(std::int32_t) + 3 * sizeof(std::uint64_t)) +
           n * (2 * sizeof(std::int32_t) + sizeof(std::uint8_t)) +
           static_cast<std::uint64_t>(limits.n_seq_max) * (sizeof(PageCopy) + sizeof(std::int32_t));
}

std::uint64_t WindowPages::allocated_bytes() const noexcept {
    return (map_.capacity() + mapped_.capacity() + free_.capacity() + first_.capacity() + source_.capacity() +
            next_map_.capacity()) *
               sizeof(std::int32_t) +
           (resident_.capacity() + marked_.capacity() + kept_.capacity()) * sizeof(std::uint64_t) +
           copies_.capacity() * sizeof(PageCopy) + used_.capacity();
}

void WindowPages::clear() noexcept {
    std::ranges::fill(map_, -1);
    std::ranges::fill(resident_, 0);
    std::iota(free_.rbegin(), free_.rend(), 0);  // descending: the lowest page is on top
    n_free_ = static_cast<std::int32_t>(free_.size());
    n_mapped_ = 0;
    n_copies_ = 0;
}

// ---- which pages are needed -----------------------------------------------------------------------------------------

/// Pages that a query of the sequence at `first_query` or later may see, and in any case the last one, which is written
/// next.
void WindowPages::mark(const KvCache& cache, SeqId seq, std::int64_t first_query) noexcept {
    const std::int64_t begin = std::min(window_.begin(first_query), first_query - 1);
    const auto entries = cache.entries(seq);
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
        const std::int32_t last = 63 - std::countl_zero(entry->live);
        if (cache.position(entry->page * kPageSlots + last) < begin) return;  // positions ascend along the table
        marked_[at_page(entry->page)] = marking_;
    }
}

void WindowPages::release_unseen(const KvCache& cache) noexcept {
    ++marking_;
    for (std::int32_t seq = 0; seq < cache.limits().n_seq_max; ++seq)
        mark(cache, SeqId{seq}, std::int64_t{cache.pos_max(SeqId{seq})} + 1);
    release_unmarked();
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
            resident_[at_page(page)] = 0;
        }
    }
    n_mapped_ = kept;
}

bool WindowPages::acquire(std::int32_t page) noexcept {
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
    release_unseen(cache);
    for (const std::int32_t page : std::span(mapped_).first(at_page(n_mapped_))) kept_[at_page(page)] = transaction_;
}

bool WindowPages::place(const KvCache& cache) noexcept {
    std::ranges::fill(first_, -1);
    cache.for_each_placed([&](SeqId seq, std::int32_t, std::int32_t pos) {
        std::int32_t& first = first_[static_cast<std::size_t>(seq)];
        if (first < 0) first = pos;  // they ascend
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
    n_copies_ = 0;
    for (const PageCopy& copy : cache.copies()) {
        if (resident_[at_page(copy.from)] == 0) continue;
        fits = fits && acquire(copy.to);
        if (!fits) break;
        resident_[at_page(copy.to)] = resident_[at_page(copy.from)];
        copies_[n_copies_++] = {map_[at_page(copy.from)], map_[at_page(copy.to)]};
    }
    cache.for_each_placed([&](SeqId, std::int32_t slot, std::int32_t) {
        fits = fits && acquire(slot / kPageSlots);
        if (fits) resident_[at_page(slot / kPageSlots)] |= std::uint64_t{1} << slot % kPageSlots;
    });
    return fits;
}

void WindowPages::commit(const KvCache& cache) noexcept { release_unseen(cache); }

void WindowPages::rollback() noexcept {
    ++marking_;
    for (const std::int32_t page : std::span(mapped_).first(at_page(n_mapped_)))
        if (kept_[at_page(page)] == transaction_) marked_[at_page(page)] = marking_;
    release_unmarked();
}

void WindowPages::write_inputs(const KvInputs& cache_inputs, const KvInputSizes& sizes, std::span<std::int32_t> table,
                               std::span<std::int32_t> slots) const noexcept {
    for (std::size_t entry = 0; entry < sizes.entries; ++entry) {
        std::copy_n(&cache_inputs.table[4 * entry], 4, &table[4 * entry]);
        table[4 * entry] = map_[at_page(cache_inputs.table[4 * entry])];
    }
    for (std::size_t i = 0; i < slots.size(); ++i)
        slots[i] = map_[at_page(cache_inputs.slots[i] / kPageSlots)] * kPageSlots + cache_inputs.slots[i] % kPageSlots;
}

// ---- compaction ----------------------------------------------------------------------------------------------------

bool WindowPages::is_scattered(const KvCache& cache) noexcept {
    release_unseen(cache);
    std::int64_t most = 0;
    for (std::int32_t seq = 0; seq < n_seq_max_; ++seq)
        if (cache.count(SeqId{seq}) > 0) most += pages_of_window(window_);
    return n_mapped_ > most;
}

/// Every page with a token that a window will see gets a place in the pool. All that the pool has of such a page moves
/// with it.
bool WindowPages::can_compact(const KvCache& cache, SlotMoves& moves) noexcept {
    std::ranges::fill(source_, -1);
    std::ranges::fill(next_map_, -1);
    for (std::int32_t seq = 0; seq < n_seq_max_; ++seq) {
        const std::int64_t first_query = std::int64_t{cache.pos_max(SeqId{seq})} + 1,
                           begin = std::min(window_.begin(first_query), first_query - 1);
        for_each_from_end(cache, SeqId{seq}, [&](std::int32_t slot, std::int32_t pos) {
            const std::int32_t to = cache.compacted(slot);
            if (holds(slot)) source_[at_page(to)] = slot;  // a token may have several slots, not all of them resident
            if (holds(slot) && pos >= begin) next_map_[at_page(to / kPageSlots)] = kWanted;
            return true;
        });
    }
    // A page that has a place keeps it.
    std::ranges::fill(used_, 0);
    for (std::size_t page = 0; page < map_.size(); ++page)
        if (next_map_[page] == kWanted && map_[page] >= 0) {
            next_map_[page] = map_[page];
            used_[at_page(map_[page])] = 1;
        }
    auto place = used_.begin();
    for (std::int32_t& next : next_map_) {
        if (next != kWanted) continue;
        place = std::find(place, used_.end(), 0);
        if (place == used_.end()) return false;
        next = static_cast<std::int32_t>(place++ - used_.begin());
    }
    moves.clear();
    for (std::size_t to = 0; to < source_.size(); ++to) {
        const std::int32_t page = next_map_[to / kPageSlots], from = source_[to];
        if (page >= 0 && from >= 0)
            moves.add(slot(from), page * kPageSlots + static_cast<std::int32_t>(to % kPageSlots));
    }
    return true;
}

void WindowPages::compact() noexcept {
    std::ranges::fill(used_, 0);
    n_mapped_ = n_free_ = 0;
    for (std::size_t page = 0; page < map_.size(); ++page) {
        map_[page] = next_map_[page];
        resident_[page] = 0;
        if (map_[page] < 0) continue;
        used_[at_page(map_[page])] = 1;
        mapped_[at_page(n_mapped_++)] = static_cast<std::int32_t>(page);
        for (std::size_t offset = 0; offset < kPageSlots; ++offset)
            if (source_[page * kPageSlots + offset] >= 0) resident_[page] |= std::uint64_t{1} << offset;
    }
    for (std::size_t place = used_.size(); place-- > 0;)  // the lowest on top
        if (used_[place] == 0) free_[at_page(n_free_++)] = static_cast<std::int32_t>(place);
}

}  // namespace tinfer::memory
