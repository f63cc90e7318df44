// SPDX-License-Identifier: MIT
#include "memory/memory.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "memory/resident.hpp"

namespace tinfer::memory {

Memory::Memory(const MemoryLimits& limits) : limits_(limits) {
    if (limits.has_attention) kv_.emplace(limits.kv);
    if (limits.has_attention) moves_.emplace(limits.kv.n_pages() * kPageSlots);
    if (limits.has_window_pool()) window_.emplace(limits.kv, limits.window, limits.n_batch);
    if (limits.may_have_gaps()) gaps_.emplace(limits.kv);
    if (limits.has_states) states_.emplace(limits.states());
}

std::uint64_t Memory::bytes(const MemoryLimits& limits) {
    return (limits.has_attention ? KvCache::bytes(limits.kv) + SlotMoves::bytes(limits.kv.n_pages() * kPageSlots) : 0) +
           (limits.has_states ? StateCache::bytes(limits.states()) : 0) +
           (limits.has_window_pool() ? WindowPages::bytes(limits.kv, limits.window, limits.n_batch) : 0) +
           (limits.may_have_gaps() ? WindowGaps::bytes(limits.kv) : 0);
}

std::uint64_t Memory::allocated_bytes() const noexcept {
    return (kv_ ? kv_->allocated_bytes() + moves_->allocated_bytes() : 0) + (states_ ? states_->allocated_bytes() : 0) +
           (window_ ? window_->allocated_bytes() : 0) + (gaps_ ? gaps_->allocated_bytes() : 0);
}

void Memory::check(SeqId seq) const {
    const auto id = static_cast<std::int32_t>(seq);
    if (id < 0 || id >= limits_.kv.n_seq_max)
        fail(ErrorCode::bad_sequence, cat("sequence id ", id, " outside 0..", limits_.kv.n_seq_max - 1));
}

// ---- sequence operations --------------------------------------------------------------------------------------------

bool Memory::cuts_state(SeqId seq, Pos p0, Pos p1) const noexcept {
    return states_ && states_->covered(seq, p0, p1) == Covered::part;
}

void Memory::remove(SeqId seq, Pos p0, Pos p1) {
    if (states_ && states_->covered(seq, p0, p1) == Covered::all) states_->drop(seq);
    if (kv_) kv_->seq_rm(seq, p0, p1);
}

RemoveStatus Memory::seq_rm(SeqId seq, Pos p0, Pos p1) {
    check(seq);
    if (cuts_state(seq, p0, p1)) return RemoveStatus::partial_state;
    if (loses_window(seq, p0, p1)) return RemoveStatus::window_lost;
    remove(seq, p0, p1);
    return RemoveStatus::ok;
}

RemoveStatus Memory::rm_all_seqs(Pos p0, Pos p1) {
    for (std::int32_t seq = 0; seq < limits_.kv.n_seq_max; ++seq)
        if (cuts_state(SeqId{seq}, p0, p1)) return RemoveStatus::partial_state;
    for (std::int32_t seq = 0; seq < limits_.kv.n_seq_max; ++seq)
        if (loses_window(SeqId{seq}, p0, p1)) return RemoveStatus::window_lost;
    for (std::int32_t seq = 0; seq < limits_.kv.n_seq_max; ++seq) remove(SeqId{seq}, p0, p1);
    return RemoveStatus::ok;
}

bool Memory::holds(std::int32_t slot) const noexcept {
    return window_ ? window_->holds(slot) : !gaps_ || !gaps_->lacks(*kv_, slot);
}

template <class NewPos>
bool Memory::loses_window(SeqId seq, NewPos new_pos) const noexcept {
    return lacks_something() && would_miss(
                                    *kv_, seen(), seq, [&](std::int32_t slot) { return holds(slot); }, new_pos);
}

bool Memory::loses_window(SeqId seq, Pos p0, Pos p1) const noexcept {
    return loses_window(seq, [&](std::int32_t pos) { return is_in_range(pos, p0, p1) ? -1 : pos; });
}

void Memory::check_window(std::string_view operation, SeqId seq, bool misses) const {
    if (misses)
        fail(
            ErrorCode::unsupported_operation,
            cat(operation, ": sequence ", static_cast<std::int32_t>(seq),
                " would go on without slots of its window, which were released (ContextOptions::swa_full keeps them)"));
}

void Memory::seq_cp(SeqId from, SeqId to, Pos p0, Pos p1) {
    check(from);
    check(to);
    if (from == to) return;
    check_window("seq_cp", to,
                 lacks_something() &&
                     copy_would_miss(*kv_, seen(), from, to, p0, p1, [&](std::int32_t slot) { return holds(slot); }));
    if (!states_) return kv_->seq_cp(from, to, p0, p1);

    // The state of `to` afterwards is that of `from`, or none: nothing may be left of either outside the range.
    const Covered source = states_->covered(from, p0, p1), target = states_->covered(to, p0, p1);
    const bool whole_source = source == Covered::all || states_->count(from) == 0;
    const bool whole_target = target == Covered::all || states_->count(to) == 0;
    if (source == Covered::nothing && target == Covered::nothing) return;
    if (!whole_source || !whole_target)
        fail(ErrorCode::unsupported_operation,
             cat("seq_cp: the range cuts the recurrent state of sequence ",
                 static_cast<std::int32_t>(whole_source ? to : from), ": a state is copied as a whole"));
    if (kv_) kv_->seq_cp(from, to, p0, p1);
    states_->share(from, to);
}

void Memory::seq_keep(SeqId seq) {
    check(seq);
    for (std::int32_t other = 0; other < limits_.kv.n_seq_max; ++other)
        if (SeqId{other} != seq) remove(SeqId{other}, Pos{-1}, Pos{-1});
}

// What of a state lies in the range: none or all of it.
Covered Memory::movable(std::string_view operation, SeqId seq, Pos p0, Pos p1) const {
    check(seq);
    const Covered covered = states_ ? states_->covered(seq, p0, p1) : Covered::nothing;
    if (covered == Covered::part)
        fail(ErrorCode::unsupported_operation, cat(operation, ": the range cuts the recurrent state of sequence ",
                                                   static_cast<std::int32_t>(seq), ": a state moves as a whole"));
    return covered;
}

void Memory::seq_add(SeqId seq, Pos p0, Pos p1, std::int32_t delta) {
    const Covered covered = movable("seq_add", seq, p0, p1);
    if (covered == Covered::all) {
        const std::int64_t last = std::int64_t{states_->pos(seq)} + delta, first = last - states_->count(seq) + 1;
        if (first < 0 || last >= std::numeric_limits<std::int32_t>::max())
            fail(ErrorCode::bad_sequence,
                 cat("sequence ", static_cast<std::int32_t>(seq), ": positions would become ", first, " to ", last));
    }
    check_window("seq_add", seq, loses_window(seq, [&](std::int32_t pos) {
                     return is_in_range(pos, p0, p1) ? std::int64_t{pos} + delta : pos;
                 }));
    if (kv_) kv_->seq_add(seq, p0, p1, delta);
    if (covered == Covered::all) states_->move(seq, delta);
}

void Memory::seq_div(SeqId seq, Pos p0, Pos p1, std::int32_t divisor) {
    if (movable("seq_div", seq, p0, p1) == Covered::all && divisor > 1)
        fail(ErrorCode::unsupported_operation, cat("seq_div: sequence ", static_cast<std::int32_t>(seq),
                                                   " has a recurrent state, which has one position"));
    if (divisor < 1) fail(ErrorCode::bad_sequence, cat("divisor ", divisor, " is less than 1"));
    check_window("seq_div", seq,
                 loses_window(seq, [&](std::int32_t pos) { return is_in_range(pos, p0, p1) ? pos / divisor : pos; }));
    if (window_ && divisor > 1 && crowds_window(seq, p0, p1, divisor))
        fail(ErrorCode::unsupported_operation,
             cat("seq_div: sequence ", static_cast<std::int32_t>(seq), " would have more tokens in a window of ",
                 limits_.window.size,
                 " positions than the pool of such layers has room for (ContextOptions::swa_full "
                 "keeps all of them)"));
    if (kv_) kv_->seq_div(seq, p0, p1, divisor);
}

/// Would tokens with equal positions stand in the window of the sequence's next token? The pool is made for a token at
/// each.
bool Memory::crowds_window(SeqId seq, Pos p0, Pos p1, std::int32_t divisor) const noexcept {
    std::int64_t begin = -1, before = -1;
    bool crowds = false;
    for_each_from_end(*kv_, seq, [&](std::int32_t, std::int32_t pos) {
        const std::int32_t to = is_in_range(pos, p0, p1) ? pos / divisor : pos;
        if (begin < 0) begin = std::max<std::int64_t>(0, limits_.window.begin(std::int64_t{to} + 1));
        crowds = to >= begin && to == std::exchange(before, to);
        return to >= begin && !crowds;
    });
    return crowds;
}

RemoveStatus Memory::shift(SeqId seq, Pos keep, std::int32_t n) {
    check(seq);
    if (n == 0) return RemoveStatus::ok;
    const std::int64_t end = std::int64_t{range_begin(keep)} + n;
    const Pos p0{range_begin(keep)}, p1{end < kRangeToEnd ? static_cast<std::int32_t>(end) : -1};
    if (cuts_state(seq, p0, p1)) return RemoveStatus::partial_state;
    if (loses_window(seq, [&](std::int32_t pos) { return is_in_range(pos, p0, p1) ? -1 : pos < end ? pos : pos - n; }))
        return RemoveStatus::window_lost;
    if (kv_) kv_->shift(seq, p0, p1);
    if (!states_) return RemoveStatus::ok;
    if (states_->covered(seq, p0, p1) == Covered::all) states_->drop(seq);
    else if (states_->pos(seq) >= end) states_->move(seq, -n);
    return RemoveStatus::ok;
}

void Memory::clear() noexcept {
    if (kv_) kv_->clear();
    if (window_) window_->clear();
    if (gaps_) gaps_->clear();
    if (states_) states_->clear();
}

// ---- what is there --------------------------------------------------------------------------------------------------

std::int32_t Memory::pos_min(SeqId seq) const {
    check(seq);
    if (states_) return states_->pos(seq);  // a state has one position: that of its last token
    return lacks_something() ? first_resident(*kv_, seq, [&](std::int32_t slot) { return holds(slot); })
                             : kv_->pos_min(seq);
}

std::int32_t Memory::pos_max(SeqId seq) const {
    check(seq);
    return states_ ? states_->pos(seq) : kv_->pos_max(seq);
}

std::int32_t Memory::count(SeqId seq) const {
    check(seq);
    return states_ ? states_->count(seq) : kv_->count(seq);
}

std::int32_t Memory::used() const noexcept { return kv_ ? kv_->used() : states_->used(); }

std::int32_t Memory::capacity() const noexcept {
    return kv_ ? kv_->n_pages() * kPageSlots : states_->limits().n_rows();
}

std::int32_t Memory::room(SeqId seq) const {
    check(seq);
    const std::int32_t positions =
        std::numeric_limits<std::int32_t>::max() - (pos_max(seq) + 1);  // the last one is 2^31 - 2
    return kv_ ? std::min(kv_->room(seq), positions) : positions;
}

bool Memory::same_history(SeqId a, SeqId b) const {
    check(a);
    check(b);
    return (!kv_ || kv_->same_history(a, b)) && (!states_ || states_->row(a) == states_->row(b));
}

// ---- states from elsewhere ------------------------------------------------------------------------------------------

std::int64_t Memory::window_begin(SeqId seq) const {
    const std::int64_t next = std::int64_t{kv_->pos_max(seq)} + 1;
    return std::min(limits_.window.begin(next), next - 1);
}

bool Memory::adopt(std::span<const KvToken> tokens, std::span<const std::uint8_t> resident,
                   std::span<std::int32_t> slots) {
    if (window_) window_->release_unseen(*kv_);  // before the pages of removed sequences are taken again
    if (!kv_->adopt(tokens, slots)) return false;
    for (std::size_t i = 0; gaps_ && i < tokens.size(); ++i)
        if (resident[i] == 0) gaps_->add(kv_->token_id(slots[i]));
        else gaps_->remove(kv_->token_id(slots[i]));
    if (!window_) return true;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const auto sees = [&](SeqId seq) { return tokens[i].pos >= window_begin(seq); };
        if (resident[i] != 0 && std::ranges::any_of(tokens[i].seqs, sees) && !window_->adopt(slots[i])) return false;
    }
    return true;
}

// ---- transactions ---------------------------------------------------------------------------------------------------

Memory::Fit Memory::fit(std::span<const KvToken> tokens, const Compaction& compaction) {
    placing_ = Placing::by_pages;
    if (!kv_) return Fit::as_it_is;
    const bool fits = kv_->can_place(tokens);
    if (fits && !(window_ && window_->is_scattered(*kv_))) return Fit::as_it_is;
    const Fit otherwise = fits ? Fit::as_it_is : Fit::no_room;
    if (!kv_->can_compact(tokens.size(), *moves_)) return otherwise;
    (void)moves_->write(compaction.moves);
    if (!compaction.window_moves.empty()) std::fill_n(compaction.window_moves.begin(), 3, 0);
    if (!window_) return Fit::compacted;
    if (!window_->can_compact(*kv_, *moves_)) return otherwise;
    (void)moves_->write(compaction.window_moves);
    return Fit::compacted;
}

void Memory::compact(const Compaction& compaction) noexcept {
    if (window_) window_->compact();
    kv_->compact(compaction.moves);
    placing_ = Placing::tight;
}

void Memory::begin() noexcept {
    in_transaction_ = true;
    if (kv_) kv_->begin(placing_);
    if (window_) window_->begin(*kv_);
    if (states_) states_->begin();
}

Placed Memory::place(std::span<const KvToken> run) {
    const Placed placed =
        kv_ ? kv_->place(run) : Placed{std::min(run.size(), static_cast<std::size_t>(limits_.kv.n_run)), false};
    if (window_ && placed.tokens > 0 && !window_->place(*kv_)) return {0, true};
    if (gaps_) gaps_->placed(*kv_);
    if (states_) states_->place(run.first(placed.tokens));
    return placed;
}

void Memory::commit() noexcept {
    in_transaction_ = false;
    if (kv_) kv_->commit();
    if (window_) window_->commit(*kv_);
    if (states_) states_->commit();
}

// The window's pages are released last: they are those that the sequences need without what was cut.
void Memory::commit_cut(std::span<const Pos> ends) noexcept {
    in_transaction_ = false;
    if (kv_) {
        kv_->commit();
        for (std::size_t seq = 0; seq < ends.size(); ++seq)
            kv_->seq_rm(SeqId{static_cast<std::int32_t>(seq)}, ends[seq], Pos{-1});
    }
    if (window_) window_->commit(*kv_);
}

void Memory::rollback() noexcept {
    in_transaction_ = false;
    if (kv_) kv_->rollback();
    if (window_) window_->rollback();
    if (states_) states_->rollback();
}

// ---- the run placed last --------------------------------------------------------------------------------------------

std::span<const PageCopy> Memory::copies() const noexcept { return kv_ ? kv_->copies() : std::span<const PageCopy>(); }

std::span<const PageCopy> Memory::window_copies() const noexcept {
    return window_ ? window_->copies() : std::span<const PageCopy>();
}

void Memory::write_inputs(const MemoryInputs& out, const Memory* seen) const noexcept {
    if (kv_ && seen != nullptr) {
        const KvInputSizes sizes = kv_->write_inputs(out.kv, &*seen->kv_);
        if (seen->window_) seen->window_->write_inputs(out.kv, sizes, out.window_table, {});
    } else if (kv_) {
        const KvInputSizes sizes = kv_->write_inputs(out.kv);
        if (window_) window_->write_inputs(out.kv, sizes, out.window_table, out.window_slots);
    }
    if (states_) states_->write_rows(out.state_rows);
}

}  // namespace tinfer::memory
