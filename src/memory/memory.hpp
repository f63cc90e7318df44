// SPDX-License-Identifier: MIT
// What a context remembers of its sequences, under one interface: slots with keys and values where the model has
// attention layers, recurrent states where it has recurrent ones, both in hybrids. A sequence operation acts on all
// parts or on none, a decode is one transaction over them (kv_cache.hpp tells how it goes).
#pragma once

#include <optional>
#include <string_view>

#include "memory/kv_cache.hpp"
#include "memory/state_cache.hpp"
#include "memory/window_gaps.hpp"
#include "memory/window_pages.hpp"

namespace tinfer::memory {

struct MemoryLimits {
    KvLimits kv;                ///< n_seq_max and n_run bound the states too
    bool has_attention = true;  ///< some layer keeps keys and values
    bool has_states = false;    ///< some layer keeps a recurrent state
    Window window{};            ///< of layers whose slots lie in a pool of their own; kind none: there are none
    std::int32_t n_batch = 1;   ///< most tokens of a transaction
    Window seen{};              ///< without such a pool: of layers with a window that may lack what it does not reach

    [[nodiscard]] bool has_window_pool() const noexcept { return window.kind != WindowKind::none; }
    [[nodiscard]] bool may_have_gaps() const noexcept {
        return has_attention && !has_window_pool() && seen.kind != WindowKind::none;
    }
    [[nodiscard]] std::int32_t n_window_pages() const noexcept { return WindowPages::n_pages(kv, window, n_batch); }
    [[nodiscard]] StateLimits states() const noexcept { return {kv.n_seq_max, kv.n_run}; }
};

/// Destinations of the inputs of a run.
struct MemoryInputs {
    KvInputs kv;
    std::span<std::int32_t> state_rows;                      ///< {2, T}
    std::span<std::int32_t> window_table{}, window_slots{};  ///< as in kv, for layers with a pool of their own
};

/// Moves of slots as kernels/ops.hpp lists them.
struct Compaction {
    std::span<std::int32_t> moves;           ///< {3, SlotMoves::n_rows(64 · n_pages)}
    std::span<std::int32_t> window_moves{};  ///< likewise, in the pool of windows
    [[nodiscard]] bool empty() const noexcept {
        return moves[2] == 0 && (window_moves.empty() || window_moves[2] == 0);
    }
};

class Memory {
public:
    /// Throws bad_parameter.
    explicit Memory(const MemoryLimits& limits);

    // -- sequence operations, outside transactions; [p0, p1), p0 < 0 means 0, p1 < 0 means to the end. Ids are checked
    // here (bad_sequence). Whatever is refused has changed nothing.

    /// partial_state where the range cuts a recurrent state, window_lost where a window would reach back to released
    /// slots.
    RemoveStatus seq_rm(SeqId seq, Pos p0, Pos p1);
    RemoveStatus rm_all_seqs(Pos p0, Pos p1);
    /// Throws limit_exceeded as KvCache does, and unsupported_operation where the range cuts a recurrent state or
    /// `to` would go on without slots of its window.
    void seq_cp(SeqId from, SeqId to, Pos p0, Pos p1);
    void seq_keep(SeqId seq);
    /// As KvCache does. A recurrent state moves as a whole, and is not divided: unsupported_operation.
    void seq_add(SeqId seq, Pos p0, Pos p1, std::int32_t delta);
    void seq_div(SeqId seq, Pos p0, Pos p1, std::int32_t divisor);
    /// Removes the n positions from `keep` on, and what follows takes their place: all of it or nothing. Throws
    /// shared_cell as seq_add does. n is not negative.
    RemoveStatus shift(SeqId seq, Pos keep, std::int32_t n);
    void clear() noexcept;

    // -- what is there

    [[nodiscard]] std::int32_t pos_min(SeqId seq) const;   ///< first position that every layer still has; -1 when empty
    [[nodiscard]] std::int32_t pos_max(SeqId seq) const;   ///< -1 when empty
    [[nodiscard]] std::int32_t count(SeqId seq) const;     ///< tokens of a sequence
    [[nodiscard]] std::int32_t used() const noexcept;      ///< live tokens; without attention: states
    [[nodiscard]] std::int32_t capacity() const noexcept;  ///< slots; without attention: rows of states
    [[nodiscard]] std::int32_t room(SeqId seq) const;      ///< tokens the sequence can take now
    [[nodiscard]] bool same_history(SeqId a, SeqId b) const;
    /// An empty sequence begins at position 0 and positions have no gaps: recurrent states know no others.
    [[nodiscard]] bool positions_are_counted() const noexcept { return states_.has_value(); }

    /// Rotations that keys have yet to be given (KvCache::drain_shifts).
    [[nodiscard]] bool has_shifts() const noexcept { return kv_ && kv_->has_shifts(); }
    [[nodiscard]] std::size_t drain_shifts(std::span<std::int32_t> slots, std::span<std::int32_t> shifts) noexcept {
        return kv_->drain_shifts(slots, shifts);
    }
    void give_back_shifts(std::span<const std::int32_t> slots, std::span<const std::int32_t> shifts) noexcept {
        kv_->give_back_shifts(slots, shifts);
    }

    // -- loading a state, outside transactions; on a copy of the memory, which is thrown away where it fails

    /// The tokens of empty sequences and the slots they get (KvCache::adopt). `resident`: 1 where layers with a window
    /// have the token too; those that no window can see any more are skipped. False where there is no room.
    [[nodiscard]] bool adopt(std::span<const KvToken> tokens, std::span<const std::uint8_t> resident,
                             std::span<std::int32_t> slots);
    std::int32_t adopt_state(SeqId seq, std::int32_t pos, std::int32_t count) noexcept {
        return states_->adopt(seq, pos, count);
    }
    /// The states of another memory of the same limits.
    void keep_states_of(const Memory& other) { states_ = other.states_; }
    void share_state(SeqId from, SeqId to, std::int32_t pos) noexcept {
        states_->share(from, to);
        states_->move(to, pos - states_->pos(to));
    }
    /// The window of the sequence's next token sees a token that layers with a window do not have. No operation of
    /// memory leads there, a damaged state might.
    [[nodiscard]] bool lacks_window(SeqId seq) const noexcept { return loses_window(seq, Pos{0}, Pos{0}); }
    /// First position that the window of the sequence's next token can see; at most the position of its last token.
    [[nodiscard]] std::int64_t window_begin(SeqId seq) const;
    [[nodiscard]] bool has_window_pool() const noexcept { return window_.has_value(); }
    /// Tokens can be adopted that layers with a window do not have.
    [[nodiscard]] bool may_lack_windows() const noexcept { return window_ || gaps_; }
    /// Layers with a window do not have this slot, although they share the slots of the others.
    [[nodiscard]] bool lacks_in_windows(std::int32_t slot) const noexcept { return gaps_ && gaps_->lacks(*kv_, slot); }
    [[nodiscard]] std::int32_t n_seq_max() const noexcept { return limits_.kv.n_seq_max; }
    [[nodiscard]] const StateCache* states() const noexcept { return states_ ? &*states_ : nullptr; }

    // -- transactions

    /// How the tokens would fit, if at all; changes nothing. After `compacted` the caller makes the moves that
    /// `compaction` lists now in the caches and calls compact(), before begin().
    enum class Fit : std::uint8_t { no_room, as_it_is, compacted };
    [[nodiscard]] Fit fit(std::span<const KvToken> tokens, const Compaction& compaction);
    void compact(const Compaction& compaction) noexcept;
    void begin() noexcept;
    [[nodiscard]] Placed place(std::span<const KvToken> run);
    void commit() noexcept;
    /// The transaction can be committed without the tokens of the sequence from `end` on: there is no recurrent state,
    /// which cannot forget tokens, and no window would reach back to slots that were released since the transaction
    /// began. Otherwise the caller rolls back and computes the kept tokens again.
    [[nodiscard]] bool can_cut(SeqId seq, Pos end) const noexcept {
        return !states_ && !loses_window(seq, end, Pos{-1});
    }
    /// Commits without the tokens from ends[s] on of each sequence s, {n_seq_max}, all of which can be cut.
    void commit_cut(std::span<const Pos> ends) noexcept;
    void rollback() noexcept;
    [[nodiscard]] bool in_transaction() const noexcept { return in_transaction_; }

    // -- the run placed last

    [[nodiscard]] std::span<const PageCopy> copies() const noexcept;         ///< before it computes
    [[nodiscard]] std::span<const PageCopy> window_copies() const noexcept;  ///< likewise, in the pool of windows
    /// `seen`: whose tokens are visible in place of this one's (KvCache::write_inputs).
    void write_inputs(const MemoryInputs& out, const Memory* seen = nullptr) const noexcept;
    /// Where a slot lies in the pool of windows; -1: nowhere.
    [[nodiscard]] std::int32_t window_slot(std::int32_t slot) const noexcept { return window_->slot(slot); }

    /// The slots of attention layers; null where there are none.
    [[nodiscard]] const KvCache* kv() const noexcept { return kv_ ? &*kv_ : nullptr; }

    /// Bytes of metadata; known before it is made.
    [[nodiscard]] static std::uint64_t bytes(const MemoryLimits& limits);
    [[nodiscard]] std::uint64_t allocated_bytes() const noexcept;

private:
    void check(SeqId seq) const;
    /// Layers with a window may lack tokens that sequences remember: in a pool, and where a state without them came in.
    [[nodiscard]] bool lacks_something() const noexcept { return window_ || (gaps_ && gaps_->any()); }
    [[nodiscard]] const Window& seen() const noexcept { return window_ ? limits_.window : limits_.seen; }
    /// Layers with a window have the keys and values of this slot.
    [[nodiscard]] bool holds(std::int32_t slot) const noexcept;
    /// Would a window miss something once tokens stand at new_pos(position), or without those in [p0, p1)?
    template <class NewPos>
    [[nodiscard]] bool loses_window(SeqId seq, NewPos new_pos) const noexcept;
    [[nodiscard]] bool loses_window(SeqId seq, Pos p0, Pos p1) const noexcept;
    void check_window(std::string_view operation, SeqId seq, bool misses) const;
    [[nodiscard]] bool cuts_state(SeqId seq, Pos p0, Pos p1) const noexcept;
    [[nodiscard]] bool crowds_window(SeqId seq, Pos p0, Pos p1, std::int32_t divisor) const noexcept;
    void remove(SeqId seq, Pos p0, Pos p1);
    [[nodiscard]] Covered movable(std::string_view operation, SeqId seq, Pos p0, Pos p1) const;

    MemoryLimits limits_;
    std::optional<KvCache> kv_;
    std::optional<WindowPages> window_;  // places of its pages in layers that have a window
    std::optional<WindowGaps> gaps_;     // what such layers lack where they have no pool
    std::optional<StateCache> states_;
    std::optional<SlotMoves> moves_;  // of either pool, one after the other
    Placing placing_ = Placing::by_pages;
    bool in_transaction_ = false;
};

}  // namespace tinfer::memory
