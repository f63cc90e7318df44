// SPDX-License-Identifier: MIT
// Moves tokens to other positions. The positions change at once; by how much each key must still be rotated is kept per
// slot until the runtime rotates it.
#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.hpp"
#include "memory/kv_cache.hpp"

namespace tinfer::memory {

namespace {

constexpr std::int32_t kHighestPosition = std::numeric_limits<std::int32_t>::max() - 1;

}  // namespace

/// Calls fn(slot) for every token of a sequence, positions ascending.
template <class Fn>
void KvCache::for_each_slot(SeqId seq, Fn&& fn) {
    for (const KvEntry& entry : table(seq))
        for (std::uint64_t rest = entry.live; rest != 0; rest &= rest - 1)
            fn(slots_[index(entry.page * kPageSlots + std::countr_zero(rest))]);
}

void KvCache::refuse_shared(std::int32_t token) {
    std::string owners;
    for (std::int32_t seq = 0; seq < limits_.n_seq_max; ++seq)
        for_each_slot(SeqId{seq}, [&](const Slot& slot) {
            if (slot.token == token) owners += cat(owners.empty() ? "" : ", ", seq);
        });
    fail(ErrorCode::shared_cell, cat("cell shared by sequences [", owners, "] cannot be shifted"));
}

/// Throws where the move is not possible: a key in a shared slot cannot be rotated for one sequence alone, and
/// positions must stay in the order of the table.
void KvCache::check_move(SeqId seq, std::int32_t begin, std::int32_t end, const Move& move) {
    std::int64_t before = -1;   // position of the token before this one, after the move
    bool before_moves = false;  // tokens that both move, or both stay, may have equal positions
    for_each_slot(seq, [&](const Slot& slot) {
        const bool moves = slot.pos >= begin && slot.pos < end;
        const std::int64_t to = moves ? move.to(slot.pos) : slot.pos;
        if (moves && owners_[index(slot.token)] > 1) refuse_shared(slot.token);
        if (to < 0 && before < 0) return;  // it leaves the sequence, and no token before it stays
        if (to > kHighestPosition || to < before || (to == before && moves != before_moves))
            fail(ErrorCode::bad_sequence, cat("sequence ", static_cast<std::int32_t>(seq), ": position ", slot.pos,
                                              " would become ", to, ", behind ", before));
        before = to;
        before_moves = moves;
    });
}

void KvCache::move(SeqId seq, Pos p0, Pos p1, const Move& move) {
    check(seq);
    TINFER_ASSERT(!in_transaction_);
    const std::int32_t begin = range_begin(p0), end = range_end(p1);
    check_move(seq, begin, end, move);
    if (move.delta < 0)
        remove(seq, begin, static_cast<std::int32_t>(std::min<std::int64_t>(end, -std::int64_t{move.delta})));
    renumber(seq, begin, end, move);
}

void KvCache::renumber(SeqId seq, std::int32_t begin, std::int32_t end, const Move& move) noexcept {
    for_each_slot(seq, [&](Slot& slot) {
        if (slot.pos < begin || slot.pos >= end) return;
        const auto to = static_cast<std::int32_t>(move.to(slot.pos));
        slot.shift += to - slot.pos;
        slot.pos = to;
        has_shifts_ = has_shifts_ || slot.shift != 0;
    });
}

void KvCache::shift(SeqId seq, Pos p0, Pos p1) {
    check(seq);
    TINFER_ASSERT(!in_transaction_);
    const std::int32_t begin = range_begin(p0), end = range_end(p1);
    for_each_slot(seq, [&](const Slot& slot) {
        if (slot.pos >= end && owners_[index(slot.token)] > 1) refuse_shared(slot.token);
    });
    remove(seq, begin, end);
    renumber(seq, end, kRangeToEnd, {.delta = begin - end});
}

void KvCache::seq_add(SeqId seq, Pos p0, Pos p1, std::int32_t delta) {
    check(seq);
    if (delta != 0) move(seq, p0, p1, {.delta = delta});
}

void KvCache::seq_div(SeqId seq, Pos p0, Pos p1, std::int32_t divisor) {
    check(seq);
    if (divisor < 1) fail(ErrorCode::bad_sequence, cat("divisor ", divisor, " is less than 1"));
    if (divisor > 1) move(seq, p0, p1, {.divisor = divisor});
}

// ---- rotations that keys have yet to be given -----------------------------------------------------------------------

std::size_t KvCache::drain_shifts(std::span<std::int32_t> slots, std::span<std::int32_t> shifts) noexcept {
    std::size_t n = 0;
    for (std::int32_t seq = 0; seq < limits_.n_seq_max && has_shifts_; ++seq)
        for_each_slot(SeqId{seq}, [&](Slot& slot) {
            if (slot.shift == 0 || n == slots.size()) return;
            slots[n] = static_cast<std::int32_t>(&slot - slots_.data());
            shifts[n++] = slot.shift;
            slot.shift = 0;
        });
    has_shifts_ = n == slots.size();  // then there may be more
    return n;
}

void KvCache::give_back_shifts(std::span<const std::int32_t> slots, std::span<const std::int32_t> shifts) noexcept {
    for (std::size_t i = 0; i < slots.size(); ++i) slots_[index(slots[i])].shift += shifts[i];
    has_shifts_ = has_shifts_ || !slots.empty();
}

}  // namespace tinfer::memory
