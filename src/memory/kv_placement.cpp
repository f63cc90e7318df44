// SPDX-License-Identifier: MIT
// Where the tokens of a decode go, how that is taken back, and what a run is told of it.
#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "memory/kv_cache.hpp"

namespace tinfer::memory {

// ---- placement ------------------------------------------------------------------------------------------------------

/// The page the next token of these sequences goes on with: none where they have no common last page with a free slot
/// after their tokens, shared where another sequence has it too.
KvCache::Tail KvCache::tail(std::span<const SeqId> seqs) const noexcept {
    if (table(seqs[0]).empty()) return Tail::none;
    const KvEntry& end = table(seqs[0]).back();
    for (const SeqId seq : seqs)
        if (table(seq).empty() || table(seq).back().page != end.page) return Tail::none;

    if (is_theirs_alone(end.page, seqs)) return next_offset(seqs) < kPageSlots ? Tail::own : Tail::none;
    return last_offset(end.live) + 1 < kPageSlots ? Tail::shared : Tail::none;
}

bool KvCache::is_theirs_alone(std::int32_t page, std::span<const SeqId> seqs) const noexcept {
    const auto references = index(pages_[index(page)].references);
    if (references == seqs.size()) return true;
    // A page may also stand twice in one table, with tokens copied from elsewhere between.
    std::size_t own = 0;
    for (const SeqId seq : seqs) own += static_cast<std::size_t>(std::ranges::count(table(seq), page, &KvEntry::page));
    return references == own;
}

/// Where the next token goes on the last page of the sequences. On a page that a sequence left in this transaction it
/// lies after those it had there too: they must outlast a rollback.
std::int32_t KvCache::next_offset(std::span<const SeqId> seqs) const noexcept {
    const KvEntry& end = table(seqs[0]).back();
    if (in_transaction_ && placing_ == Placing::tight) return filled(end.page);
    if (end.live == 0) return 0;
    const Page& page = pages_[index(end.page)];
    const std::int32_t kept = in_transaction_ && page.left_in == transaction_ ? page.kept_slots : 0;
    std::int32_t offset = std::max(last_offset(end.live) + 1, kept);
    if (index(page.references) == seqs.size()) return offset;
    for (const SeqId seq : seqs)  // the page stands in a table more than once, in any order
        for (const KvEntry& entry : table(seq))
            if (entry.page == end.page) offset = std::max(offset, last_offset(entry.live) + 1);
    return offset;
}

/// Sees to it that the last page of the sequences is theirs alone and has a free slot after their tokens.
KvCache::Fit KvCache::make_room(std::span<const SeqId> seqs, bool may_wait) noexcept {
    if (placing_ == Placing::tight) return make_room_tightly(seqs);
    const auto tail_kind = tail(seqs);
    if (tail_kind == Tail::own) return Fit::placed;
    const auto from = tail_kind == Tail::shared ? last(seqs[0]).page : -1;
    if (may_wait && from >= 0 && pages_[index(from)].written_in == run_) return Fit::wait;
    if (n_free_pages_ == 0) return Fit::no_room;

    const auto page = free_pages_[index(--n_free_pages_)];
    if (from < 0) return add_entry(seqs, page) ? Fit::placed : Fit::no_room;
    pages_[index(page)].references = static_cast<std::int32_t>(seqs.size());
    std::copy_n(&slots_[index(from * kPageSlots)], kPageSlots, &slots_[index(page * kPageSlots)]);
    Page& left = pages_[index(from)];
    left.references -= static_cast<std::int32_t>(seqs.size());
    left.kept_slots = std::max(left.left_in == transaction_ ? left.kept_slots : 0, last_offset(last(seqs[0]).live) + 1);
    left.left_in = transaction_;
    for (const SeqId seq : seqs) last(seq).page = page;
    if (may_wait) copies_[n_copies_++] = {from, page};
    return Fit::placed;
}

/// Appends this page to each table. False, and nothing has changed, where one has no room for an entry.
bool KvCache::add_entry(std::span<const SeqId> seqs, std::int32_t page) noexcept {
    for (const SeqId seq : seqs)
        if (tables_[index(seq)].size == limits_.table_capacity()) return false;
    pages_[index(page)].references += static_cast<std::int32_t>(seqs.size());
    for (const SeqId seq : seqs) {
        Table& meta = tables_[index(seq)];
        ++meta.size;
        last(seq) = {page, meta.count, 0};
    }
    return true;
}

/// True where the sequences end at the last used slot of their common last page, and that has a free slot.
bool KvCache::can_append_in_place(std::span<const SeqId> seqs) const noexcept {
    if (table(seqs[0]).empty()) return false;
    const std::int32_t page = table(seqs[0]).back().page, end = filled(page);
    return end < kPageSlots && std::ranges::all_of(seqs, [&](SeqId seq) {
               return !table(seq).empty() && table(seq).back().page == page &&
                      last_offset(table(seq).back().live) + 1 == end;
           });
}

/// The page in use with the most free slots after its tokens, or -1 where all are full.
std::int32_t KvCache::emptiest_page() const noexcept {
    std::int32_t found = -1;
    for (std::int32_t page = 0; page < limits_.n_pages(); ++page)
        if (filled(page) < (found < 0 ? kPageSlots : filled(found)) && pages_[index(page)].references > 0) found = page;
    return found;
}

/// Takes a free page while there are some, else the emptiest page, whose last slots other sequences may share.
KvCache::Fit KvCache::make_room_tightly(std::span<const SeqId> seqs) noexcept {
    if (can_append_in_place(seqs)) return Fit::placed;
    const bool has_free_page = n_free_pages_ > 0;
    const std::int32_t page = has_free_page ? free_pages_[index(n_free_pages_ - 1)] : emptiest_page();
    if (page < 0 || !add_entry(seqs, page)) return Fit::no_room;
    if (has_free_page) --n_free_pages_;
    return Fit::placed;
}

KvCache::Fit KvCache::place_one(const KvToken& token, bool may_wait) noexcept {
    if (n_free_tokens_ == 0) return Fit::no_room;
    for (const SeqId seq : token.seqs) save(seq);
    const Fit fit = make_room(token.seqs, may_wait);
    if (fit != Fit::placed) return fit;

    const KvEntry& end = last(token.seqs[0]);
    const auto offset = next_offset(token.seqs);
    const auto id = free_tokens_[index(--n_free_tokens_)];
    slots_[index(end.page * kPageSlots + offset)] = {token.pos, id};
    owners_[index(id)] = static_cast<std::uint16_t>(token.seqs.size());
    pages_[index(end.page)].written_in = run_;
    occupied_[index(end.page)] |= std::uint64_t{1} << offset;
    for (const SeqId seq : token.seqs) {
        last(seq).live |= std::uint64_t{1} << offset;
        ++tables_[index(seq)].count;
    }
    return Fit::placed;
}

bool KvCache::can_place(std::span<const KvToken> tokens) {
    TINFER_ASSERT(!in_transaction_);
    begin();
    bool fits = true;
    for (const KvToken& token : tokens) {
        if (place_one(token, false) == Fit::placed) continue;
        fits = false;
        break;
    }
    rollback();
    return fits;
}

Placed KvCache::place(std::span<const KvToken> run) {
    TINFER_ASSERT(in_transaction_);
    ++run_;
    for (const SeqId seq : std::span(run_sequences_).first(n_run_sequences_)) run_index_[index(seq)] = -1;
    n_run_tokens_ = n_run_sequences_ = n_copies_ = 0;
    for (const KvToken& token : run.first(std::min(run.size(), run_tokens_.size()))) {
        const Fit fit = place_one(token, true);
        if (fit != Fit::placed) return {n_run_tokens_, fit == Fit::no_room};
        const SeqId seq = token.seqs[0];
        const KvEntry& end = last(seq);
        run_tokens_[n_run_tokens_++] = {end.page * kPageSlots + last_offset(end.live), token.pos, run_sequence(seq),
                                        tables_[index(seq)].count};
    }
    return {n_run_tokens_, false};
}

std::int32_t KvCache::run_sequence(SeqId seq) noexcept {
    auto& place = run_index_[index(seq)];
    if (place < 0) {
        place = static_cast<std::int32_t>(n_run_sequences_);
        run_sequences_[n_run_sequences_++] = seq;
    }
    return place;
}

// ---- transactions ---------------------------------------------------------------------------------------------------

/// Slots that are live in some sequence.
void KvCache::find_occupied() noexcept {
    std::ranges::fill(occupied_, 0);
    for (std::int32_t seq = 0; seq < limits_.n_seq_max; ++seq)
        for (const KvEntry& entry : table(SeqId{seq})) occupied_[index(entry.page)] |= entry.live;
}

void KvCache::begin(Placing placing) noexcept {
    in_transaction_ = true;
    placing_ = placing;
    if (placing == Placing::tight) find_occupied();
    n_saved_ = 0;
    saved_free_pages_ = n_free_pages_;
    saved_free_tokens_ = n_free_tokens_;
    ++transaction_;
    ++run_;
}

void KvCache::save(SeqId seq) noexcept {
    if (is_saved_[index(seq)]) return;
    is_saved_[index(seq)] = 1;
    saved_[n_saved_++] = {seq, tables_[index(seq)], table(seq).empty() ? KvEntry{} : table(seq).back()};
}

void KvCache::commit() noexcept {
    for (const Saved& saved : std::span(saved_).first(n_saved_)) is_saved_[index(saved.seq)] = 0;
    in_transaction_ = false;
}

/// place() only takes from the stacks of free pages and ids, so that what it took is still above their tops.
void KvCache::rollback() noexcept {
    for (const Saved& saved : std::span(saved_).first(n_saved_)) {
        for (const KvEntry& entry : table(saved.seq).subspan(index(saved.table.size)))
            --pages_[index(entry.page)].references;
        tables_[index(saved.seq)] = saved.table;
        if (saved.table.size == 0) continue;
        if (last(saved.seq).page != saved.last.page) ++pages_[index(saved.last.page)].references;
        last(saved.seq) = saved.last;
    }
    for (; n_free_pages_ < saved_free_pages_; ++n_free_pages_)
        pages_[index(free_pages_[index(n_free_pages_)])].references = 0;
    for (; n_free_tokens_ < saved_free_tokens_; ++n_free_tokens_)
        owners_[index(free_tokens_[index(n_free_tokens_)])] = 0;
    commit();
}

// ---- inputs of a run ------------------------------------------------------------------------------------------------

std::size_t KvCache::max_run_sequences() const noexcept { return index(std::min(limits_.n_seq_max, limits_.n_run)); }
std::size_t KvCache::max_table_entries() const noexcept {
    return max_run_sequences() * index(limits_.table_capacity());
}

KvInputSizes KvCache::write_inputs(const KvInputs& out, const KvCache* seen) const noexcept {
    const KvCache& of = seen != nullptr ? *seen : *this;
    std::size_t n = 0;
    for (std::size_t i = 0; i < n_run_sequences_; ++i) {
        const auto entries = of.table(run_sequences_[i]);
        out.seqs[2 * i] = static_cast<std::int32_t>(n);
        out.seqs[2 * i + 1] = static_cast<std::int32_t>(entries.size());
        for (const KvEntry& entry : entries) write_table_row(entry, &out.table[4 * n++]);
    }
    for (std::size_t i = 0; i < n_run_tokens_; ++i) {
        const RunToken& token = run_tokens_[i];
        out.slots[i] = token.slot;
        out.positions[i] = token.pos;
    }
    for (std::size_t i = 0; i < out.slot_positions.size(); ++i) out.slot_positions[i] = of.slots_[i].pos;
    return {n, n_run_sequences_};
}

/// Live tokens of the sequence at positions before `pos`: the ordinal of the first one that is not.
std::int32_t KvCache::count_before(SeqId seq, std::int64_t pos) const noexcept {
    const auto entries = table(seq);
    const auto slot_before = [&](const KvEntry& entry, std::uint64_t live) {
        return position(entry.page * kPageSlots + first_offset(live)) < pos;
    };
    const auto behind =
        std::ranges::partition_point(entries, [&](const KvEntry& entry) { return slot_before(entry, entry.live); });
    if (behind == entries.begin()) return 0;
    const KvEntry& entry = *(behind - 1);
    std::int32_t ordinal = entry.first;
    for (std::uint64_t rest = entry.live; rest != 0 && slot_before(entry, rest); rest &= rest - 1) ++ordinal;
    return ordinal;
}

void KvCache::write_spans(const Window& window, std::span<std::int32_t> out, const KvCache* seen) const noexcept {
    const KvCache& of = seen != nullptr ? *seen : *this;
    for (std::size_t i = 0; i < n_run_tokens_; ++i) {
        const RunToken& token = run_tokens_[i];
        const SeqId seq = run_sequences_[index(token.sequence)];
        out[4 * i] = token.sequence;
        out[4 * i + 1] = window.kind == WindowKind::none ? 0 : of.count_before(seq, window.begin(token.pos));
        out[4 * i + 2] = seen != nullptr && window.causal ? of.tables_[index(seq)].count
                         : window.causal                  ? token.end
                                                          : of.count_before(seq, window.end(token.pos));
        out[4 * i + 3] = token.pos;
    }
}

}  // namespace tinfer::memory
