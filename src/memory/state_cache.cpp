// SPDX-License-Identifier: MIT
#include "memory/state_cache.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tinfer::memory {

StateCache::StateCache(const StateLimits& limits)
    : limits_(limits), sequences_(static_cast<std::size_t>(limits.n_seq_max)), before_(sequences_.size()),
      references_(static_cast<std::size_t>(limits.n_rows())), run_(static_cast<std::size_t>(limits.n_run)) {}

std::uint64_t StateCache::bytes(const StateLimits& limits) noexcept {
    return static_cast<std::uint64_t>(limits.n_seq_max) * 2 * sizeof(Sequence) +
           static_cast<std::uint64_t>(limits.n_rows()) * sizeof(std::int32_t) +
           static_cast<std::uint64_t>(limits.n_run) * sizeof(Step);
}

std::uint64_t StateCache::allocated_bytes() const noexcept {
    return (sequences_.capacity() + before_.capacity()) * sizeof(Sequence) +
           references_.capacity() * sizeof(std::int32_t) + run_.capacity() * sizeof(Step);
}

// ---- rows -----------------------------------------------------------------------------------------------------------

/// The lowest free row. There is one: no more than n_seq_max rows are in use from before, and no more than that, less
/// the sequence that asks, by the sequences as they are now.
std::int32_t StateCache::free_row() const noexcept {
    const auto free = std::ranges::find(references_, 0);
    TINFER_ASSERT(free != references_.end());
    return static_cast<std::int32_t>(free - references_.begin());
}

void StateCache::hold(std::int32_t row) noexcept {
    if (row >= 0) ++references_[static_cast<std::size_t>(row)];
}

void StateCache::release(std::int32_t row) noexcept {
    if (row >= 0) --references_[static_cast<std::size_t>(row)];
}

std::int32_t StateCache::used() const noexcept {
    return static_cast<std::int32_t>(std::ranges::count_if(references_, [](std::int32_t n) { return n > 0; }));
}

// ---- sequence operations --------------------------------------------------------------------------------------------

Covered StateCache::covered(SeqId seq, Pos p0, Pos p1) const noexcept {
    const Sequence& s = at(seq);
    const auto begin = static_cast<std::int32_t>(p0), end = static_cast<std::int32_t>(p1);
    const std::int32_t first = s.pos - s.count + 1;
    if (s.count == 0 || begin > s.pos || (end >= 0 && end <= first) || (end >= 0 && end <= begin))
        return Covered::nothing;
    return begin <= first && (end < 0 || end > s.pos) ? Covered::all : Covered::part;
}

void StateCache::drop(SeqId seq) noexcept {
    release(at(seq).row);
    at(seq) = {};
}

void StateCache::share(SeqId from, SeqId to) noexcept {
    hold(at(from).row);
    release(at(to).row);
    at(to) = at(from);
}

std::int32_t StateCache::adopt(SeqId seq, std::int32_t pos, std::int32_t count) noexcept {
    drop(seq);
    const std::int32_t row = free_row();
    hold(row);
    at(seq) = {row, pos, count};
    return row;
}

void StateCache::clear() noexcept {
    std::ranges::fill(sequences_, Sequence{});
    std::ranges::fill(references_, 0);
}

// ---- transactions ---------------------------------------------------------------------------------------------------

void StateCache::begin() noexcept {
    std::ranges::copy(sequences_, before_.begin());
    for (const Sequence& sequence : before_) hold(sequence.row);
}

void StateCache::place(std::span<const KvToken> run) noexcept {
    n_run_ = 0;
    for (const KvToken& token : run) {
        const std::int32_t from = at(token.seqs[0]).row;
        const bool is_theirs_alone =
            from >= 0 && references_[static_cast<std::size_t>(from)] == static_cast<std::int32_t>(token.seqs.size());
        const std::int32_t to = is_theirs_alone ? from : free_row();
        for (const SeqId seq : token.seqs) {
            hold(to);
            release(at(seq).row);
            at(seq) = {to, token.pos, at(seq).count + 1};
        }
        run_[n_run_++] = {from, to};
    }
}

void StateCache::commit() noexcept {
    for (const Sequence& sequence : before_) release(sequence.row);
}

void StateCache::rollback() noexcept {
    for (const Sequence& sequence : sequences_) release(sequence.row);
    std::ranges::copy(before_, sequences_.begin());
}

void StateCache::write_rows(std::span<std::int32_t> out) const noexcept {
    for (std::size_t i = 0; i < n_run_; ++i) {
        out[2 * i] = run_[i].from;
        out[2 * i + 1] = run_[i].to;
    }
}

}  // namespace tinfer::memory
