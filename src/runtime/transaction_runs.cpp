// SPDX-License-Identifier: MIT
// The runs of a transaction: each micro-batch is one of a plan, and so are the moves of slots and keys before it. Which
// comes next is in transaction.cpp.
#include <algorithm>
#include <exception>

#include "base/error.hpp"
#include "runtime/transaction.hpp"

namespace tinfer::runtime {

RunDetails Transaction::run_of(const PlanKey& key, Phase phase, int n_threads) {
    running_ = &place_.plans->get(key);
    RunDetails run{.graph = &place_.plans->graph(),
                   .bound = running_,
                   .phase = phase,
                   .decode = n_opened_ - 1,
                   .micro_batch = number_,
                   .n_threads = n_threads,
                   .tokens = {},
                   .inputs = place_.inputs.places()};
    if (place_.runner.is_watched()) {
        run.slots_used = static_cast<std::uint32_t>(memory_->used());
        run.slots_total = static_cast<std::uint32_t>(memory_->capacity());
    }
    return run;
}

void Transaction::start_micro_batch() {
    const MicroBatch& mb = micro_batch_;
    place_.inputs.write(*batch_, mb, *memory_, encodes());
    if (place_.encoder != nullptr && !encodes()) place_.encoder->write_spans(*batch_, mb, place_.inputs);
    if (place_.adapters) place_.adapters->write_inputs(batch_->tokens(), batch_->output_rows(), mb);
    for (std::size_t i = 0; i < mb.n; ++i) {
        const memory::KvToken& token = batch_->tokens()[mb.first + i];
        token_views_[i] = {Token{batch_->ids()[mb.first + i]}, Pos{token.pos}, token.seqs.front(),
                           batch_->is_output(mb.first + i), token.seqs.size() > 1};
    }
    if (encodes()) place_.encoder->forget();  // what it left is written over
    const bool prefill = batch_->is_prefill(mb.first, mb.n);
    RunDetails run = run_of({.work = encodes() ? PlanKey::Work::encode : PlanKey::Work::decode,
                             .from_embeddings = batch_->has_embeddings(),
                             .n_tokens = static_cast<std::int64_t>(mb.n),
                             .n_outputs = static_cast<std::int64_t>(mb.n_outputs)},
                            encodes() || !place_.layout.causal() ? Phase::encode
                            : is_check()                         ? Phase::verify
                            : prefill                            ? Phase::prefill
                                                                 : Phase::decode,
                            mb.n == 1 ? place_.options.n_threads : place_.options.n_threads_batch);
    run.tokens = std::span(token_views_).first(mb.n);
    place_.runner.start(run, Runner::Kind::stoppable, &place_.options.cancel);
}

void Transaction::start_maintenance(PlanKey::Work work, Runner::Kind kind) {
    place_.runner.start(run_of({.work = work}, Phase::maintenance, place_.options.n_threads_batch), kind, nullptr);
}

// Keys of moved tokens are rotated in place, at most n_ubatch slots at once: not cancelled, and not stopped by an
// observer.
void Transaction::start_key_shift() {
    const auto T = static_cast<std::size_t>(place_.options.n_ubatch);
    const auto slots = place_.inputs.integers(Input::kv_slots, T), shifts = place_.inputs.integers(Input::positions, T);
    std::ranges::fill(slots, -1);
    std::ranges::fill(shifts, 0);
    const std::size_t n = memory_->take_shifts(slots, shifts);
    if (place_.layout.memory_limits().has_window_pool())
        std::ranges::transform(slots, place_.inputs.integers(Input::kv_slots_window, T).begin(),
                               [&](std::int32_t slot) { return memory_->window_slot(slot); });
    try {
        start_maintenance(PlanKey::Work::key_shift, Runner::Kind::whole);
    } catch (...) {
        memory_->give_back_shifts(slots.first(n), shifts.first(n));
        throw;
    }
}

// Live slots move together where a batch does not fit otherwise. No token is another one afterwards and no bit of a
// result, so it stays done whatever becomes of the batch, and it is neither cancelled nor stopped by an observer.
void Transaction::start_compaction() {
    const memory::Compaction moves = compaction();
    if (moves.empty()) {
        memory_->compact(moves);
        return;
    }
    stage_ = Stage::compact;
    try {
        start_maintenance(PlanKey::Work::compaction, Runner::Kind::whole);
    } catch (...) {
        stage_ = Stage::place;  // nothing has moved
        throw;
    }
    memory_->compact(moves);
}

void Transaction::start_page_copies() {
    place_.inputs.write_page_copies(*memory_);
    start_maintenance(PlanKey::Work::page_copies, Runner::Kind::stoppable);
}

void Transaction::settle_keys(memory::Memory& memory) {
    if (!place_.layout.rotates_keys() || !memory.has_shifts()) return;
    place_.layout.model().file->check_intact();
    memory_ = &memory;
    number_ = 0;
    if (n_opened_ == 0) n_opened_ = 1;
    while (memory.has_shifts()) {
        start_key_shift();
        const RunStatus status = place_.runner.resume(Executor::kNoDeadline);
        if (status == RunStatus::damaged) place_.layout.model().file->check_intact();
        if (status == RunStatus::failed) std::rethrow_exception(place_.runner.take_error());
    }
}

}  // namespace tinfer::runtime
