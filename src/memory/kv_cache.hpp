// SPDX-License-Identifier: MIT
// Which token lies where in the KV cache: pages of 64 slots, one table of pages per sequence, reference counts.
// Metadata only: the K and V rows belong to the runtime, addressed by slot = page · 64 + offset. Sharing a prefix costs
// one reference per page; a partly filled shared page is copied when one of its owners goes on alone; removing tokens
// clears mask bits.
//
// The holes this leaves, and slots that hold a copy, are no loss: n_ctx tokens fit, whatever came before. Where they do
// not fit as the pages lie, the cache is compacted: live slots move together, in order, and what follows is placed
// tightly.
//
// A decode is a transaction:
//     const bool fits = cache.can_place(tokens);                      // by pages
//     if (!fits && !cache.can_compact(tokens.size(), moves)) return DecodeStatus::no_room;   // nothing changed
//     if (!fits) … move slots of every layer, cache.compact(…) …      // histories and positions stay
//     cache.begin(fits ? Placing::by_pages : Placing::tight);
//     while (!tokens.empty()) {
//         const auto placed = cache.place(tokens.first(…));           // at most n_run tokens, maybe fewer
//         … copy the pages of cache.copies(), then compute with cache.write_inputs(…) …
//         tokens = tokens.subspan(placed.tokens);
//     }
//     cache.commit();                                                 // or rollback(): as before begin()
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/window.hpp"
#include "memory/slot_moves.hpp"
#include "tinfer/context.hpp"

namespace tinfer::memory {

inline constexpr std::int32_t kPageSlots = 64;

/// Ranges [p0, p1) as callers give them: p0 < 0 means 0, p1 < 0 means to the end. Every position is below kRangeToEnd.
inline constexpr std::int32_t kRangeToEnd = std::numeric_limits<std::int32_t>::max();
[[nodiscard]] inline std::int32_t range_begin(Pos p0) noexcept { return std::max(0, static_cast<std::int32_t>(p0)); }
[[nodiscard]] inline std::int32_t range_end(Pos p1) noexcept {
    return p1 < Pos{0} ? kRangeToEnd : static_cast<std::int32_t>(p1);
}
[[nodiscard]] inline bool is_in_range(std::int32_t pos, Pos p0, Pos p1) noexcept {
    return pos >= range_begin(p0) && pos < range_end(p1);
}

/// What every array of a cache is sized by, once, at construction.
struct KvLimits {
    std::int32_t n_ctx = kPageSlots;  ///< live tokens in all; a multiple of kPageSlots
    std::int32_t n_seq_max = 1;
    std::int32_t n_run = 1;  ///< most tokens of one place(): the micro-batch

    /// One more page per further sequence: n_ctx tokens fit however they are spread over the sequences.
    [[nodiscard]] std::int32_t n_pages() const noexcept { return n_ctx / kPageSlots + n_seq_max - 1; }
    /// Entries one table can hold. Tables have an entry per page, more only where partial copies interleave the pages
    /// of two sequences; an entry holds a live token, so n_ctx is enough for anything.
    [[nodiscard]] std::int32_t table_capacity() const noexcept;
};

/// A token as the cache sees it: where it stands, and in which sequences (the first one is whose slots it attends to).
struct KvToken {
    std::int32_t pos = 0;
    std::span<const SeqId> seqs;
};

/// A piece of a sequence in ascending position: the slots of `page` whose bits are set in `live`.
struct KvEntry {
    std::int32_t page = 0;
    std::int32_t first = 0;  ///< ordinal of the first of them: live tokens of the sequence before it
    std::uint64_t live = 0;
    bool operator==(const KvEntry&) const = default;
};
/// A row of the input kv_table {4, n} (kernels/ops.hpp): page, first, the lower and the upper half of live.
inline void write_table_row(const KvEntry& entry, std::int32_t* row) noexcept {
    row[0] = entry.page;
    row[1] = entry.first;
    row[2] = static_cast<std::int32_t>(static_cast<std::uint32_t>(entry.live));
    row[3] = static_cast<std::int32_t>(static_cast<std::uint32_t>(entry.live >> 32));
}

/// The first and the last set bit; the mask of a table's entry is never 0.
[[nodiscard]] inline std::int32_t first_offset(std::uint64_t live) noexcept { return std::countr_zero(live); }
[[nodiscard]] inline std::int32_t last_offset(std::uint64_t live) noexcept { return 63 - std::countl_zero(live); }

struct PageCopy {
    std::int32_t from = 0, to = 0;
    bool operator==(const PageCopy&) const = default;
};

/// by_pages: a sequence fills pages of its own, and one that diverges from others gets a copy of the partly filled page
/// that they share. tight: any free slot at the end of a page will do, and nothing is copied.
enum class Placing : std::uint8_t { by_pages, tight };

struct Placed {
    std::size_t tokens = 0;  ///< of the run, from its begin
    bool no_room = false;    ///< the next token needs a page and none is free, or n_ctx tokens live
};

/// Destinations of the inputs of a run, formats as in kernels/ops.hpp.
struct KvInputs {
    std::span<std::int32_t> table;             ///< {4, max_table_entries()}
    std::span<std::int32_t> seqs;              ///< {2, max_run_sequences()}
    std::span<std::int32_t> slots;             ///< {T}
    std::span<std::int32_t> positions;         ///< {T}
    std::span<std::int32_t> slot_positions{};  ///< {64 · n_pages}, or empty where nobody asks
};

struct KvInputSizes {
    std::size_t entries = 0, sequences = 0;
};

/// Positions ascend with the slots of a page and with the entries of a table, strictly but for tokens that a seq_div
/// joined. Sequence ids are checked where they come from callers (bad_sequence); those of tokens are the batch's to
/// check.
class KvCache {
public:
    /// Throws bad_parameter.
    explicit KvCache(const KvLimits& limits);

    // -- sequence operations, outside transactions; [p0, p1), p0 < 0 means 0, p1 < 0 means to the end

    void seq_rm(SeqId seq, Pos p0, Pos p1);
    void rm_all_seqs(Pos p0, Pos p1);
    /// `to` shares the tokens of `from` in the range, after its own there are removed. Throws limit_exceeded, with
    /// nothing changed, where so many partial copies interleave that the table of `to` overflows.
    void seq_cp(SeqId from, SeqId to, Pos p0, Pos p1);
    void seq_keep(SeqId seq);
    /// Positions of the range change by `delta`, or are divided and rounded down; tokens that would stand before 0
    /// leave the sequence. Throws bad_sequence where the order would break, shared_cell where another sequence has a
    /// token too; nothing has changed then.
    void seq_add(SeqId seq, Pos p0, Pos p1, std::int32_t delta);
    void seq_div(SeqId seq, Pos p0, Pos p1, std::int32_t divisor);
    /// Removes the range and moves what is behind it to where it began. Throws shared_cell likewise.
    void shift(SeqId seq, Pos p0, Pos p1);
    void clear() noexcept;

    // -- what is there

    [[nodiscard]] std::int32_t pos_min(SeqId seq) const;  ///< -1 when empty
    [[nodiscard]] std::int32_t pos_max(SeqId seq) const;  ///< -1 when empty
    [[nodiscard]] std::int32_t count(SeqId seq) const;    ///< tokens of a sequence
    [[nodiscard]] std::int32_t used() const noexcept { return limits_.n_ctx - n_free_tokens_; }  ///< live tokens in all
    /// Tokens the sequence can take now: as many as are missing to n_ctx, whatever lies where.
    [[nodiscard]] std::int32_t room(SeqId seq) const;
    [[nodiscard]] std::span<const KvEntry> entries(SeqId seq) const;
    [[nodiscard]] std::int32_t position(std::int32_t slot) const noexcept { return slots_[index(slot)].pos; }
    /// Of a live slot, 0 … n_ctx-1: slots that hold copies of one token have the same.
    [[nodiscard]] std::int32_t token_id(std::int32_t slot) const noexcept { return slots_[index(slot)].token; }
    /// The same tokens in the same order, wherever they lie.
    [[nodiscard]] bool same_history(SeqId a, SeqId b) const;
    [[nodiscard]] const KvLimits& limits() const noexcept { return limits_; }
    [[nodiscard]] std::int32_t n_pages() const noexcept { return limits_.n_pages(); }
    [[nodiscard]] std::int32_t n_pages_free() const noexcept { return n_free_pages_; }

    // -- rotations that the keys of moved tokens have yet to be given

    [[nodiscard]] bool has_shifts() const noexcept { return has_shifts_; }
    /// Slots and by how many positions each is to be rotated, as many as there is room for; they count as done.
    [[nodiscard]] std::size_t drain_shifts(std::span<std::int32_t> slots, std::span<std::int32_t> shifts) noexcept;
    void give_back_shifts(std::span<const std::int32_t> slots, std::span<const std::int32_t> shifts) noexcept;

    // -- tokens whose keys and values come from elsewhere, outside transactions

    /// Gives each token a slot in free pages and makes the tables of its sequences, which are empty; positions ascend
    /// in each. False where they do not fit as pages lie; the cache is of no use then.
    [[nodiscard]] bool adopt(std::span<const KvToken> tokens, std::span<std::int32_t> slots);

    // -- compaction, outside transactions

    /// Would n tokens fit after compaction? Adds the moves that it takes to `moves`; changes nothing else. False also
    /// where partial copies have cut a sequence into more pieces than a table holds.
    [[nodiscard]] bool can_compact(std::size_t n_tokens, SlotMoves& moves) noexcept;
    /// The new slot of a live slot, once can_compact() has returned true.
    [[nodiscard]] std::int32_t compacted(std::int32_t slot) const noexcept {
        return place_[index(slots_[index(slot)].token)];
    }
    /// Does it, after the runtime has moved keys and values by the list.
    void compact(std::span<const std::int32_t> moves) noexcept;

    // -- transactions

    /// Would all of them fit, placed by pages? Changes nothing; not inside a transaction.
    [[nodiscard]] bool can_place(std::span<const KvToken> tokens);
    void begin(Placing placing = Placing::by_pages) noexcept;
    /// Gives each token a slot, in order, at most n_run of them. Stops early at a token that needs a copy of a page
    /// this run writes to: the copy has to wait for the run, the token for the next one.
    [[nodiscard]] Placed place(std::span<const KvToken> run);
    void commit() noexcept;
    void rollback() noexcept;  ///< as before begin(), free lists included
    [[nodiscard]] bool in_transaction() const noexcept { return in_transaction_; }

    // -- the run placed last

    /// Pages to copy before it computes, in every layer. No source is a destination, so any order will do.
    [[nodiscard]] std::span<const PageCopy> copies() const noexcept { return std::span(copies_).first(n_copies_); }
    /// `seen`: the cache whose tokens of these sequences are visible, of the same limits; null: this one's.
    KvInputSizes write_inputs(const KvInputs& out, const KvCache* seen = nullptr) const noexcept;
    /// fn(sequence, slot, position) for each token, in order; the sequence is its first.
    template <class Fn>
    void for_each_placed(Fn&& fn) const {
        for (const RunToken& token : std::span(run_tokens_).first(n_run_tokens_))
            fn(run_sequences_[index(token.sequence)], token.slot, token.pos);
    }
    /// What each token sees of its first sequence: kv_spans {4, T} of kernels/ops.hpp. Of another cache: all tokens
    /// that the window reaches, as if the token stood behind them.
    void write_spans(const Window& window, std::span<std::int32_t> out, const KvCache* seen = nullptr) const noexcept;
    [[nodiscard]] std::size_t max_run_sequences() const noexcept;
    [[nodiscard]] std::size_t max_table_entries() const noexcept;

    /// Bytes of metadata a cache holds; known before it is made.
    [[nodiscard]] static std::uint64_t bytes(const KvLimits& limits);
    [[nodiscard]] std::uint64_t allocated_bytes() const noexcept;

private:
    /// A live token has an id that survives the copying of its page, so that used() and histories do not see copies.
    struct Slot {
        std::int32_t pos;
        std::int32_t token;
        std::int32_t shift = 0;  ///< positions by which its keys have yet to be rotated
    };
    /// Where a token goes; the quotient of positions, which are not negative, is rounded down.
    struct Move {
        std::int32_t delta = 0, divisor = 1;
        [[nodiscard]] std::int64_t to(std::int32_t pos) const noexcept { return (std::int64_t{pos} + delta) / divisor; }
    };
    struct Page {
        std::int32_t references;   ///< table entries that name it
        std::int32_t kept_slots;   ///< slots from its begin that the transaction `left_in` may not write to
        std::uint64_t left_in;     ///< last transaction in which a sequence went on with a copy of it
        std::uint64_t written_in;  ///< last run that wrote to it
    };
    struct Table {
        std::int32_t size;   ///< entries
        std::int32_t count;  ///< tokens
    };
    /// What place() can change of a table: its last entry and what comes after.
    struct Saved {
        SeqId seq;
        Table table;
        KvEntry last;
    };
    struct RunToken {
        std::int32_t slot, pos;
        std::int32_t sequence;  ///< index into run_sequences_
        std::int32_t end;       ///< one past its own ordinal
    };
    enum class Fit : std::uint8_t { placed, no_room, wait };
    enum class Tail : std::uint8_t { none, own, shared };

    [[nodiscard]] static std::size_t index(std::int32_t value) noexcept { return static_cast<std::size_t>(value); }
    [[nodiscard]] static std::size_t index(SeqId seq) noexcept { return static_cast<std::size_t>(seq); }
    void check(SeqId seq) const;
    [[nodiscard]] std::span<KvEntry> table(SeqId seq) noexcept;
    [[nodiscard]] std::span<const KvEntry> table(SeqId seq) const noexcept;
    [[nodiscard]] KvEntry& last(SeqId seq) noexcept;

    [[nodiscard]] std::uint64_t in_range(const KvEntry& entry, std::int32_t p0, std::int32_t p1) const noexcept;
    void remove(SeqId seq, std::int32_t p0, std::int32_t p1) noexcept;
    template <class Fn>
    void for_each_slot(SeqId seq, Fn&& fn);
    void move(SeqId seq, Pos p0, Pos p1, const Move& move);
    void renumber(SeqId seq, std::int32_t begin, std::int32_t end, const Move& move) noexcept;
    void check_move(SeqId seq, std::int32_t begin, std::int32_t end, const Move& move);
    [[noreturn]] void refuse_shared(std::int32_t token);
    void replace(SeqId seq, std::span<const KvEntry> entries) noexcept;
    void release_tokens(std::int32_t page, std::uint64_t live) noexcept;
    void release_page(std::int32_t page) noexcept;

    [[nodiscard]] Tail tail(std::span<const SeqId> seqs) const noexcept;
    [[nodiscard]] bool is_theirs_alone(std::int32_t page, std::span<const SeqId> seqs) const noexcept;
    [[nodiscard]] std::int32_t next_offset(std::span<const SeqId> seqs) const noexcept;
    [[nodiscard]] Fit make_room(std::span<const SeqId> seqs, bool may_wait) noexcept;
    [[nodiscard]] Fit make_room_tightly(std::span<const SeqId> seqs) noexcept;
    [[nodiscard]] bool can_append_in_place(std::span<const SeqId> seqs) const noexcept;
    [[nodiscard]] std::int32_t emptiest_page() const noexcept;
    [[nodiscard]] bool add_entry(std::span<const SeqId> seqs, std::int32_t page) noexcept;
    void find_occupied() noexcept;
    [[nodiscard]] std::int32_t filled(std::int32_t page) const noexcept {
        return 64 - std::countl_zero(occupied_[index(page)]);
    }

    void order_by_length() noexcept;
    void list_slots(SeqId seq) noexcept;
    void choose_pages() noexcept;
    [[nodiscard]] std::size_t pieces(SeqId seq, std::span<KvEntry> out) const noexcept;
    [[nodiscard]] Fit place_one(const KvToken& token, bool may_wait) noexcept;
    [[nodiscard]] std::int32_t run_sequence(SeqId seq) noexcept;
    [[nodiscard]] std::int32_t count_before(SeqId seq, std::int64_t pos) const noexcept;
    void save(SeqId seq) noexcept;

    KvLimits limits_;
    std::vector<KvEntry> entries_;           // {table_capacity, n_seq_max}
    std::vector<Table> tables_;              // {n_seq_max}
    std::vector<Slot> slots_;                // {64, n_pages}
    std::vector<Page> pages_;                // {n_pages}
    std::vector<std::int32_t> free_pages_;   // a stack; what is above the top is what a transaction took
    std::vector<std::uint16_t> owners_;      // {n_ctx}: sequences that have the token with this id
    std::vector<std::int32_t> free_tokens_;  // a stack likewise
    std::vector<KvEntry> scratch_;           // {2 · table_capacity + 1}: the table seq_cp is making
    std::int32_t n_free_pages_ = 0, n_free_tokens_ = 0;

    std::vector<Saved> saved_;            // {n_seq_max}: tables the transaction has touched
    std::vector<std::uint8_t> is_saved_;  // {n_seq_max}
    std::size_t n_saved_ = 0;
    std::int32_t saved_free_pages_ = 0, saved_free_tokens_ = 0;
    bool in_transaction_ = false;
    bool has_shifts_ = false;  // false: no slot has a shift; true: some may

    Placing placing_ = Placing::by_pages;
    // {n_pages}: slots that are live in some sequence; kept up to date while placing tightly.
    std::vector<std::uint64_t> occupied_;

    std::vector<std::int32_t> place_;        // {n_ctx}: new slot of the token with this id, or -1
    std::vector<std::int32_t> listed_;       // {64, n_pages}: slots as they will follow each other, or -1
    std::vector<std::int32_t> target_page_;  // {n_pages}: where each 64 of them will lie, or -1
    // {n_pages}: slots of the sequence whose slots are listed; while pages are chosen: not 0 where taken.
    std::vector<std::uint64_t> own_;
    std::vector<SeqId> order_;  // {n_seq_max}
    std::size_t n_listed_ = 0;

    std::uint64_t transaction_ = 0, run_ = 0;  // numbers, from 1
    std::vector<RunToken> run_tokens_;         // {n_run}
    std::vector<SeqId> run_sequences_;         // {n_seq_max}: first sequences of the run's tokens
    std::vector<std::int32_t> run_index_;      // {n_seq_max}: a sequence's place in run_sequences_, or -1
    std::vector<PageCopy> copies_;             // {n_seq_max}
    std::size_t n_run_tokens_ = 0, n_run_sequences_ = 0, n_copies_ = 0;
};

}  // namespace tinfer::memory
