// SPDX-License-Identifier: MIT
#include "memory/kv_cache.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "base/error.hpp"

namespace tinfer::memory {
namespace {

/// Entries a table may have beyond one per page before seq_cp refuses to interleave more.
constexpr std::int32_t kInterleavingRoom = 512;

template <class T>
std::uint64_t bytes_of(const std::vector<T>& values) noexcept {
    return values.capacity() * sizeof(T);
}

}  // namespace

// ---- construction ---------------------------------------------------------------------------------------------------

std::int32_t KvLimits::table_capacity() const noexcept {
    const std::int64_t wide = 2 * std::int64_t{n_pages()} + kInterleavingRoom;
    return n_seq_max == 1 ? n_pages() : static_cast<std::int32_t>(std::min<std::int64_t>(n_ctx, wide));
}

KvCache::KvCache(const KvLimits& limits) : limits_(limits) {
    if (limits.n_ctx < kPageSlots || limits.n_ctx % kPageSlots != 0)
        fail(ErrorCode::bad_parameter, cat("n_ctx = ", limits.n_ctx, " is not a positive multiple of ", kPageSlots));
    if (limits.n_seq_max < 1 || limits.n_seq_max > 256)
        fail(ErrorCode::bad_parameter, cat("n_seq_max = ", limits.n_seq_max, " outside 1..256"));
    if (limits.n_run < 1) fail(ErrorCode::bad_parameter, cat("n_ubatch = ", limits.n_run, " is less than 1"));
    if (limits.n_pages() > std::numeric_limits<std::int32_t>::max() / kPageSlots)
        fail(ErrorCode::limit_exceeded, cat("n_ctx = ", limits.n_ctx, ": slot numbers exceed 31 bits"));

    const auto n_seqs = index(limits.n_seq_max), n_pages = index(limits.n_pages()), n_ctx = index(limits.n_ctx);
    const auto capacity = index(limits.table_capacity());
    entries_.resize(n_seqs * capacity);
    tables_.resize(n_seqs);
    slots_.resize(n_pages * kPageSlots);
    pages_.resize(n_pages);
    free_pages_.resize(n_pages);
    owners_.resize(n_ctx);
    free_tokens_.resize(n_ctx);
    scratch_.resize(2 * capacity + 1);
    saved_.resize(n_seqs);
    is_saved_.resize(n_seqs);
    occupied_.resize(n_pages);
    place_.resize(n_ctx);
    listed_.resize(n_pages * kPageSlots);
    target_page_.resize(n_pages);
    own_.resize(n_pages);
    order_.resize(n_seqs);
    run_tokens_.resize(index(limits.n_run));
    run_sequences_.resize(n_seqs);
    run_index_.resize(n_seqs, -1);
    copies_.resize(n_seqs);
    clear();
}

std::uint64_t KvCache::bytes(const KvLimits& limits) {
    const std::uint64_t n_seqs = index(limits.n_seq_max), n_pages = index(limits.n_pages());
    const std::uint64_t n_ctx = index(limits.n_ctx), capacity = index(limits.table_capacity());
    return (n_seqs * capacity + 2 * capacity + 1) * sizeof(KvEntry) +
           n_pages * (kPageSlots * (sizeof(Slot) + sizeof(std::int32_t)) + sizeof(Page) + 2 * sizeof(std::int32_t) +
                      2 * sizeof(std::uint64_t)) +
           n_ctx * (sizeof(std::uint16_t) + 2 * sizeof(std::int32_t)) + index(limits.n_run) * sizeof(RunToken) +
           n_seqs * (sizeof(Table) + sizeof(Saved) + sizeof(std::uint8_t) + 2 * sizeof(SeqId) + sizeof(std::int32_t) +
                     sizeof(PageCopy));
}

std::uint64_t KvCache::allocated_bytes() const noexcept {
    return bytes_of(entries_) + bytes_of(tables_) + bytes_of(slots_) + bytes_of(pages_) + bytes_of(free_pages_) +
           bytes_of(owners_) + bytes_of(free_tokens_) + bytes_of(scratch_) + bytes_of(saved_) + bytes_of(is_saved_) +
           bytes_of(run_tokens_) + bytes_of(run_sequences_) + bytes_of(run_index_) + bytes_of(copies_) +
           bytes_of(occupied_) + bytes_of(place_) + bytes_of(listed_) + bytes_of(target_page_) + bytes_of(own_) +
           bytes_of(order_);
}

// ---- tables ---------------------------------------------------------------------------------------------------------

void KvCache::check(SeqId seq) const {
    const auto id = static_cast<std::int32_t>(seq);
    if (id < 0 || id >= limits_.n_seq_max)
        fail(ErrorCode::bad_sequence, cat("sequence id ", id, " outside 0..", limits_.n_seq_max - 1));
}

std::span<KvEntry> KvCache::table(SeqId seq) noexcept {
    return std::span(entries_).subspan(index(seq) * index(limits_.table_capacity()), index(tables_[index(seq)].size));
}

std::span<const KvEntry> KvCache::table(SeqId seq) const noexcept {
    return std::span(entries_).subspan(index(seq) * index(limits_.table_capacity()), index(tables_[index(seq)].size));
}

KvEntry& KvCache::last(SeqId seq) noexcept { return table(seq).back(); }

std::span<const KvEntry> KvCache::entries(SeqId seq) const {
    check(seq);
    return table(seq);
}

std::int32_t KvCache::pos_min(SeqId seq) const {
    check(seq);
    const auto entries = table(seq);
    return entries.empty() ? -1 : position(entries.front().page * kPageSlots + first_offset(entries.front().live));
}

std::int32_t KvCache::pos_max(SeqId seq) const {
    check(seq);
    const auto entries = table(seq);
    return entries.empty() ? -1 : position(entries.back().page * kPageSlots + last_offset(entries.back().live));
}

std::int32_t KvCache::count(SeqId seq) const {
    check(seq);
    return tables_[index(seq)].count;
}

std::int32_t KvCache::room(SeqId seq) const {
    check(seq);
    return n_free_tokens_;
}

bool KvCache::same_history(SeqId a, SeqId b) const {
    check(a);
    check(b);
    const auto first = table(a), second = table(b);
    if (std::ranges::equal(first, second)) return true;
    if (count(a) != count(b)) return false;
    // The pages differ, but may be copies of each other: compare token by token.
    std::size_t j = 0;
    std::uint64_t theirs = second.empty() ? 0 : second[0].live;
    for (const KvEntry& entry : first) {
        for (std::uint64_t ours = entry.live; ours != 0; ours &= ours - 1) {
            if (theirs == 0) theirs = second[++j].live;
            const auto slot = entry.page * kPageSlots + first_offset(ours);
            const auto other = second[j].page * kPageSlots + first_offset(theirs);
            if (slots_[index(slot)].token != slots_[index(other)].token) return false;
            theirs &= theirs - 1;
        }
    }
    return true;
}

// ---- sequence operations --------------------------------------------------------------------------------------------

void KvCache::clear() noexcept {
    std::ranges::fill(tables_, Table{});
    for (Page& page : pages_) page.references = 0;
    std::ranges::fill(owners_, std::uint16_t{0});
    n_free_pages_ = limits_.n_pages();
    n_free_tokens_ = limits_.n_ctx;
    has_shifts_ = false;
    // Descending, so that the lowest page is on top.
    std::iota(free_pages_.rbegin(), free_pages_.rend(), 0);
    std::iota(free_tokens_.rbegin(), free_tokens_.rend(), 0);
}

void KvCache::seq_rm(SeqId seq, Pos p0, Pos p1) {
    check(seq);
    TINFER_ASSERT(!in_transaction_);
    remove(seq, range_begin(p0), range_end(p1));
}

void KvCache::rm_all_seqs(Pos p0, Pos p1) {
    for (std::int32_t seq = 0; seq < limits_.n_seq_max; ++seq) seq_rm(SeqId{seq}, p0, p1);
}

void KvCache::seq_keep(SeqId seq) {
    check(seq);
    for (std::int32_t other = 0; other < limits_.n_seq_max; ++other)
        if (SeqId{other} != seq) seq_rm(SeqId{other}, Pos{-1}, Pos{-1});
}

void KvCache::seq_cp(SeqId from, SeqId to, Pos p0, Pos p1) {
    check(from);
    check(to);
    TINFER_ASSERT(!in_transaction_);
    const auto begin = range_begin(p0), end = range_end(p1);
    if (from == to || begin >= end) return;

    // The new table: `to` before the range, `from` inside it, `to` after it. Neighbours on one page become one entry
    // where their slots follow each other as they do; tokens that have moved may lie on the page in another order.
    std::size_t n = 0;
    const auto add = [&](SeqId seq, std::int32_t a, std::int32_t b) {
        for (const KvEntry& entry : table(seq)) {
            const std::uint64_t live = in_range(entry, a, b);
            if (live == 0) continue;
            if (n > 0 && scratch_[n - 1].page == entry.page && last_offset(scratch_[n - 1].live) < first_offset(live))
                scratch_[n - 1].live |= live;
            else scratch_[n++] = {entry.page, 0, live};
        }
    };
    add(to, 0, begin);
    add(from, begin, end);
    if (end != kRangeToEnd) add(to, end, kRangeToEnd);
    // Later appends may add an entry per page; where the capacity is n_ctx they find room in any case.
    const auto capacity = limits_.table_capacity();
    const auto limit = index(capacity == limits_.n_ctx ? capacity : capacity - limits_.n_pages());
    if (n > limit)
        fail(ErrorCode::limit_exceeded, cat("seq_cp: table of sequence ", static_cast<std::int32_t>(to), " would have ",
                                            n, " pieces, limit ", limit));
    replace(to, std::span(scratch_).first(n));
}

/// Bits of the entry whose positions lie in [p0, p1).
std::uint64_t KvCache::in_range(const KvEntry& entry, std::int32_t p0, std::int32_t p1) const noexcept {
    const auto base = entry.page * kPageSlots;
    const auto inside = [&](std::int32_t offset) {
        const auto pos = position(base + offset);
        return pos >= p0 && (pos < p1 || p1 == kRangeToEnd);
    };
    if (inside(first_offset(entry.live)) && inside(last_offset(entry.live))) return entry.live;  // positions ascend
    std::uint64_t bits = 0;
    for (std::uint64_t rest = entry.live; rest != 0; rest &= rest - 1)
        if (inside(first_offset(rest))) bits |= rest & (~rest + 1);
    return bits;
}

void KvCache::remove(SeqId seq, std::int32_t p0, std::int32_t p1) noexcept {
    const auto entries = table(seq);
    std::int32_t kept = 0, ordinal = 0;
    for (KvEntry entry : entries) {
        const std::uint64_t gone = in_range(entry, p0, p1);
        release_tokens(entry.page, gone);
        entry.live &= ~gone;
        entry.first = ordinal;
        ordinal += std::popcount(entry.live);
        if (entry.live == 0) release_page(entry.page);
        else entries[index(kept++)] = entry;
    }
    tables_[index(seq)] = {kept, ordinal};
}

/// Gives a sequence another table. References are taken before old ones are dropped: what is in both stays.
void KvCache::replace(SeqId seq, std::span<const KvEntry> entries) noexcept {
    for (const KvEntry& entry : entries) {
        ++pages_[index(entry.page)].references;
        for (std::uint64_t rest = entry.live; rest != 0; rest &= rest - 1)
            ++owners_[index(slots_[index(entry.page * kPageSlots + first_offset(rest))].token)];
    }
    for (const KvEntry& entry : table(seq)) {
        release_tokens(entry.page, entry.live);
        release_page(entry.page);
    }
    tables_[index(seq)] = {static_cast<std::int32_t>(entries.size()), 0};
    std::ranges::copy(entries, table(seq).begin());
    for (KvEntry& entry : table(seq)) {
        entry.first = tables_[index(seq)].count;
        tables_[index(seq)].count += std::popcount(entry.live);
    }
}

void KvCache::release_tokens(std::int32_t page, std::uint64_t live) noexcept {
    for (; live != 0; live &= live - 1) {
        const auto token = slots_[index(page * kPageSlots + first_offset(live))].token;
        if (--owners_[index(token)] == 0) free_tokens_[index(n_free_tokens_++)] = token;
    }
}

void KvCache::release_page(std::int32_t page) noexcept {
    if (--pages_[index(page)].references == 0) free_pages_[index(n_free_pages_++)] = page;
}

}  // namespace tinfer::memory
