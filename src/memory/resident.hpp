// SPDX-License-Identifier: MIT
// Is a token still there? Layers with a window may lack tokens that their sequence remembers: the pool has released
// them (WindowPages), or they came with a state and no window saw them when it was saved (WindowGaps). Both tell it
// slot by slot. What follows for a sequence, or for what an operation would make of it, is decided here alone.
#pragma once

#include "memory/kv_cache.hpp"

namespace tinfer::memory {

/// Calls fn(slot, position) for the tokens of a sequence, last first, until it returns false.
template <class Fn>
void for_each_from_end(const KvCache& cache, SeqId seq, Fn fn) {
    const auto entries = cache.entries(seq);
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry)
        for (std::uint64_t live = entry->live; live != 0;) {
            const std::int32_t offset = last_offset(live);
            if (!fn(entry->page * kPageSlots + offset, cache.position(entry->page * kPageSlots + offset))) return;
            live &= ~(std::uint64_t{1} << offset);
        }
}

/// Does the window of a sequence's next token miss something? Takes the tokens of the sequence, last first.
class WindowCheck {
public:
    explicit WindowCheck(const Window& window) noexcept : window_(window) {}
    /// False: nothing more has to be looked at.
    bool add(std::int64_t pos, bool is_resident) noexcept {
        if (begin_ < 0) begin_ = std::max<std::int64_t>(0, window_.begin(pos + 1));
        if (pos < begin_) return false;
        misses_ = !is_resident;
        return is_resident;
    }
    [[nodiscard]] bool misses() const noexcept { return misses_; }

private:
    const Window& window_;
    std::int64_t begin_ = -1;  // of the window; known once the last token is
    bool misses_ = false;
};

/// First position of a sequence from which on nothing is missing; -1 where it is empty, or lacks its last token.
template <class IsResident>
std::int32_t first_resident(const KvCache& cache, SeqId seq, IsResident is_resident) {
    std::int32_t first = -1;
    for_each_from_end(cache, seq, [&](std::int32_t slot, std::int32_t pos) {
        if (!is_resident(slot)) return false;
        first = pos;
        return true;
    });
    return first;
}

/// Would the window miss something once the tokens stand at new_pos(position), where those below 0 are gone? Tokens
/// must keep their order.
template <class IsResident, class NewPos>
bool would_miss(const KvCache& cache, const Window& window, SeqId seq, IsResident is_resident, NewPos new_pos) {
    WindowCheck check(window);
    for_each_from_end(cache, seq, [&](std::int32_t slot, std::int32_t pos) {
        const std::int64_t to = new_pos(pos);
        return to < 0 || check.add(to, is_resident(slot));
    });
    return check.misses();
}

/// Would that of `to`, once it has the tokens of `from` in [p0, p1) in place of its own?
template <class IsResident>
bool copy_would_miss(const KvCache& cache, const Window& window, SeqId from, SeqId to, Pos p0, Pos p1,
                     IsResident is_resident) {
    WindowCheck check(window);
    bool goes_on = true;
    const auto add_part = [&](SeqId seq, std::int32_t begin, std::int32_t end) {
        for_each_from_end(cache, seq, [&](std::int32_t slot, std::int32_t pos) {
            if (pos >= begin && pos < end) goes_on = goes_on && check.add(pos, is_resident(slot));
            return goes_on && pos >= begin;
        });
    };
    const std::int32_t begin = range_begin(p0), end = std::max(begin, range_end(p1));
    add_part(to, end, kRangeToEnd);
    add_part(from, begin, end);
    add_part(to, 0, begin);
    return check.misses();
}

}  // namespace tinfer::memory
