// SPDX-License-Identifier: MIT
// The runs of a decode: each micro-batch is one of a plan, and so are the moves of slots and keys before it. Which
// comes next is in transaction.cpp.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "runtime/context.hpp"

namespace tinfer {

using runtime::BoundPlan;
using runtime::PlanKey;
using runtime::RunStatus;
using Clock = runtime::Executor::Clock;

namespace {

constexpr std::size_t kFewTokens = 16;  // of a run whose team may be made smaller

std::span<float> floats(AlignedBuffer& buffer) {
    return {reinterpret_cast<float*>(buffer.data()), buffer.size() / sizeof(float)};
}
std::span<std::int32_t> integers(std::byte* data, std::size_t n) { return {reinterpret_cast<std::int32_t*>(data), n}; }

}  // namespace

// ---- one run --------------------------------------------------------------------------------------------------------

void Context::Impl::start_run(const BoundPlan& bound, Phase phase, int n_threads, std::span<const TokenView> tokens,
                              const CancelFn* cancel) {
    running_ = &bound;
    n_threads = std::min(n_threads, team_limit);
    // Larger runs meet seldom, and what watches sees the team that was asked for.
    run_is_timed_ = n_threads > 1 && !tokens.empty() && tokens.size() <= kFewTokens && !session->active();
    if (run_is_timed_) n_threads = team_size.choose(n_threads, tokens.size());
    run_time_ = {};
    if (session->active()) {
        session->begin_run({.graph = &plans_->graph(),
                            .bound = &bound,
                            .phase = phase,
                            .decode = n_decodes_ - 1,
                            .micro_batch = number_,
                            .n_threads = n_threads,
                            .slots_used = static_cast<std::uint32_t>(memory_->used()),
                            .slots_total = static_cast<std::uint32_t>(memory_->capacity()),
                            .tokens = tokens,
                            .inputs = input_slots_});
        run_is_seen_ = true;
    }
    runtime::StepObserver* observer = run_is_seen_ ? session.get() : nullptr;
    if (observer != nullptr && (stage_ == Stage::shift_keys || stage_ == Stage::compact)) {
        deferring_.watch(observer);
        observer = &deferring_;
    }
    executor.start(bound, n_threads, cancel, observer, team);
}

RunStatus Context::Impl::continue_run(Clock::time_point deadline) {
    const RunStatus status = run_is_timed_ ? timed_slice(deadline) : executor.resume(deadline);
    if (status == RunStatus::paused) return status;
    if (run_is_timed_ && status == RunStatus::ok) team_size.note(run_time_.wall, run_time_.on_processor);
    const std::exception_ptr deferred = deferring_.take_error();
    end_run(deferred ? RunStatus::failed : status);
    if (deferred) std::rethrow_exception(deferred);
    return status;
}

RunStatus Context::Impl::timed_slice(Clock::time_point deadline) {
    const double on_processor = thread_seconds();
    const auto begin = Clock::now();
    const RunStatus status = executor.resume(deadline);
    run_time_.wall += std::chrono::duration<double>(Clock::now() - begin).count();
    run_time_.on_processor += thread_seconds() - on_processor;
    return status;
}

void Context::Impl::end_run(RunStatus status) {
    if (std::exchange(run_is_seen_, false)) session->end_run(status);
}

void Context::Impl::write_inputs() {
    const runtime::MicroBatch& mb = micro_batch_;
    const auto T = mb.n;
    if (batch_->has_embeddings()) {
        auto* rows = reinterpret_cast<float*>(input("inp_embd"));
        const auto n_embd = static_cast<std::size_t>(layout.model().hp.n_embd);
        for (std::size_t i = 0; i < T; ++i) std::ranges::copy(batch_->embedding(mb.first + i), rows + i * n_embd);
    } else {
        std::ranges::copy(batch_->ids().subspan(mb.first, T), integers(input("inp_tokens"), T).begin());
    }
    if (pass_ == Pass::decode) write_ids();
    memory::MemoryInputs places;
    if (const memory::KvCache* kv = memory_->kv()) {
        const model::HParams& hp = layout.model().hp;
        places.kv = {.table = integers(input("kv_table"), 4 * kv->max_table_entries()),
                     .seqs = integers(input("kv_seqs"), 2 * kv->max_run_sequences()),
                     .slots = integers(input("kv_slots"), T),
                     .positions = integers(input("inp_pos"), T)};
        if (hp.reads_positions())
            places.kv.slot_positions =
                integers(input("kv_positions"), static_cast<std::size_t>(kv->n_pages()) * memory::kPageSlots);
        kv->write_spans(pass_ == Pass::encode ? Window{.causal = false} : layout.full_view(),
                        integers(input("kv_spans"), 4 * T));
        if (hp.has_windowed_layers()) kv->write_spans(layout.window(), integers(input("kv_spans_window"), 4 * T));
    }
    places.state_rows = integers(input("state_rows"), 2 * T);
    if (layout.memory_limits().has_window_pool()) {
        places.window_table = integers(input("kv_table_window"), places.kv.table.size());
        places.window_slots = integers(input("kv_slots_window"), T);
    }
    memory_->write_inputs(places);
    if (encoder && pass_ == Pass::decode) write_cross_inputs();
    write_pooling_inputs(mb);
    if (adapters_) adapters_->write_inputs(batch_->tokens(), batch_->output_rows(), mb);
    const auto rows = batch_->output_rows().subspan(mb.first_output, mb.n_outputs);
    const auto out = integers(input("inp_out_rows"), mb.n_outputs);
    for (std::size_t i = 0; i < rows.size(); ++i) out[i] = rows[i] - static_cast<std::int32_t>(mb.first);
    for (std::size_t i = 0; i < T; ++i) {
        const memory::KvToken& token = batch_->tokens()[mb.first + i];
        token_views_[i] = {Token{batch_->ids()[mb.first + i]}, Pos{token.pos}, token.seqs.front(),
                           batch_->is_output(mb.first + i), token.seqs.size() > 1};
    }
}

// What follows from ids beside the rows of embeddings: switches to adapters, and n-grams.
void Context::Impl::write_ids() {
    const model::HParams& hp = layout.model().hp;
    const auto ids = batch_->ids().subspan(micro_batch_.first, micro_batch_.n);
    const std::size_t n = ids.size();
    if (hp.switches.count() > 0) {
        const auto tokens = integers(input("inp_tokens"), n);
        const std::span<float> marks{reinterpret_cast<float*>(input("inp_marks")), n};
        for (std::size_t i = 0; i < n; ++i) {
            const auto found = std::ranges::find(hp.switches.activate, ids[i]);
            const auto k = static_cast<std::size_t>(found - hp.switches.activate.begin());
            const bool switches = found != hp.switches.activate.end();
            marks[i] = switches ? static_cast<float>(k + 1) : 0.0f;
            if (switches) tokens[i] = hp.switches.substitute[k];
        }
    }
    if (hp.ngram.layer >= 0) {
        std::ranges::transform(ids, integers(input("ngram_ids"), n).begin(),
                               [&](std::int32_t id) { return batch_->has_embeddings() ? hp.ngram.image_id : id; });
        const auto words = integers(input("ngram_constants"), 2 * hp.ngram.constants.size());
        for (std::size_t i = 0; i < hp.ngram.constants.size(); ++i) {
            words[2 * i] = static_cast<std::int32_t>(hp.ngram.constants[i]);
            words[2 * i + 1] = static_cast<std::int32_t>(hp.ngram.constants[i] >> 32);
        }
    }
}

void Context::Impl::collect_outputs() {
    const runtime::MicroBatch& mb = micro_batch_;
    const auto copy = [&](std::uint32_t id, std::span<float> to) {
        std::memcpy(to.data(), arena.data() + running_->plan.offsets[id],
                    std::min<std::size_t>(to.size_bytes(), running_->value_bytes[id]));
    };
    for (const std::uint32_t id : running_->outputs) {
        const graph::Value& value = plans_->graph().values()[id];
        const auto width = static_cast<std::size_t>(value.ne[0]);
        if (pooled_data.size() > 0)
            collect_pooled(mb, value.role,
                           {reinterpret_cast<const float*>(arena.data() + running_->plan.offsets[id]),
                            running_->value_bytes[id] / sizeof(float)},
                           width);
        if (value.role == "result_output")
            copy(id, floats(logits_data).subspan(mb.first_output * width, mb.n_outputs * width));
        if (value.role == "result_norm" && embeddings_data.size() > 0)
            copy(id, floats(embeddings_data).subspan(mb.first_output * width, mb.n_outputs * width));
        for (std::size_t k = 0; k < layout.kept().size(); ++k) {
            const auto& kept = layout.kept()[k];
            if (kept.role != value.role || kept.layer != value.layer) continue;
            const std::uint64_t n = running_->value_bytes[id] / sizeof(float), before = kept.grows ? kept_values[k] : 0;
            copy(id, floats(kept_data).subspan(kept.offset / sizeof(float) + before, n));
            kept_values[k] = before + n;
        }
    }
}

void Context::Impl::start_micro_batch() {
    write_inputs();
    const runtime::MicroBatch& mb = micro_batch_;
    const bool encodes = pass_ == Pass::encode;
    if (encodes) forget_encoded();  // what it left is written over
    const BoundPlan& bound = plans_->get({.work = encodes ? PlanKey::Work::encode : PlanKey::Work::decode,
                                          .from_embeddings = batch_->has_embeddings(),
                                          .n_tokens = static_cast<std::int64_t>(mb.n),
                                          .n_outputs = static_cast<std::int64_t>(mb.n_outputs)});
    const auto tokens = std::span<const TokenView>(token_views_).first(mb.n);
    const bool prefill = batch_->is_prefill(mb.first, mb.n);
    start_run(bound,
              encodes || !layout.causal() ? Phase::encode
              : is_check_                 ? Phase::verify
              : prefill                   ? Phase::prefill
                                          : Phase::decode,
              mb.n == 1 ? options.n_threads : options.n_threads_batch, tokens, &options.cancel);
}

// Keys of moved tokens are rotated in place, at most n_ubatch slots at once: not cancelled, and not stopped by an
// observer.
void Context::Impl::start_key_shift() {
    const auto T = static_cast<std::size_t>(options.n_ubatch);
    const auto slots = integers(input("kv_slots"), T), shifts = integers(input("inp_pos"), T);
    std::ranges::fill(slots, -1);
    std::ranges::fill(shifts, 0);
    const std::size_t n = memory_->take_shifts(slots, shifts);
    if (layout.memory_limits().has_window_pool())
        std::ranges::transform(slots, integers(input("kv_slots_window"), T).begin(),
                               [&](std::int32_t slot) { return memory_->window_slot(slot); });
    try {
        start_run(plans_->get({.work = PlanKey::Work::key_shift}), Phase::maintenance, options.n_threads_batch, {},
                  nullptr);
    } catch (...) {
        memory_->give_back_shifts(slots.first(n), shifts.first(n));
        throw;
    }
}

memory::Compaction Context::Impl::compaction() noexcept {
    if (memory_->kv() == nullptr) return {};
    const auto rows = [&](std::string_view role, std::int32_t n_pages) {
        std::byte* const list = input(role);
        return integers(list, list == nullptr ? 0 : 3 * memory::SlotMoves::n_rows(n_pages * memory::kPageSlots));
    };
    return {rows("kv_moves", memory_->kv()->n_pages()),
            rows("kv_moves_window",
                 layout.memory_limits().has_window_pool() ? layout.memory_limits().n_window_pages() : 0)};
}

// Live slots move together where a batch does not fit otherwise. No token is another one afterwards and no bit of a
// result, so it stays done whatever becomes of the batch, and it is neither cancelled nor stopped by an observer.
void Context::Impl::start_compaction() {
    const memory::Compaction moves = compaction();
    if (moves.empty()) {
        memory_->compact(moves);
        return;
    }
    stage_ = Stage::compact;
    try {
        start_run(plans_->get({.work = PlanKey::Work::compaction}), Phase::maintenance, options.n_threads_batch, {},
                  nullptr);
    } catch (...) {
        stage_ = Stage::place;  // nothing has moved
        throw;
    }
    memory_->compact(moves);
}

void Context::Impl::start_page_copies() {
    const auto write = [&](std::string_view role, std::span<const memory::PageCopy> copies) {
        const auto pairs = integers(input(role), 2 * static_cast<std::size_t>(options.n_seq_max));
        std::ranges::fill(pairs, -1);
        for (std::size_t i = 0; i < copies.size(); ++i) {
            pairs[2 * i] = copies[i].from;
            pairs[2 * i + 1] = copies[i].to;
        }
    };
    write("kv_pairs", memory_->copies());
    if (layout.memory_limits().has_window_pool()) write("kv_pairs_window", memory_->window_copies());
    start_run(plans_->get({.work = PlanKey::Work::page_copies}), Phase::maintenance, options.n_threads_batch, {},
              nullptr);
}

}  // namespace tinfer
