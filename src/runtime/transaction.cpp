// SPDX-License-Identifier: MIT
// A decode as a transaction over what the context remembers: open validates and reserves, advance computes, commit
// keeps all of it or a part, rollback nothing. It is a small state machine, so that a decode in slices of time and one
// in a single piece are the same code.
#include <algorithm>
#include <chrono>
#include <limits>
#include <new>
#include <utility>

#include "base/error.hpp"
#include "runtime/context.hpp"

namespace tinfer {

using runtime::RunStatus;
using Clock = runtime::Executor::Clock;

namespace {

constexpr Pos kAllTokens{std::numeric_limits<std::int32_t>::max()};  // no position is as high

// What a whole decode says of its last step, which leaves nothing pending.
DecodeStatus outcome(StepStatus status) noexcept {
    switch (status) {
        case StepStatus::ok: return DecodeStatus::ok;
        case StepStatus::no_room: return DecodeStatus::no_room;
        default: return DecodeStatus::cancelled;
    }
}

}  // namespace

template <class Input>
void Context::Impl::prepare(const Input& input, Pass pass) {
    Busy busy(session->busy);
    const bool encodes = pass == Pass::encode;
    forget_outputs();
    pass_ = pass;
    memory_ = encodes ? &encoder->sequences : &sequences;
    batch_ = encodes ? &encoder->batch : &batch;
    layout.model().file->check_intact();  // another context of the model may have found it
    batch_->build(input, *memory_);
    if (encoder && !encodes) check_encoded();
    if (adapters_) adapters_->check(batch_->tokens());
    fit_ = batch_->fits() ? memory_->fit(batch_->tokens(), compaction()) : memory::Memory::Fit::no_room;
    if (fit_ == memory::Memory::Fit::as_it_is) memory_->begin();
    if (fit_ != memory::Memory::Fit::no_room) ++n_decodes_;
    begin_pooling();
    generates_ = !encodes && layout.causal() && !batch_->is_prefill(0, batch_->size());
    spent_s_ = 0;
    n_done_ = 0;
    number_ = 0;
    repeats_ = false;
    stage_ = Stage::place;
    busy.keep();
}

// Works off stages until the batch is done or time is over.
StepStatus Context::Impl::run_batch(Clock::time_point deadline) {
    if (fit_ == memory::Memory::Fit::no_room) return StepStatus::no_room;
    for (;;) {
        if (stage_ == Stage::place && !memory_->in_transaction()) {  // first the compaction
            start_compaction();
            if (stage_ == Stage::place) {
                memory_->begin();
                continue;
            }
        } else if (stage_ == Stage::place && layout.rotates_keys() && memory_->has_shifts()) {
            stage_ = Stage::shift_keys;
            start_key_shift();
        } else if (stage_ == Stage::place) {
            next_micro_batch();
            if (micro_batch_.n == 0) return StepStatus::ok;
            const memory::Placed placed = memory_->place(batch_->tokens().subspan(n_done_, micro_batch_.n));
            if (placed.no_room || placed.tokens == 0) return StepStatus::no_room;
            if (placed.tokens < micro_batch_.n) micro_batch_ = batch_->shortened(micro_batch_, placed.tokens);
            if (repeats_) micro_batch_.n_outputs = 0;
            const bool copies = !memory_->copies().empty();
            copies ? start_page_copies() : start_micro_batch();
            stage_ = copies ? Stage::copy_pages : Stage::compute;
        }
        switch (continue_run(deadline)) {
            case RunStatus::ok: break;
            case RunStatus::paused: return StepStatus::pending;
            case RunStatus::cancelled: return StepStatus::cancelled;
            case RunStatus::damaged: layout.model().file->check_intact(); break;
            case RunStatus::failed: std::rethrow_exception(executor.take_error());  // an observer's, or lack of memory
        }
        if (stage_ == Stage::compact) {
            memory_->begin();
            stage_ = Stage::place;
        } else if (stage_ == Stage::shift_keys) {
            stage_ = Stage::place;
        } else if (stage_ == Stage::copy_pages) {
            start_micro_batch();
            stage_ = Stage::compute;
        } else {
            if (!repeats_) collect_outputs();
            n_done_ += micro_batch_.n;
            ++number_;
            stage_ = Stage::place;
        }
        const bool done = stage_ == Stage::place && n_done_ == batch_->size();
        if (deadline != runtime::Executor::kNoDeadline && !done && Clock::now() >= deadline) return StepStatus::pending;
    }
}

// Commits or rolls back what memory has not ended yet; the context is free again.
void Context::Impl::finish(StepStatus status) noexcept {
    if (status == StepStatus::ok) {
        if (pass_ == Pass::encode) keep_encoded();
        if (memory_->in_transaction())  // a bidirectional call leaves nothing behind
            layout.causal() && pass_ == Pass::decode ? memory_->commit() : memory_->rollback();
        (generates_ ? timings.generation_n : timings.prompt_n) += batch_->size();
        (generates_ ? timings.generation_s : timings.prompt_s) += spent_s_;
    } else {
        if (memory_->in_transaction()) memory_->rollback();
        forget_outputs();
    }
    stage_ = Stage::none;
    session->detach_requested();
    session->busy.store(false, std::memory_order_release);
}

StepStatus Context::Impl::run_until(Clock::time_point deadline) {
    if (stage_ == Stage::computed) return StepStatus::ok;
    const auto begin = Clock::now();
    StepStatus status = StepStatus::pending;
    try {
        status = run_batch(deadline);
    } catch (const std::bad_alloc&) {
        finish(StepStatus::cancelled);
        throw Error(ErrorCode::out_of_memory, "decode: an allocation failed");
    } catch (...) {
        finish(StepStatus::cancelled);
        throw;
    }
    spent_s_ += std::chrono::duration<double>(Clock::now() - begin).count();
    if (status == StepStatus::ok) {
        stage_ = Stage::computed;
        n_outputs = pooled_data.size() > 0 ? 0 : static_cast<int>(batch_->output_rows().size());
        has_outputs = pass_ == Pass::decode;
    } else if (status != StepStatus::pending) {
        finish(status);
    }
    return status;
}

StepStatus Context::Impl::run_to_the_end() {
    const StepStatus status = run_until(runtime::Executor::kNoDeadline);
    if (status == StepStatus::ok) finish(status);
    return status;
}

void Context::Impl::open(const Batch& given) { begin(given); }

StepStatus Context::Impl::advance(Clock::time_point deadline) {
    const Busy busy(stepping_);
    if (stage_ == Stage::none) fail(ErrorCode::bad_parameter, "advance: no decode has begun");
    return run_until(deadline);
}

template <class Input>
DecodeStatus Context::Impl::decode(const Input& input) {
    const Busy busy(stepping_);
    prepare(input, Pass::decode);
    return outcome(run_to_the_end());
}

template <class Input>
DecodeStatus Context::Impl::encode(const Input& input) {
    const Busy busy(stepping_);
    prepare(input, Pass::encode);
    return outcome(run_to_the_end());
}

void Context::Impl::begin(std::span<const Token> tokens) {
    const Busy busy(stepping_);
    prepare(tokens, Pass::decode);
}

template <class AnyBatch>
void Context::Impl::begin(AnyBatch&& given) {
    const Busy busy(stepping_);
    if (stage_ != Stage::none) fail(ErrorCode::busy, "context is busy");  // begun_ is in use
    begun_ = std::forward<AnyBatch>(given);
    prepare(begun_, Pass::decode);
}

StepStatus Context::Impl::step(std::chrono::nanoseconds budget) {
    const auto now = Clock::now();
    const Busy busy(stepping_);
    if (stage_ == Stage::none) fail(ErrorCode::bad_parameter, "step: no decode has begun");
    budget = std::clamp<std::chrono::nanoseconds>(budget, {}, runtime::Executor::kNoDeadline - now);
    const StepStatus status = run_until(now + budget);
    if (status == StepStatus::ok) finish(status);
    return status;
}

void Context::Impl::rollback() {
    const Busy busy(stepping_);
    if (stage_ == Stage::none) return;
    try {
        if (stage_ == Stage::shift_keys || stage_ == Stage::compact) continue_run(runtime::Executor::kNoDeadline);
        end_run(RunStatus::cancelled);
    } catch (...) {  // an observer's
        finish(StepStatus::cancelled);
        throw;
    }
    finish(StepStatus::cancelled);
}

// ---- keeping a part -------------------------------------------------------------------------------------------------

bool Context::Impl::is_kept(std::size_t i) const noexcept {
    const memory::KvToken& token = batch_->tokens()[i];
    return Pos{token.pos} < keep_ends_[static_cast<std::size_t>(token.seqs.front())];
}

// Of a sequence's tokens, which ascend in position, those before its end stay. Returns how many of the batch do.
std::size_t Context::Impl::choose_kept(std::span<const runtime::Keep> keeps) {
    const auto tokens = batch_->tokens();
    std::ranges::fill(keep_ends_, kAllTokens);
    for (const runtime::Keep& keep : keeps) {
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

// What is computed next: all in order, or the kept tokens alone, whose outputs are there already.
void Context::Impl::next_micro_batch() noexcept {
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

DecodeStatus Context::Impl::commit(std::span<const runtime::Keep> keeps) {
    const Busy busy(stepping_);
    if (stage_ != Stage::computed) fail(ErrorCode::bad_parameter, "commit: no decode has been computed");
    const std::size_t n_kept = choose_kept(keeps);
    if (n_kept < batch_->size()) {
        bool can_cut = true;
        for (std::size_t seq = 0; seq < keep_ends_.size(); ++seq)
            if (keep_ends_[seq] != kAllTokens)
                can_cut = can_cut && memory_->can_cut(SeqId{static_cast<std::int32_t>(seq)}, keep_ends_[seq]);
        if (n_kept == 0 || !layout.causal()) {
            memory_->rollback();
        } else if (can_cut) {
            memory_->commit_cut(keep_ends_);
        } else {
            memory_->rollback();
            memory_->begin();
            repeats_ = true;
            n_done_ = 0;
            stage_ = Stage::place;
        }
    }
    return outcome(run_to_the_end());
}

template DecodeStatus Context::Impl::decode(const std::span<const Token>& tokens);
template DecodeStatus Context::Impl::decode(const Batch& batch);
template DecodeStatus Context::Impl::encode(const std::span<const Token>& tokens);
template DecodeStatus Context::Impl::encode(const Batch& batch);
template void Context::Impl::begin(const Batch& batch);
template void Context::Impl::begin(Batch&& batch);

}  // namespace tinfer
