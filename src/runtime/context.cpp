// SPDX-License-Identifier: MIT
#include "runtime/context.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/error.hpp"

namespace tinfer {

using runtime::BoundPlan;
using runtime::MicroBatch;
using runtime::RunStatus;

namespace {

const kernels::KernelTable& table_for(Isa isa) {
    if (const kernels::KernelTable* table = kernels::find_table(isa)) return *table;
    fail(ErrorCode::not_available, cat("instruction set ", to_string(isa), " is not available on this machine or in this build"));
}

std::span<float> floats(AlignedBuffer& buffer) { return {reinterpret_cast<float*>(buffer.data()), buffer.size() / sizeof(float)}; }
std::span<std::int32_t> integers(std::byte* data, std::size_t n) { return {reinterpret_cast<std::int32_t*>(data), n}; }

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void check_memory_limit(const runtime::Layout& layout, const ContextOptions& options) {
    const MemoryPlan plan = layout.memory();
    const std::uint64_t needs = plan.context_total();
    if (options.memory_limit == 0 || needs <= options.memory_limit) return;
    fail(ErrorCode::limit_exceeded, cat("context needs ", needs, " bytes, limit ", options.memory_limit, ", ", needs - options.memory_limit,
                                        " too many (cache ", plan.cache, ", compute ", plan.compute, ", outputs ", plan.outputs, ", fixed ", plan.fixed,
                                        "); a smaller n_ctx, a smaller KV type or a smaller n_ubatch would help"));
}

}  // namespace

Context::Impl::Busy::Busy(runtime::TraceSession& session) : session_(session) {
    bool idle = false;
    if (!session.busy.compare_exchange_strong(idle, true, std::memory_order_acquire)) fail(ErrorCode::busy, "context is busy");
}

Context::Impl::Impl(Model owner_, const model::BoundModel& bound, ContextOptions options_)
    : Impl(std::move(owner_), bound, options_, table_for(options_.isa)) {}

Context::Impl::Impl(Model owner_, const model::BoundModel& bound, ContextOptions options_, const kernels::KernelTable& table)
    : owner(std::move(owner_)), layout(bound, options_, table), options((check_memory_limit(layout, options_), layout.options())),
      cache(layout.kv_limits()), batch(layout.batch_limits()), cache_data(layout.cache_bytes()), arena(layout.arena_bytes()),
      scratch(layout.scratch_bytes()), input_data(layout.input_bytes(), 64, Fill::zero), logits_data(layout.logits_bytes()),
      embeddings_data(layout.embeddings_bytes()), kept_data(layout.kept_bytes()), graph_(layout.max_nodes(), layout.max_values()),
      planner_(layout.max_nodes(), layout.max_values()) {
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < layout.caches().size(); ++i) {
        layout.place_cache(i, cache_data.data() + offset);
        offset += (layout.caches()[i].bytes + 63) / 64 * 64;
    }
    input_slots_.reserve(layout.inputs().size());
    for (const runtime::InputSlot& slot : layout.inputs()) input_slots_.emplace_back(slot.role, input_data.data() + slot.offset);
    map_ = {bound.file->tensors(), layout.caches(), arena.data(), scratch.data(), scratch.size(), input_slots_};
    session = std::make_shared<runtime::TraceSession>(runtime::Registry{bound.file->tensors(), layout.caches()}, layout.table().name, bound.hp.arch);
    kept_values.resize(layout.kept().size(), 0);
    token_views_.resize(static_cast<std::size_t>(options.n_ubatch));
    for (BoundPlan& plan : plans_) plan.reserve(layout.max_nodes(), layout.max_values());
}

Context::Impl::~Impl() { session->detach_all(); }

std::byte* Context::Impl::input(std::string_view role) noexcept {
    for (const auto& [name, address] : input_slots_)
        if (name == role) return address;
    return nullptr;
}

// ---- the plan cache -------------------------------------------------------------------------------------------------

// The plan of the graph that graph_ holds now: one made before if the signature is the same, else made in the slot that
// was used least recently.
BoundPlan& Context::Impl::bound_plan(runtime::GraphKind kind, bool fallback) {
    const std::uint64_t signature = graph_.signature();
    BoundPlan* slot = &plans_[0];
    for (BoundPlan& plan : plans_) {
        if (plan.id != 0 && plan.plan.signature == signature) {
            plan.last_use = ++uses_;
            return plan;
        }
        if (plan.last_use < slot->last_use) slot = &plan;
    }
    slot->id = 0;
    planner_.make(graph_, {.fuse = options.fuse}, slot->plan);
    if (slot->plan.arena_bytes > arena.size() && fallback) {   // first fit is not monotone: the largest plan's offsets always fit
        slot->plan.offsets = layout.worst_offsets(kind);
        slot->plan.arena_bytes = arena.size();
    }
    TINFER_ASSERT(slot->plan.arena_bytes <= arena.size());
    runtime::bind(graph_, layout.table(), map_, layout.max_threads(), *slot);
    slot->plan.signature = signature;
    slot->last_use = ++uses_;
    slot->id = next_plan_id_++;
    return *slot;
}

BoundPlan& Context::Impl::plan_for(std::int64_t n_tokens, std::int64_t n_rows, bool from_embeddings) {
    layout.build(graph_, n_tokens, n_rows, from_embeddings);
    return bound_plan({from_embeddings, n_rows > 0}, true);
}

// ---- one run --------------------------------------------------------------------------------------------------------

RunStatus Context::Impl::run_plan(const BoundPlan& bound, Phase phase, std::uint32_t number, int n_threads, std::span<const TokenView> tokens, const CancelFn& cancel) {
    if (!session->active()) return executor.run(bound, n_threads, cancel, nullptr, team);
    session->begin_run({.graph = &graph_, .bound = &bound, .phase = phase, .decode = n_decodes_ - 1, .micro_batch = number, .n_threads = n_threads,
                        .cells_used = static_cast<std::uint32_t>(cache.used()),
                        .cells_total = static_cast<std::uint32_t>(cache.n_pages()) * static_cast<std::uint32_t>(memory::kPageSlots),
                        .tokens = tokens, .inputs = input_slots_});
    const RunStatus status = executor.run(bound, n_threads, cancel, session.get(), team);
    session->end_run(status);
    return status;
}

void Context::Impl::write_inputs(const MicroBatch& mb) {
    const auto T = mb.n;
    if (batch.has_embeddings()) {
        auto* rows = reinterpret_cast<float*>(input("inp_embd"));
        const auto n_embd = static_cast<std::size_t>(layout.model().hp.n_embd);
        for (std::size_t i = 0; i < T; ++i) std::ranges::copy(batch.embedding(mb.first + i), rows + i * n_embd);
    } else {
        std::ranges::copy(batch.ids().subspan(mb.first, T), integers(input("inp_tokens"), T).begin());
    }
    cache.write_inputs({.table = integers(input("kv_table"), 4 * cache.max_table_entries()), .seqs = integers(input("kv_seqs"), 2 * cache.max_run_sequences()),
                        .spans = integers(input("kv_spans"), 4 * T), .cells = integers(input("kv_cells"), T), .positions = integers(input("inp_pos"), T)});
    const auto rows = batch.output_rows().subspan(mb.first_output, mb.n_outputs);
    const auto out = integers(input("inp_out_rows"), mb.n_outputs);
    for (std::size_t i = 0; i < rows.size(); ++i) out[i] = rows[i] - static_cast<std::int32_t>(mb.first);
    for (std::size_t i = 0; i < T; ++i) {
        const memory::KvToken& token = batch.tokens()[mb.first + i];
        token_views_[i] = {Token{batch.ids()[mb.first + i]}, Pos{token.pos}, token.seqs.front(), batch.is_output(mb.first + i), token.seqs.size() > 1};
    }
}

void Context::Impl::collect_outputs(const BoundPlan& bound, const MicroBatch& mb) {
    const auto copy = [&](std::uint32_t id, std::span<float> to) {
        std::memcpy(to.data(), arena.data() + bound.plan.offsets[id], std::min<std::size_t>(to.size_bytes(), bound.value_bytes[id]));
    };
    for (std::uint32_t id = 0; id < graph_.values().size(); ++id) {
        const graph::Value& value = graph_.values()[id];
        if (!value.output) continue;
        const auto width = static_cast<std::size_t>(value.ne[0]);
        if (value.role == "result_output") copy(id, floats(logits_data).subspan(mb.first_output * width, mb.n_outputs * width));
        if (value.role == "result_norm" && options.embeddings) copy(id, floats(embeddings_data).subspan(mb.first_output * width, mb.n_outputs * width));
        for (std::size_t k = 0; k < layout.kept().size(); ++k) {
            const auto& kept = layout.kept()[k];
            if (kept.role != value.role || kept.layer != value.layer) continue;
            kept_values[k] = static_cast<std::uint64_t>(value.ne[0] * value.ne[1] * value.ne[2] * value.ne[3]);
            copy(id, floats(kept_data).subspan(kept.offset / sizeof(float), kept_values[k]));
        }
    }
}

RunStatus Context::Impl::run_micro_batch(const MicroBatch& mb, std::uint32_t number) {
    write_inputs(mb);
    const BoundPlan& bound = plan_for(static_cast<std::int64_t>(mb.n), static_cast<std::int64_t>(mb.n_outputs), batch.has_embeddings());
    const auto tokens = std::span<const TokenView>(token_views_).first(mb.n);
    // Prefill: more than one token of any sequence. Tokens of a sequence need not be neighbours, but rows ascend.
    bool prefill = false;
    for (std::size_t i = 0; i < mb.n && !prefill; ++i)
        for (std::size_t k = 0; k < i && !prefill; ++k) prefill = tokens[i].first_seq == tokens[k].first_seq;
    const int n_threads = mb.n == 1 ? options.n_threads : options.n_threads_batch;
    const RunStatus status = run_plan(bound, prefill ? Phase::prefill : Phase::decode, number, n_threads, tokens, options.cancel);
    if (status == RunStatus::ok) collect_outputs(bound, mb);
    return status;
}

void Context::Impl::copy_pages(std::span<const memory::PageCopy> copies, std::uint32_t number) {
    const auto pairs = integers(input("kv_pairs"), 2 * static_cast<std::size_t>(options.n_seq_max));
    std::ranges::fill(pairs, -1);
    for (std::size_t i = 0; i < copies.size(); ++i) {
        pairs[2 * i] = copies[i].from;
        pairs[2 * i + 1] = copies[i].to;
    }
    layout.build_page_copies(graph_);
    const BoundPlan& bound = bound_plan({}, false);
    if (run_plan(bound, Phase::maintenance, number, options.n_threads_batch, {}, {}) != RunStatus::ok) throw_compute_failed();
}

// ---- the transaction ------------------------------------------------------------------------------------------------

// What stopped the run: compute_failed with an observer's exception nested, or lack of memory.
void Context::Impl::throw_compute_failed() { std::rethrow_exception(executor.take_error()); }

DecodeStatus Context::Impl::run_batch() {
    std::uint32_t number = 0;
    for (std::size_t first = 0; first < batch.size();) {
        MicroBatch mb = batch.micro_batch(first);
        const memory::Placed placed = cache.place(batch.tokens().subspan(first, mb.n));
        if (placed.no_room || placed.tokens == 0) return DecodeStatus::no_room;
        if (placed.tokens < mb.n) mb = batch.shortened(mb, placed.tokens);
        if (!cache.copies().empty()) copy_pages(cache.copies(), number);
        switch (run_micro_batch(mb, number)) {
            case RunStatus::ok: break;
            case RunStatus::cancelled: return DecodeStatus::cancelled;
            case RunStatus::failed: throw_compute_failed();
        }
        first += mb.n;
        ++number;
    }
    return DecodeStatus::ok;
}

template <class Input>
DecodeStatus Context::Impl::run_transaction(const Input& input) {
    const Busy busy(*session);
    const auto begin = std::chrono::steady_clock::now();
    n_outputs = 0;
    std::ranges::fill(kept_values, 0);
    batch.build(input, cache);
    if (!cache.can_place(batch.tokens())) return DecodeStatus::no_room;
    ++n_decodes_;
    cache.begin();
    DecodeStatus status = DecodeStatus::ok;
    try {
        status = run_batch();
    } catch (const std::bad_alloc&) {
        cache.rollback();
        session->detach_requested();
        throw Error(ErrorCode::out_of_memory, "decode: an allocation failed");
    } catch (...) {
        cache.rollback();
        session->detach_requested();
        throw;
    }
    if (status == DecodeStatus::ok) {
        cache.commit();
        n_outputs = static_cast<int>(batch.output_rows().size());
    } else {
        cache.rollback();
    }
    session->detach_requested();
    (batch.size() > 1 ? timings.prompt_s : timings.generation_s) += seconds_since(begin);
    if (status == DecodeStatus::ok) (batch.size() > 1 ? timings.prompt_n : timings.generation_n) += batch.size();
    return status;
}

DecodeStatus Context::Impl::decode(std::span<const Token> tokens) { return run_transaction(tokens); }
DecodeStatus Context::Impl::decode(const Batch& input_batch) { return run_transaction(input_batch); }

// ---- results and small things ---------------------------------------------------------------------------------------

std::span<const float> Context::Impl::output_row(std::span<const float> rows, std::size_t width, int index, std::string_view what) const {
    if (rows.empty()) fail(ErrorCode::no_output, cat("the context gives no ", what));
    if (n_outputs == 0) fail(ErrorCode::no_output, "no outputs: the last decode did not succeed, or there was none");
    if (index < -n_outputs || index >= n_outputs)
        fail(ErrorCode::index_out_of_range, cat("output index ", index, " outside [-", n_outputs, ",", n_outputs, ")"));
    return rows.subspan(static_cast<std::size_t>(index < 0 ? index + n_outputs : index) * width, width);
}

std::span<const float> Context::Impl::result(std::string_view name) const {
    const auto rows = [&](const AlignedBuffer& buffer, int width) {
        return std::span(reinterpret_cast<const float*>(buffer.data()), static_cast<std::size_t>(n_outputs) * static_cast<std::size_t>(width));
    };
    for (std::size_t k = 0; k < layout.kept().size(); ++k)
        if (layout.kept()[k].name == name) return {reinterpret_cast<const float*>(kept_data.data() + layout.kept()[k].offset), kept_values[k]};
    if (name == "result_output") return rows(logits_data, layout.model().hp.n_vocab);
    if (name == "result_norm" && options.embeddings) return rows(embeddings_data, layout.model().hp.n_embd);
    fail(ErrorCode::no_output, cat("no result named '", escaped(name), "': ask for it in ContextOptions::keep"));
}

void Context::Impl::clear(bool zero_data) {
    cache.clear();
    if (zero_data && cache_data.size() > 0) std::memset(cache_data.data(), 0, cache_data.size());
    n_outputs = 0;
}

void Context::Impl::set_threads(int n_threads, int n_threads_batch) {
    const int most = layout.max_threads();
    for (const int n : {n_threads, n_threads_batch})
        if (n < 1 || n > most) fail(ErrorCode::bad_parameter, cat("threads = ", n, ": must lie in 1 to ", most, ", the number the context was made for"));
    options.n_threads = n_threads;
    options.n_threads_batch = n_threads_batch;
}

}  // namespace tinfer
