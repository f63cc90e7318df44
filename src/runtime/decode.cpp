// SPDX-License-Identifier: MIT
// One decode: a transaction over the cache, cut into micro-batches, each a run of a plan. It is a small state machine,
// so that a decode in slices of time and one in a single piece are the same code.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "runtime/context.hpp"

namespace tinfer {

using runtime::BoundPlan;
using runtime::RunStatus;
using Clock = runtime::Executor::Clock;

namespace {

constexpr std::size_t kFewTokens = 16;  // of a run whose team may be made smaller

std::span<float> floats(AlignedBuffer& buffer) {
    return {reinterpret_cast<float*>(buffer.data()), buffer.size() / sizeof(float)};
}
std::span<std::int32_t> integers(std::byte* data, std::size_t n) { return {reinterpret_cast<std::int32_t*>(data), n}; }

// Prefill: more than one token of any sequence; one token each of some sequences is a step of their generation, however
// many they are. Tokens of a sequence need not be neighbours, but rows ascend.
template <class SeqOf>
bool is_prefill(std::size_t n, const SeqOf& seq_of) {
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t k = 0; k < i; ++k)
            if (seq_of(i) == seq_of(k)) return true;
    return false;
}

// What a whole decode says of its last step, which leaves nothing pending.
DecodeStatus outcome(StepStatus status) noexcept {
    switch (status) {
        case StepStatus::ok: return DecodeStatus::ok;
        case StepStatus::no_room: return DecodeStatus::no_room;
        default: return DecodeStatus::cancelled;
    }
}

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
        session->begin_run({.graph = &graph_,
                            .bound = &bound,
                            .phase = phase,
                            .decode = n_decodes_ - 1,
                            .micro_batch = number_,
                            .n_threads = n_threads,
                            .cells_used = static_cast<std::uint32_t>(memory_->used()),
                            .cells_total = static_cast<std::uint32_t>(memory_->capacity()),
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
    const double on_processor = runtime::thread_seconds();
    const auto begin = Clock::now();
    const RunStatus status = executor.resume(deadline);
    run_time_.wall += std::chrono::duration<double>(Clock::now() - begin).count();
    run_time_.on_processor += runtime::thread_seconds() - on_processor;
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
    memory::MemoryInputs places;
    if (const memory::KvCache* kv = memory_->kv()) {
        const model::HParams& hp = layout.model().hp;
        places.kv = {.table = integers(input("kv_table"), 4 * kv->max_table_entries()),
                     .seqs = integers(input("kv_seqs"), 2 * kv->max_run_sequences()),
                     .cells = integers(input("kv_cells"), T),
                     .positions = integers(input("inp_pos"), T)};
        if (hp.reads_positions())
            places.kv.cell_positions =
                integers(input("kv_positions"), static_cast<std::size_t>(kv->n_pages()) * memory::kPageSlots);
        kv->write_spans(pass_ == Pass::encode ? Window{.causal = false} : layout.full_view(),
                        integers(input("kv_spans"), 4 * T));
        if (hp.has_windowed_layers()) kv->write_spans(layout.window(), integers(input("kv_spans_window"), 4 * T));
    }
    places.state_rows = integers(input("state_rows"), 2 * T);
    if (layout.memory_limits().has_window_pool()) {
        places.window_table = integers(input("kv_table_window"), places.kv.table.size());
        places.window_cells = integers(input("kv_cells_window"), T);
    }
    memory_->write_inputs(places);
    if (encoder && pass_ == Pass::decode) write_cross_inputs();
    write_pooling_inputs(mb);
    const auto rows = batch_->output_rows().subspan(mb.first_output, mb.n_outputs);
    const auto out = integers(input("inp_out_rows"), mb.n_outputs);
    for (std::size_t i = 0; i < rows.size(); ++i) out[i] = rows[i] - static_cast<std::int32_t>(mb.first);
    for (std::size_t i = 0; i < T; ++i) {
        const memory::KvToken& token = batch_->tokens()[mb.first + i];
        token_views_[i] = {Token{batch_->ids()[mb.first + i]}, Pos{token.pos}, token.seqs.front(),
                           batch_->is_output(mb.first + i), token.seqs.size() > 1};
    }
}

void Context::Impl::collect_outputs() {
    const runtime::MicroBatch& mb = micro_batch_;
    const auto copy = [&](std::uint32_t id, std::span<float> to) {
        std::memcpy(to.data(), arena.data() + running_->plan.offsets[id],
                    std::min<std::size_t>(to.size_bytes(), running_->value_bytes[id]));
    };
    for (const std::uint32_t id : running_->outputs) {
        const graph::Value& value = graph_.values()[id];
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
    const BoundPlan& bound = plan_for(
        {static_cast<std::int64_t>(mb.n), static_cast<std::int64_t>(mb.n_outputs), batch_->has_embeddings(), encodes});
    const auto tokens = std::span<const TokenView>(token_views_).first(mb.n);
    const bool prefill = is_prefill(tokens.size(), [&](std::size_t i) { return tokens[i].first_seq; });
    start_run(bound,
              encodes || !layout.causal() ? Phase::encode
              : prefill                   ? Phase::prefill
                                          : Phase::decode,
              mb.n == 1 ? options.n_threads : options.n_threads_batch, tokens, &options.cancel);
}

// Keys of moved tokens are rotated in place, at most n_ubatch cells at once: not cancelled, and not stopped by an
// observer.
void Context::Impl::start_key_shift() {
    const auto T = static_cast<std::size_t>(options.n_ubatch);
    const auto cells = integers(input("kv_cells"), T), shifts = integers(input("inp_pos"), T);
    std::ranges::fill(cells, -1);
    std::ranges::fill(shifts, 0);
    const std::size_t n = memory_->take_shifts(cells, shifts);
    if (layout.memory_limits().has_window_pool())
        std::ranges::transform(cells, integers(input("kv_cells_window"), T).begin(),
                               [&](std::int32_t cell) { return memory_->window_cell(cell); });
    try {
        start_run(key_shift_plan(), Phase::maintenance, options.n_threads_batch, {}, nullptr);
    } catch (...) {
        memory_->give_back_shifts(cells.first(n), shifts.first(n));
        throw;
    }
}

memory::Compaction Context::Impl::compaction() noexcept {
    if (memory_->kv() == nullptr) return {};
    const auto rows = [&](std::string_view role, std::int32_t n_pages) {
        std::byte* const list = input(role);
        return integers(list, list == nullptr ? 0 : 3 * memory::CellMoves::n_rows(n_pages * memory::kPageSlots));
    };
    return {rows("kv_moves", memory_->kv()->n_pages()),
            rows("kv_moves_window",
                 layout.memory_limits().has_window_pool() ? layout.memory_limits().n_window_pages() : 0)};
}

// Live cells move together where a batch does not fit otherwise. No token is another one afterwards and no bit of a
// result, so it stays done whatever becomes of the batch, and it is neither cancelled nor stopped by an observer.
void Context::Impl::start_compaction() {
    const memory::Compaction moves = compaction();
    if (moves.empty()) {
        memory_->compact(moves);
        return;
    }
    stage_ = Stage::compact;
    try {
        start_run(compaction_plan(), Phase::maintenance, options.n_threads_batch, {}, nullptr);
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
    start_run(page_copy_plan(), Phase::maintenance, options.n_threads_batch, {}, nullptr);
}

// ---- the transaction ------------------------------------------------------------------------------------------------

template <class Input>
void Context::Impl::open(const Input& input, Pass pass) {
    Busy busy(session->busy);
    const bool encodes = pass == Pass::encode;
    forget_outputs();
    pass_ = pass;
    memory_ = encodes ? &encoder->sequences : &sequences;
    batch_ = encodes ? &encoder->batch : &batch;
    layout.model().file->check_intact();  // another context of the model may have found it
    batch_->build(input, *memory_);
    if (encoder && !encodes) check_encoded();
    fit_ = batch_->fits() ? memory_->fit(batch_->tokens(), compaction()) : memory::Memory::Fit::no_room;
    if (fit_ == memory::Memory::Fit::as_it_is) memory_->begin();
    if (fit_ != memory::Memory::Fit::no_room) ++n_decodes_;
    begin_pooling();
    generates_ = !encodes && layout.causal() &&
                 !is_prefill(batch_->size(), [&](std::size_t i) { return batch_->tokens()[i].seqs.front(); });
    spent_s_ = 0;
    n_done_ = 0;
    number_ = 0;
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
            if (n_done_ == batch_->size()) return StepStatus::ok;
            micro_batch_ = batch_->micro_batch(n_done_);
            const memory::Placed placed = memory_->place(batch_->tokens().subspan(n_done_, micro_batch_.n));
            if (placed.no_room || placed.tokens == 0) return StepStatus::no_room;
            if (placed.tokens < micro_batch_.n) micro_batch_ = batch_->shortened(micro_batch_, placed.tokens);
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
            collect_outputs();
            n_done_ += micro_batch_.n;
            ++number_;
            stage_ = Stage::place;
        }
        const bool done = stage_ == Stage::place && n_done_ == batch_->size();
        if (deadline != runtime::Executor::kNoDeadline && !done && Clock::now() >= deadline) return StepStatus::pending;
    }
}

// Commits or rolls back; the context is free again.
void Context::Impl::finish(StepStatus status) noexcept {
    if (status == StepStatus::ok) {
        if (pass_ == Pass::encode) keep_encoded();
        layout.causal() && pass_ == Pass::decode ? memory_->commit()
                                                 : memory_->rollback();  // a bidirectional call leaves nothing behind
        n_outputs = pooled_data.size() > 0 ? 0 : static_cast<int>(batch_->output_rows().size());
        has_outputs = pass_ == Pass::decode;
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

StepStatus Context::Impl::advance(Clock::time_point deadline) {
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
    if (status != StepStatus::pending) finish(status);
    return status;
}

template <class Input>
DecodeStatus Context::Impl::decode(const Input& input) {
    const Busy busy(stepping_);
    open(input, Pass::decode);
    return outcome(advance(runtime::Executor::kNoDeadline));
}

template <class Input>
DecodeStatus Context::Impl::encode(const Input& input) {
    const Busy busy(stepping_);
    open(input, Pass::encode);
    return outcome(advance(runtime::Executor::kNoDeadline));
}

void Context::Impl::begin(std::span<const Token> tokens) {
    const Busy busy(stepping_);
    open(tokens, Pass::decode);
}

template <class AnyBatch>
void Context::Impl::begin(AnyBatch&& given) {
    const Busy busy(stepping_);
    if (stage_ != Stage::none) fail(ErrorCode::busy, "context is busy");  // begun_ is in use
    begun_ = std::forward<AnyBatch>(given);
    open(begun_, Pass::decode);
}

StepStatus Context::Impl::step(std::chrono::nanoseconds budget) {
    const auto now = Clock::now();
    const Busy busy(stepping_);
    if (stage_ == Stage::none) fail(ErrorCode::bad_parameter, "step: no decode has begun");
    budget = std::clamp<std::chrono::nanoseconds>(budget, {}, runtime::Executor::kNoDeadline - now);
    return advance(now + budget);
}

void Context::Impl::abandon() {
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

template DecodeStatus Context::Impl::decode(const std::span<const Token>& tokens);
template DecodeStatus Context::Impl::decode(const Batch& batch);
template DecodeStatus Context::Impl::encode(const std::span<const Token>& tokens);
template DecodeStatus Context::Impl::encode(const Batch& batch);
template void Context::Impl::begin(const Batch& batch);
template void Context::Impl::begin(Batch&& batch);

}  // namespace tinfer
