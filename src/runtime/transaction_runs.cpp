// SPDX-License-Identifier: MIT
// The runs of a transaction: each micro-batch is one of a plan, and so are the moves of slots and keys before it. Which
// comes next is in transaction.cpp.
#include <algorithm>
#include <exception>

#include "base/error.hpp"
#include "runtime/transaction.hpp"

namespace tinfer::runtime {

RunDetails Transaction::run_of(const PlanKey& key, Phase phase, int n_threads) {
    running_ = &deps_.plans->get(key);
    RunDetails run{.graph = deps_.runner.is_watched() ? &deps_.plans->graph() : nullptr,
                   .bound = {},
                   .phase = phase,
                   .decode = n_opened_ - 1,
                   .micro_batch = number_,
                   .n_threads = n_threads,
                   .tokens = {},
                   .inputs = deps_.inputs.places(),
                   .head = deps_.head_view};
    if (deps_.runner.is_watched()) {
        run.slots_used = static_cast<std::uint32_t>(memory_->used());
        run.slots_total = static_cast<std::uint32_t>(memory_->capacity());
    }
    return run;
}

void Transaction::start_micro_batch() {
    const MicroBatch& mb = micro_batch_;
    deps_.inputs.write(*batch_, mb, *memory_, encodes());
    if (deps_.encoder != nullptr && !encodes()) deps_.encoder->write_spans(*batch_, mb, deps_.inputs);
    model::AdapterMask adapters = model::kAllAdapters;
    if (deps_.adapters) adapters = deps_.adapters->write_inputs(batch_->tokens(), batch_->output_rows(), mb);
    for (std::size_t i = 0; i < mb.n; ++i) {
        const memory::KvToken& token = batch_->tokens()[mb.first + i];
        token_views_[i] = {Token{batch_->ids()[mb.first + i]}, Pos{token.pos}, token.seqs.front(),
                           batch_->is_output(mb.first + i), token.seqs.size() > 1};
    }
    if (encodes()) deps_.encoder->forget();  // what it left is written over
    const bool prefill = batch_->is_prefill(mb.first, mb.n);
    RunDetails run = run_of({.work = encodes() ? PlanKey::Work::encode : PlanKey::Work::decode,
                             .from_embeddings = batch_->has_embeddings(),
                             .n_tokens = static_cast<std::int64_t>(mb.n),
                             .n_outputs = static_cast<std::int64_t>(mb.n_outputs),
                             .adapters = adapters,
                             .draft_block = deps_.inputs.draft.block},
                            deps_.head_view != nullptr            ? Phase::draft
                            : encodes() || !deps_.layout.causal() ? Phase::encode
                            : is_verification()                   ? Phase::verify
                            : prefill                             ? Phase::prefill
                                                                  : Phase::decode,
                            mb.n == 1 ? deps_.options.n_threads : deps_.options.n_threads_batch);
    run.tokens = std::span(token_views_).first(mb.n);
    deps_.runner.start(*running_, run, Runner::Kind::stoppable, &deps_.options.cancel);
}

void Transaction::start_maintenance(PlanKey::Work work, Runner::Kind kind) {
    const RunDetails run = run_of({.work = work}, Phase::maintenance, deps_.options.n_threads_batch);
    deps_.runner.start(*running_, run, kind, nullptr);
}

// Keys of moved tokens are rotated in place, at most n_ubatch slots at once: not cancelled, and not stopped by an
// observer.
void Transaction::start_key_shift() {
    const auto T = static_cast<std::size_t>(deps_.options.n_ubatch);
    const auto slots = deps_.inputs.integers(Input::kv_slots, T), shifts = deps_.inputs.integers(Input::positions, T);
    std::ranges::fill(slots, -1);
    std::ranges::fill(shifts, 0);
    const std::size_t n = memory_->drain_shifts(slots, shifts);
    if (deps_.layout.memory_limits().has_window_pool())
        std::ranges::transform(slots, deps_.inputs.integers(Input::kv_slots_window, T).begin(),
                               [&](std::int32_t slot) { return memory_->window_slot(slot); });
    try {
        start_maintenance(PlanKey::Work::key_shift, Runner::Kind::whole);
    } catch (...) {
        memory_->give_back_shifts(slots.first(n), shifts.first(n));
        throw;
    }
}

// Live slots move together where a batch does not fit otherwise. It changes no token and no bit of a result, so it is
// not rolled back with the batch, and it is neither cancelled nor stopped by an observer.
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
    deps_.inputs.write_page_copies(*memory_);
    start_maintenance(PlanKey::Work::page_copies, Runner::Kind::stoppable);
}

void Transaction::apply_key_shifts(memory::Memory& memory) {
    if (!deps_.layout.rotates_keys() || !memory.has_shifts()) return;
    deps_.layout.model().file->check_intact();
    memory_ = &memory;
    number_ = 0;
    if (n_opened_ == 0) n_opened_ = 1;
    while (memory.has_shifts()) {
        start_key_shift();
        const RunStatus status = deps_.runner.resume(Executor::kNoDeadline);
        if (status == RunStatus::damaged) deps_.layout.model().file->check_intact();
        if (status == RunStatus::failed) std::rethrow_exception(deps_.runner.take_error());
    }
}

}  // namespace tinfer::runtime
