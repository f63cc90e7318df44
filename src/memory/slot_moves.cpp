// SPDX-License-Identifier: MIT
#include "memory/slot_moves.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tinfer::memory {

SlotMoves::SlotMoves(std::int32_t n_slots)
    : source_(at(n_slots), -1), target_(at(n_slots), -1), targets_(at(n_slots)) {}

std::uint64_t SlotMoves::allocated_bytes() const noexcept {
    return (source_.capacity() + target_.capacity() + targets_.capacity()) * sizeof(std::int32_t);
}

void SlotMoves::clear() noexcept {
    std::ranges::fill(source_, -1);
    std::ranges::fill(target_, -1);
    n_targets_ = 0;
}

void SlotMoves::add(std::int32_t from, std::int32_t to) noexcept {
    if (from == to) return;
    TINFER_ASSERT(target_[at(from)] < 0 && source_[at(to)] < 0);
    target_[at(from)] = to;
    source_[at(to)] = from;
    targets_[n_targets_++] = to;
}

/// Adds a copy to the list, or extends the last one where it continues it.
void SlotMoves::emit(std::int32_t from, std::int32_t to) noexcept {
    std::int32_t* const last = n_rows_ > 0 ? &out_[3 * (n_rows_ - 1)] : nullptr;
    if (last != nullptr && from >= 0 && to >= 0 && last[0] >= 0 && last[1] >= 0 && last[0] + last[2] == from &&
        last[1] + last[2] == to) {
        ++last[2];
        return;
    }
    std::int32_t* const row = &out_[3 * n_rows_++];
    row[0] = from;
    row[1] = to;
    row[2] = 1;
}

/// Fills a slot whose own content is no longer needed or was moved before.
void SlotMoves::fill(std::int32_t target) noexcept {
    const std::int32_t from = source_[at(target)];
    emit(from, target);
    target_[at(from)] = -1;
    source_[at(target)] = -1;
}

std::size_t SlotMoves::write(std::span<std::int32_t> out) noexcept {
    out_ = out;
    n_rows_ = 0;
    const auto targets = std::span(targets_).first(n_targets_);
    // First the targets that are free when their move is made. Where all slots move towards the front that is all of
    // them, and neighbours stay in one copy.
    for (const std::int32_t target : targets)
        if (target_[at(target)] < 0) fill(target);
    // Then chains of slots, each from its free end.
    for (std::int32_t target : targets)
        while (source_[at(target)] >= 0 && target_[at(target)] < 0) {
            const std::int32_t freed = source_[at(target)];
            fill(target);
            target = freed;
        }
    // Cycles are left. One slot of each goes through the buffer.
    for (std::int32_t target : targets) {
        if (source_[at(target)] < 0) continue;
        const std::int32_t buffered = target, to = target_[at(target)];
        emit(buffered, kMoveBuffer);
        while (target != to) {
            const std::int32_t freed = source_[at(target)];
            fill(target);
            target = freed;
        }
        emit(kMoveBuffer, to);
        source_[at(to)] = target_[at(buffered)] = -1;
    }
    n_targets_ = 0;
    std::fill_n(&out_[3 * n_rows_], 3, 0);
    out_ = {};
    return n_rows_;
}

}  // namespace tinfer::memory
