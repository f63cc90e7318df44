// SPDX-License-Identifier: MIT
#include "runtime/transaction.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>

#include "base/error.hpp"

namespace tinfer::runtime {

namespace {

constexpr Pos kAllTokens{std::numeric_limits<std::int32_t>::max()};  // no position is as high

}  // namespace

Transaction::Transaction(const Dependencies& deps)
    : deps_(deps), token_views_(static_cast<std::size_t>(deps.options.n_ubatch)),
      keep_ends_(static_cast<std::size_t>(deps.options.n_seq_max)) {}

void Transaction::open(BatchPlan& batch, memory::Memory& memory, Purpose purpose) {
    batch_ = &batch;
    memory_ = &memory;
    purpose_ = purpose;
    using Fit = memory::Memory::Fit;
    const Fit fit = batch.fits() ? memory.fit(batch.tokens(), compaction()) : Fit::no_room;
    has_room_ = fit != Fit::no_room;
    if (fit == Fit::as_it_is) memory.begin();
    if (has_room_) ++n_opened_;
    if (!encodes()) deps_.inputs.begin_pooling(batch);
    if (deps_.head) deps_.head->open(batch);
    std::ranges::fill(keep_ends_, kAllTokens);
    generates_ = is_verification() || (!encodes() && deps_.layout.causal() && !batch.is_prefill(0, batch.size()));
    n_kept_ = batch.size();
    seconds_ = 0;
    n_done_ = 0;
    number_ = 0;
    repeats_ = false;
    stage_ = Stage::place;
}

// ---- computing ------------------------------------------------------------------------------------------------------

StepStatus Transaction::advance(Clock::time_point deadline) {
    if (stage_ == Stage::computed) return StepStatus::ok;
    const auto begin = Clock::now();
    StepStatus status = StepStatus::pending;
    try {
        status = run_batch(deadline);
    } catch (const std::bad_alloc&) {
        end(false);
        throw Error(ErrorCode::out_of_memory, "decode: an allocation failed");
    } catch (...) {
        end(false);
        throw;
    }
    seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
    if (status == StepStatus::ok) {
        stage_ = Stage::computed;
        deps_.outputs.complete(*batch_, !encodes());
    } else if (status != StepStatus::pending) {
        end(false);
    }
    return status;
}

// Runs stage after stage until the batch is done or the deadline has passed.
StepStatus Transaction::run_batch(Clock::time_point deadline) {
    if (!has_room_) return StepStatus::no_room;
    for (;;) {
        if (stage_ == Stage::place && !memory_->in_transaction()) {  // first the compaction
            start_compaction();
            if (stage_ == Stage::place) {
                memory_->begin();
                continue;
            }
        } else if (stage_ == Stage::place && deps_.layout.rotates_keys() && memory_->has_shifts()) {
            stage_ = Stage::shift_keys;
            start_key_shift();
        } else if (stage_ == Stage::place) {
            next_micro_batch();
            if (micro_batch_.n == 0) {
                deps_.layout.model().file->check_intact();  // also for what was read as zeros, without a signal
                return StepStatus::ok;
            }
            const memory::Placed placed = memory_->place(batch_->tokens().subspan(n_done_, micro_batch_.n));
            if (placed.no_room || placed.tokens == 0) return StepStatus::no_room;
            if (placed.tokens < micro_batch_.n) micro_batch_ = batch_->shortened(micro_batch_, placed.tokens);
            if (repeats_ || only_writes()) micro_batch_.n_outputs = 0;
            const bool copies = !memory_->copies().empty();
            copies ? start_page_copies() : start_micro_batch();
            stage_ = copies ? Stage::copy_pages : Stage::compute;
        }
        switch (deps_.runner.resume(deadline)) {
            case RunStatus::ok: break;
            case RunStatus::paused: return StepStatus::pending;
            case RunStatus::cancelled: return StepStatus::cancelled;
            case RunStatus::damaged: deps_.layout.model().file->check_intact(); break;
            case RunStatus::failed:
                std::rethrow_exception(deps_.runner.take_error());  // an observer's, or lack of memory
        }
        finish_stage();
        const bool done = stage_ == Stage::place && n_done_ == batch_->size();
        if (deadline != Executor::kNoDeadline && !done && Clock::now() >= deadline) return StepStatus::pending;
    }
}

// The run of the present stage has ended.
void Transaction::finish_stage() {
    if (stage_ == Stage::copy_pages) {
        start_micro_batch();
        stage_ = Stage::compute;
        return;
    }
    if (stage_ == Stage::compact) memory_->begin();
    if (stage_ == Stage::compute) {
        if (!repeats_) deps_.outputs.collect(*running_, deps_.arena.data(), *batch_, micro_batch_, deps_.inputs);
        if (!repeats_ && deps_.head) deps_.head->note(*batch_, micro_batch_, taps());
        n_done_ += micro_batch_.n;
        ++number_;
    }
    stage_ = Stage::place;
}

// What the run has left for the draft head.
std::span<const float> Transaction::taps() const noexcept {
    const auto value = std::ranges::find(running_->outputs, kTapRole, &OutputValue::role);
    return value == running_->outputs.end() ? std::span<const float>() : value->in(deps_.arena.data());
}

// Chooses the tokens that are computed next. In a repetition these are the kept tokens alone. Their outputs are there
// already.
void Transaction::next_micro_batch() noexcept {
    if (repeats_)
        while (n_done_ < batch_->size() && !is_kept(n_done_)) ++n_done_;
    micro_batch_ = {};
    if (n_done_ == batch_->size()) return;
    micro_batch_ = batch_->micro_batch(n_done_);
    if (!repeats_) return;
    std::size_t n = 1;
    while (n < micro_batch_.n && is_kept(n_done_ + n)) ++n;
    micro_batch_ = batch_->shortened(micro_batch_, n);
}

// ---- ending ---------------------------------------------------------------------------------------------------------

// Commits or rolls back what memory has not ended yet.
void Transaction::end(bool is_kept) noexcept {
    if (is_kept && encodes()) deps_.encoder->keep(deps_.inputs);
    const bool commits = is_kept && deps_.layout.causal() && !encodes();  // other calls leave nothing in memory
    if (memory_->in_transaction()) commits ? memory_->commit() : memory_->rollback();
    if (!is_kept) deps_.outputs.forget();
    if (deps_.head) commits ? deps_.head->commit(*batch_, keep_ends_) : deps_.head->rollback();
    stage_ = Stage::none;
}

StepStatus Transaction::commit(std::span<const Keep> keeps) {
    if (stage_ != Stage::computed) fail(ErrorCode::bad_parameter, "commit: no decode has been computed");
    n_kept_ = keeps.empty() ? batch_->size() : choose_kept(keeps);
    if (n_kept_ < batch_->size()) {
        bool can_cut = true;
        for (std::size_t seq = 0; seq < keep_ends_.size(); ++seq)
            if (keep_ends_[seq] != kAllTokens)
                can_cut = can_cut && memory_->can_cut(SeqId{static_cast<std::int32_t>(seq)}, keep_ends_[seq]);
        if (n_kept_ == 0 || !deps_.layout.causal()) memory_->rollback();
        else if (can_cut) memory_->commit_cut(keep_ends_);
        else repeat_kept();
    }
    const StepStatus status = advance(Executor::kNoDeadline);
    if (status == StepStatus::ok) end(true);
    return status;
}

void Transaction::repeat_kept() noexcept {
    memory_->rollback();
    memory_->begin();
    repeats_ = true;
    n_done_ = 0;
    stage_ = Stage::place;
}

void Transaction::rollback() {
    if (!is_open()) return;
    try {
        if (stage_ == Stage::shift_keys || stage_ == Stage::compact) deps_.runner.resume(Executor::kNoDeadline);
        deps_.runner.stop();
    } catch (...) {  // an observer's
        end(false);
        throw;
    }
    end(false);
}

bool Transaction::is_kept(std::size_t i) const noexcept {
    const memory::KvToken& token = batch_->tokens()[i];
    return Pos{token.pos} < keep_ends_[static_cast<std::size_t>(token.seqs.front())];
}

// Of a sequence's tokens, which ascend in position, those before its end stay. Returns how many of the batch do.
std::size_t Transaction::choose_kept(std::span<const Keep> keeps) {
    const auto tokens = batch_->tokens();
    std::ranges::fill(keep_ends_, kAllTokens);
    for (const Keep& keep : keeps) {
        std::int32_t n = 0;
        Pos end = kAllTokens;
        for (const memory::KvToken& token : tokens)
            if (std::ranges::find(token.seqs, keep.seq) != token.seqs.end() && n++ == keep.n_tokens)
                end = Pos{token.pos};
        if (n == 0 || keep.n_tokens < 0 || keep.n_tokens > n)
            fail(ErrorCode::bad_parameter, cat("commit: sequence ", static_cast<std::int32_t>(keep.seq), " has ", n,
                                               " tokens in the batch, cannot keep ", keep.n_tokens));
        keep_ends_[static_cast<std::size_t>(keep.seq)] = end;
    }
    std::size_t n_kept = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        for (const SeqId seq : tokens[i].seqs)
            if ((Pos{tokens[i].pos} < keep_ends_[static_cast<std::size_t>(seq)]) != is_kept(i))
                fail(ErrorCode::bad_parameter,
                     cat("commit: sequences ", static_cast<std::int32_t>(tokens[i].seqs.front()), " and ",
                         static_cast<std::int32_t>(seq), " share the token at index ", i, ", which one of them keeps"));
        n_kept += is_kept(i) ? 1 : 0;
    }
    return n_kept;
}

std::size_t Transaction::n_drafted() const noexcept {
    const auto tokens = batch_->tokens();
    std::size_t n = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i)
        n += std::ranges::any_of(tokens.first(i),
                                 [&](const auto& before) { return before.seqs.front() == tokens[i].seqs.front(); });
    return n;
}

}  // namespace tinfer::runtime
