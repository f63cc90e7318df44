// SPDX-License-Identifier: MIT
// The rules of a batch, one function each, in the order in which a caller sees them broken.
#include "runtime/batch_plan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.hpp"

namespace tinfer::runtime {
namespace {

constexpr SeqId kSequenceZero[1] = {SeqId{0}};

template <class... Parts>
[[noreturn]] void refuse_batch(const Parts&... parts) {
    fail(ErrorCode::invalid_batch, cat(parts...));
}

std::int32_t number(SeqId seq) noexcept { return static_cast<std::int32_t>(seq); }
std::size_t slot_of(SeqId seq) noexcept { return static_cast<std::size_t>(seq); }

}  // namespace

BatchPlan::BatchPlan(const BatchLimits& limits) : limits_(limits) {
    const auto n_batch = static_cast<std::size_t>(limits.n_batch);
    ids_.resize(n_batch);
    places_.resize(n_batch);
    output_index_.resize(n_batch);
    output_rows_.resize(n_batch);
    counts_.resize(static_cast<std::size_t>(limits.n_seq_max));
    per_seq_.resize(static_cast<std::size_t>(limits.n_seq_max));
}

std::uint64_t BatchPlan::bytes(const BatchLimits& limits) noexcept {
    return static_cast<std::uint64_t>(limits.n_batch) * (3 * sizeof(std::int32_t) + sizeof(memory::KvToken)) +
           static_cast<std::uint64_t>(limits.n_seq_max) * (sizeof(std::int64_t) + sizeof(std::int32_t));
}

std::uint64_t BatchPlan::allocated_bytes() const noexcept {
    return (ids_.capacity() + output_index_.capacity() + output_rows_.capacity() + counts_.capacity()) *
               sizeof(std::int32_t) +
           places_.capacity() * sizeof(memory::KvToken) + per_seq_.capacity() * sizeof(std::int64_t);
}

void BatchPlan::clear() noexcept {
    batch_ = nullptr;
    size_ = n_outputs_ = 0;
    fits_ = true;
}

template <class Input>
void BatchPlan::build_from(const Input& input, const Batch* batch, const memory::Memory& memory) {
    clear();
    try {
        take(input);
        finish(batch, memory);
    } catch (...) {
        clear();
        throw;
    }
}

void BatchPlan::build(const Batch& batch, const memory::Memory& memory) {
    check_size(batch.size(), memory);
    if (fits_) build_from(batch, &batch, memory);
}

void BatchPlan::build(std::span<const Token> tokens, const memory::Memory& memory) {
    check_size(tokens.size(), memory);
    if (fits_) build_from(tokens, nullptr, memory);
}

void BatchPlan::finish(const Batch* batch, const memory::Memory& memory) {
    check_sequences();
    resolve_positions(batch, memory);
    if (!fits_) return;  // there are no more positions to check
    check_order(memory);
    check_starts(memory);
    check_coupling(memory);
    check_model(memory);
    choose_outputs(batch);
}

// ---- size and contents ----------------------------------------------------------------------------------------------

void BatchPlan::check_size(std::size_t n, const memory::Memory& memory) {
    clear();
    if (n == 0) refuse_batch("batch is empty");
    if (n <= ids_.size()) return;
    if (!limits_.n_batch_is_n_ctx) refuse_batch("batch has ", n, " tokens, limit n_batch = ", limits_.n_batch);
    if (memory.kv() == nullptr)  // a memory that is never full
        refuse_batch("batch has ", n, " tokens, more than n_ctx = ", limits_.n_batch,
                     ", which limits a call as long as n_batch is not set");
    fits_ = false;
}

void BatchPlan::take(std::span<const Token> tokens) {
    size_ = tokens.size();
    for (std::size_t i = 0; i < size_; ++i) {
        ids_[i] = static_cast<std::int32_t>(tokens[i]);
        places_[i] = {0, kSequenceZero};
    }
    check_token_ids();
}

void BatchPlan::take(const Batch& batch) {
    const auto rows = batch.rows();
    check_inputs(batch);
    size_ = rows.size();
    for (std::size_t i = 0; i < size_; ++i) {
        ids_[i] = rows[i].token;
        places_[i] = {0, rows[i].n_seqs == 0 ? std::span<const SeqId>(kSequenceZero) : batch.seqs(rows[i])};
    }
    if (rows[0].n_values == 0) {
        check_token_ids();
    } else {
        check_embeddings(batch);
        batch_ = &batch;
    }
}

void BatchPlan::check_inputs(const Batch& batch) const {
    const auto is_embedding = [](const Batch::Row& row) { return row.n_values != 0; };
    const auto rows = batch.rows();
    const bool mixed = std::ranges::any_of(rows, is_embedding) && !std::ranges::all_of(rows, is_embedding);
    if (mixed) refuse_batch("batch must have either tokens or embeddings");
}

void BatchPlan::check_token_ids() const {
    for (std::size_t i = 0; i < size_; ++i)
        if (ids_[i] < 0 || ids_[i] >= limits_.n_vocab)
            refuse_batch("token ", ids_[i], " at index ", i, " outside vocabulary ", limits_.n_vocab);
}

void BatchPlan::check_embeddings(const Batch& batch) const {
    const auto rows = batch.rows();
    for (const auto& row : rows)
        if (row.n_values != static_cast<std::uint32_t>(limits_.n_embd))
            refuse_batch("embedding width ", row.n_values, ", model needs ", limits_.n_embd);
    if (limits_.check_finite)
        for (std::size_t i = 0; i < rows.size(); ++i)
            if (!std::ranges::all_of(batch.values(rows[i]), [](float x) { return std::isfinite(x); }))
                refuse_batch("embedding at index ", i, " is not finite");
    if (!limits_.accepts_embeddings) refuse_batch("architecture does not accept embedding input");
}

// ---- sequences and positions ----------------------------------------------------------------------------------------

void BatchPlan::check_sequences() {
    std::ranges::fill(per_seq_, -1);  // the last token that named the sequence
    for (std::size_t i = 0; i < size_; ++i) {
        for (const SeqId seq : places_[i].seqs) {
            if (number(seq) < 0 || number(seq) >= limits_.n_seq_max)
                refuse_batch("sequence id ", number(seq), " at index ", i, " outside 0..", limits_.n_seq_max - 1);
            auto& named = per_seq_[slot_of(seq)];
            if (named == static_cast<std::int64_t>(i))
                refuse_batch("sequence id ", number(seq), " at index ", i, " is repeated");
            named = static_cast<std::int64_t>(i);
        }
    }
}

/// Automatic positions follow the last one of the token's first sequence, tokens of this batch included.
void BatchPlan::resolve_positions(const Batch* batch, const memory::Memory& memory) {
    for (std::int32_t seq = 0; seq < limits_.n_seq_max; ++seq)
        per_seq_[static_cast<std::size_t>(seq)] = std::int64_t{memory.pos_max(SeqId{seq})} + 1;
    constexpr std::int64_t kLastOfAll = std::numeric_limits<std::int32_t>::max() - 1;
    const auto limit = (std::int64_t{1} << 31) - static_cast<std::int64_t>(size_);
    for (std::size_t i = 0; i < size_; ++i) {
        const bool given = batch != nullptr && batch->rows()[i].has_pos;
        const std::int64_t pos = given ? batch->rows()[i].pos : per_seq_[slot_of(places_[i].seqs[0])];
        if (pos < 0) refuse_batch("negative position at index ", i);
        if (given && pos >= limit) refuse_batch("position ", pos, " at index ", i, " exceeds the largest, ", limit - 1);
        fits_ = fits_ && pos <= kLastOfAll;
        places_[i].pos = static_cast<std::int32_t>(std::min(pos, kLastOfAll));
        for (const SeqId seq : places_[i].seqs) per_seq_[slot_of(seq)] = pos + 1;
    }
}

/// Within the batch, the positions of a sequence go up by one (with gaps allowed: go up).
void BatchPlan::check_order(const memory::Memory& memory) {
    const bool gaps = limits_.allow_position_gaps && !memory.positions_are_counted();
    std::ranges::fill(per_seq_, -1);
    for (std::size_t i = 0; i < size_; ++i) {
        const std::int64_t pos = places_[i].pos;
        for (const SeqId seq : places_[i].seqs) {
            auto& before = per_seq_[slot_of(seq)];
            const bool follows = gaps ? pos > before : pos == before + 1;
            if (before >= 0 && !follows)
                refuse_batch("positions of sequence ", number(seq), " are not consecutive at index ", i);
            before = pos;
        }
    }
}

/// A sequence that is not empty goes on where the cache ends; an empty one may start anywhere, with recurrent states at
/// 0.
void BatchPlan::check_starts(const memory::Memory& memory) {
    std::ranges::fill(per_seq_, 0);  // 1: seen
    for (std::size_t i = 0; i < size_; ++i) {
        const auto pos = places_[i].pos;
        for (const SeqId seq : places_[i].seqs) {
            if (std::exchange(per_seq_[slot_of(seq)], 1) == 1) continue;
            const auto end = memory.pos_max(seq);
            const bool may_skip =
                !memory.positions_are_counted() && (end < 0 || (limits_.allow_position_gaps && pos > end));
            if (pos == end + 1 || may_skip) continue;
            refuse_batch("sequence ", number(seq), ": batch starts at ", pos, ", cache ends at ", end, "; expected ",
                         end + 1);
        }
    }
}

/// All sequences of a token share every token before it, so that attention over the first one's is attention over
/// each's.
void BatchPlan::check_coupling(const memory::Memory& memory) {
    std::ranges::fill(per_seq_, -1);  // the last token of this batch in the sequence: equal ones were checked there
    for (std::size_t i = 0; i < size_; ++i) {
        const auto seqs = places_[i].seqs;
        for (const SeqId seq : seqs.subspan(1)) {
            const auto ours = per_seq_[slot_of(seqs[0])], theirs = per_seq_[slot_of(seq)];
            if (ours == theirs && (ours >= 0 || memory.same_history(seqs[0], seq))) continue;
            refuse_batch("sequences ", number(seqs[0]), " and ", number(seq), " are coupled at index ", i,
                         " but have different history");
        }
        for (const SeqId seq : seqs) per_seq_[slot_of(seq)] = static_cast<std::int64_t>(i);
    }
}

// ---- model and outputs ----------------------------------------------------------------------------------------------

/// A sequence that comes to the end of the table is full; a position past the end that does not continue a sequence is
/// an error.
void BatchPlan::check_table(const memory::Memory& memory) {
    for (std::int32_t seq = 0; seq < limits_.n_seq_max; ++seq)
        per_seq_[static_cast<std::size_t>(seq)] = memory.pos_max(SeqId{seq});
    for (const auto& place : tokens()) {
        const std::int64_t before = per_seq_[slot_of(place.seqs[0])];
        if (place.pos >= limits_.n_positions) {
            if (before < 0 || place.pos != before + 1)
                refuse_batch("position ", place.pos, " exceeds the learned position table (", limits_.n_positions, ")");
            fits_ = false;
        }
        for (const SeqId seq : place.seqs) per_seq_[slot_of(seq)] = place.pos;
    }
}

void BatchPlan::check_model(const memory::Memory& memory) {
    if (limits_.n_positions > 0) check_table(memory);
    if (!limits_.causal && size_ > static_cast<std::size_t>(limits_.n_ubatch))
        refuse_batch("non-causal attention needs n_ubatch >= ", size_);
    for (std::size_t i = 0; i < size_ && !limits_.causal; ++i)
        if (places_[i].seqs.size() > 1)
            refuse_batch("non-causal attention needs one sequence per token, index ", i, " has ",
                         places_[i].seqs.size());
    if (limits_.causal && !limits_.has_output_head && !limits_.embeddings)
        refuse_batch("model has no output head; enable embeddings");
}

void BatchPlan::choose_outputs(const Batch* batch) {
    if (limits_.pooling != Pooling::none) return choose_pooled_rows();
    const auto is_flagged = [](const Batch::Row& row) { return row.output; };
    const bool flagged = batch != nullptr && std::ranges::any_of(batch->rows(), is_flagged);
    n_outputs_ = 0;
    for (std::size_t i = 0; i < size_; ++i) {
        const bool output =
            limits_.gives_outputs && (flagged ? batch->rows()[i].output : limits_.logits_all || i + 1 == size_);
        output_index_[i] = output ? static_cast<std::int32_t>(n_outputs_) : -1;
        if (output) output_rows_[n_outputs_++] = static_cast<std::int32_t>(i);
    }
    if (n_outputs_ > static_cast<std::size_t>(limits_.n_outputs))
        refuse_batch("batch asks for ", n_outputs_, " outputs, limit n_outputs = ", limits_.n_outputs);
}

bool BatchPlan::adopt_outputs(std::uint64_t n_tokens, std::span<const std::int32_t> rows) noexcept {
    if (n_tokens > output_index_.size() || rows.size() > static_cast<std::size_t>(limits_.n_outputs)) return false;
    size_ = static_cast<std::size_t>(n_tokens);
    n_outputs_ = rows.size();
    std::ranges::fill(output_index_, -1);
    std::ranges::copy(rows, output_rows_.begin());
    for (std::size_t o = 0; o < rows.size(); ++o)
        output_index_[static_cast<std::size_t>(rows[o])] = static_cast<std::int32_t>(o);
    return true;
}

std::int32_t BatchPlan::output_index(std::int32_t i) const {
    if (i < 0 || static_cast<std::size_t>(i) >= size_)
        fail(ErrorCode::index_out_of_range, cat("token index ", i, " outside [0,", size_, ")"));
    const auto output = output_index_[static_cast<std::size_t>(i)];
    if (output < 0) fail(ErrorCode::no_output, cat("token ", i, " has no output (flag not set)"));
    return output;
}

// ---- micro-batches --------------------------------------------------------------------------------------------------

std::size_t BatchPlan::outputs_before(std::size_t row) const noexcept {
    const auto rows = output_rows();
    return static_cast<std::size_t>(std::ranges::lower_bound(rows, static_cast<std::int32_t>(row)) - rows.begin());
}

bool BatchPlan::is_prefill(std::size_t first, std::size_t n) const noexcept {
    const auto rows = std::span(places_).subspan(first, n);
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t k = 0; k < i; ++k)
            if (rows[i].seqs.front() == rows[k].seqs.front()) return true;
    return false;
}

MicroBatch BatchPlan::micro_batch(std::size_t first) const noexcept {
    const std::size_t left = size_ - first,
                      most = static_cast<std::size_t>(limits_.causal ? limits_.n_together : limits_.n_ubatch);
    // Even shares: a last micro-batch of few tokens would read all weights for little.
    const std::size_t n_shares = (left + most - 1) / most;
    return shortened({first, 0, 0, 0}, (left + n_shares - 1) / n_shares);
}

MicroBatch BatchPlan::shortened(const MicroBatch& micro_batch, std::size_t n) const noexcept {
    const auto begin = outputs_before(micro_batch.first);
    return {micro_batch.first, n, begin, outputs_before(micro_batch.first + n) - begin};
}

}  // namespace tinfer::runtime
