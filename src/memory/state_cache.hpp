// SPDX-License-Identifier: MIT
// Which sequence has which recurrent state: rows of a fixed size per layer, whatever the number of tokens (a
// convolution's window, the state of a scan, shifted vectors). Metadata only: the rows belong to the runtime. Copying a
// sequence shares its row; the first token that goes on alone reads the shared row and writes another, so nothing is
// ever copied.
//
// The same holds for transactions: rows from before the call are never written to. A decode's first token of a sequence
// reads the old row and writes a fresh one, later tokens go on in it; commit drops the old rows, rollback the new ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/kv_cache.hpp"

namespace tinfer::memory {

/// What every array is sized by, once, at construction.
struct StateLimits {
    std::int32_t n_seq_max = 1;
    std::int32_t n_run = 1;  ///< most tokens of one micro-batch

    /// A row per sequence as it was before the call and one as it is now.
    [[nodiscard]] std::int32_t n_rows() const noexcept { return 2 * n_seq_max; }
};

/// How much of what a sequence remembers lies in a range of positions.
enum class Covered : std::uint8_t { nothing, part, all };

/// A state stands for all tokens of its sequence at once: it can be dropped, shared and renumbered, not cut.
class StateCache {
public:
    explicit StateCache(const StateLimits& limits);

    // -- sequence operations, outside transactions; the caller has checked ids

    /// Of the tokens whose state the sequence has, those in [p0, p1); p0 < 0 means 0, p1 < 0 means to the end.
    [[nodiscard]] Covered covered(SeqId seq, Pos p0, Pos p1) const noexcept;
    void drop(SeqId seq) noexcept;
    void share(SeqId from, SeqId to) noexcept;
    /// Renumbers: the state itself does not depend on positions.
    void move(SeqId seq, std::int32_t delta) noexcept { at(seq).pos += delta; }
    void clear() noexcept;
    /// Of a state that comes from elsewhere: the row that the caller is to fill.
    std::int32_t adopt(SeqId seq, std::int32_t pos, std::int32_t count) noexcept;

    /// Of the last token; -1 when empty.
    [[nodiscard]] std::int32_t pos(SeqId seq) const noexcept { return at(seq).pos; }
    /// Tokens that the state has taken in.
    [[nodiscard]] std::int32_t count(SeqId seq) const noexcept { return at(seq).count; }
    [[nodiscard]] std::int32_t row(SeqId seq) const noexcept { return at(seq).row; }  ///< -1 when empty
    [[nodiscard]] std::int32_t used() const noexcept;                                 ///< rows that some sequence has
    [[nodiscard]] const StateLimits& limits() const noexcept { return limits_; }

    // -- transactions: there is always room

    void begin() noexcept;
    /// At most n_run tokens. In their order each reads one row and writes one.
    void place(std::span<const KvToken> run) noexcept;
    void commit() noexcept;
    void rollback() noexcept;

    /// Of the run placed last, {2, T} as kernels/ops.hpp says: row read (-1: all zeros), row written.
    void write_rows(std::span<std::int32_t> out) const noexcept;

    [[nodiscard]] static std::uint64_t bytes(const StateLimits& limits) noexcept;
    [[nodiscard]] std::uint64_t allocated_bytes() const noexcept;

private:
    struct Sequence {
        std::int32_t row = -1, pos = -1, count = 0;
    };
    struct Step {
        std::int32_t from, to;
    };

    [[nodiscard]] Sequence& at(SeqId seq) noexcept { return sequences_[static_cast<std::size_t>(seq)]; }
    [[nodiscard]] const Sequence& at(SeqId seq) const noexcept { return sequences_[static_cast<std::size_t>(seq)]; }
    [[nodiscard]] std::int32_t free_row() const noexcept;
    void hold(std::int32_t row) noexcept;
    void release(std::int32_t row) noexcept;

    StateLimits limits_;
    std::vector<Sequence> sequences_;       // {n_seq_max}
    std::vector<Sequence> before_;          // {n_seq_max}: as they were when the transaction began
    std::vector<std::int32_t> references_;  // {n_rows}: by sequences now and before
    std::vector<Step> run_;                 // {n_run}
    std::size_t n_run_ = 0;
};

}  // namespace tinfer::memory
