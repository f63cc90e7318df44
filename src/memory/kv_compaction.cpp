// SPDX-License-Identifier: MIT
// Compaction. The tokens of all sequences are put into lists, a list for each sequence, each token once, in order. Each
// list fills pages without a gap. Afterwards as many pages are free as if the sequences had just been decoded.
#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "memory/kv_cache.hpp"

namespace tinfer::memory {

/// Orders sequences by length, the longest first, so that what others share with them stays in one piece.
void KvCache::order_by_length() noexcept {
    for (std::int32_t seq = 0; seq < limits_.n_seq_max; ++seq) {
        std::size_t place = index(seq);
        for (; place > 0 && tables_[index(order_[place - 1])].count < tables_[index(seq)].count; --place)
            order_[place] = order_[place - 1];
        order_[place] = SeqId{seq};
    }
}

/// Makes a list of the slots of a sequence that are in no list yet; it begins a page. Slots of other sequences that lie
/// between them are listed too, so that sequences which interleave on a page stay together.
void KvCache::list_slots(SeqId seq) noexcept {
    for (const KvEntry& entry : table(seq)) own_[index(entry.page)] |= entry.live;
    const std::size_t begin = n_listed_;
    for (const KvEntry& entry : table(seq)) {
        const std::uint64_t from = ~std::uint64_t{0} << first_offset(entry.live),
                            to = ~std::uint64_t{0} >> (63 - last_offset(entry.live));
        std::uint64_t slots = from & to & ((occupied_[index(entry.page)] & ~own_[index(entry.page)]) | entry.live);
        for (; slots != 0; slots &= slots - 1) {
            const std::int32_t slot = entry.page * kPageSlots + first_offset(slots);
            std::int32_t& place = place_[index(slots_[index(slot)].token)];
            if (place >= 0) continue;  // the token has another slot, or is listed with others
            place = static_cast<std::int32_t>(n_listed_);
            listed_[n_listed_++] = slot;
        }
    }
    for (const KvEntry& entry : table(seq)) own_[index(entry.page)] = 0;
    if (n_listed_ == begin) return;
    while (n_listed_ % kPageSlots != 0) listed_[n_listed_++] = -1;
}

/// Chooses a page for every 64 listed slots: the page of the first of them if that slot begins a page, else that page
/// if it is free, else any page.
void KvCache::choose_pages() noexcept {
    const auto n_acquired = n_listed_ / kPageSlots;
    const auto acquired = std::span(target_page_).first(n_acquired);
    std::ranges::fill(acquired, -1);
    const auto acquire = [&](std::size_t i, std::int32_t page) {
        if (own_[index(page)] != 0) return false;
        own_[index(page)] = 1;
        acquired[i] = page;
        return true;
    };
    for (std::size_t i = 0; i < n_acquired; ++i)
        if (listed_[i * kPageSlots] % kPageSlots == 0) (void)acquire(i, listed_[i * kPageSlots] / kPageSlots);
    std::int32_t any = 0;
    for (std::size_t i = 0; i < n_acquired; ++i) {
        if (acquired[i] >= 0 || acquire(i, listed_[i * kPageSlots] / kPageSlots)) continue;
        while (!acquire(i, any)) ++any;
    }
    std::ranges::fill(own_, 0);
}

/// Writes the table that a sequence will have, as far as `out` has room.
std::size_t KvCache::pieces(SeqId seq, std::span<KvEntry> out) const noexcept {
    std::size_t n = 0;
    for (const KvEntry& entry : table(seq))
        for (std::uint64_t rest = entry.live; rest != 0; rest &= rest - 1) {
            const std::int32_t slot = compacted(entry.page * kPageSlots + first_offset(rest)), page = slot / kPageSlots;
            const std::uint64_t bit = std::uint64_t{1} << slot % kPageSlots;
            if (n > 0 && out[n - 1].page == page && out[n - 1].live < bit) {
                out[n - 1].live |= bit;
                continue;
            }
            if (n == out.size()) return n + 1;
            out[n++] = {page, 0, bit};
        }
    return n;
}

bool KvCache::can_compact(std::size_t n_tokens, SlotMoves& moves) noexcept {
    TINFER_ASSERT(!in_transaction_);
    if (n_tokens > index(n_free_tokens_)) return false;
    find_occupied();
    std::ranges::fill(place_, -1);
    std::ranges::fill(own_, 0);
    n_listed_ = 0;
    order_by_length();
    for (const SeqId seq : order_) list_slots(seq);
    TINFER_ASSERT(n_listed_ <= listed_.size());  // n_ctx tokens in at most n_seq_max lists
    choose_pages();

    moves.clear();
    for (std::size_t i = 0; i < n_listed_; ++i) {
        if (listed_[i] < 0) continue;
        const std::int32_t to = target_page_[i / kPageSlots] * kPageSlots + static_cast<std::int32_t>(i % kPageSlots);
        place_[index(slots_[index(listed_[i])].token)] = to;
        moves.add(listed_[i], to);
    }
    // As for seq_cp: later tokens may add an entry per page.
    const std::int32_t capacity = limits_.table_capacity();
    const bool may_fill_it = limits_.n_seq_max == 1 || capacity == limits_.n_ctx;
    const auto limit = index(may_fill_it ? capacity : capacity - limits_.n_pages());
    for (std::int32_t seq = 0; seq < limits_.n_seq_max; ++seq)
        if (pieces(SeqId{seq}, std::span(scratch_).first(limit)) > limit) return false;
    return true;
}

void KvCache::compact(std::span<const std::int32_t> moves) noexcept {
    for (Page& page : pages_) page.references = 0;
    for (std::int32_t s = 0; s < limits_.n_seq_max; ++s) {
        const SeqId seq{s};
        const std::size_t n = pieces(seq, scratch_);
        tables_[index(s)].size = static_cast<std::int32_t>(n);
        std::copy_n(scratch_.begin(), n, table(seq).begin());
        std::int32_t ordinal = 0;
        for (KvEntry& entry : table(seq)) {
            entry.first = ordinal;
            ordinal += std::popcount(entry.live);
            ++pages_[index(entry.page)].references;
        }
    }
    Slot buffer{};
    for_each_move(moves, [&](std::int32_t from, std::int32_t to) {
        (to == kMoveBuffer ? buffer : slots_[index(to)]) = from == kMoveBuffer ? buffer : slots_[index(from)];
    });
    n_free_pages_ = 0;
    for (std::int32_t page = limits_.n_pages() - 1; page >= 0; --page)  // the lowest on top
        if (pages_[index(page)].references == 0) free_pages_[index(n_free_pages_++)] = page;
}

}  // namespace tinfer::memory
