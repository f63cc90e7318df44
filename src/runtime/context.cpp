// SPDX-License-Identifier: MIT
#include "runtime/context.hpp"

#include <cstring>
#include <new>

#include "base/access.hpp"
#include "base/error.hpp"

namespace tinfer {

namespace {

const kernels::KernelTable& table_for(Isa isa) {
    if (const kernels::KernelTable* table = kernels::find_table(isa)) return *table;
    fail(ErrorCode::not_available,
         cat("instruction set ", to_string(isa), " is not available on this machine or in this build"));
}

/// A context with more bytes than this is first allocated as a whole, and freed again, before its parts are.
constexpr std::uint64_t kLargeContext = std::uint64_t{1} << 30;

/// The files that traces name; tests also run weights of no model.
const ModelFile* traced_file(const Model& model) noexcept {
    return detail::Access::state(model) == nullptr ? nullptr : &model.file();
}

const ModelFile* traced_draft_file(const ContextOptions& options) noexcept {
    if (options.draft_head == nullptr) return nullptr;
    const auto& file = detail::impl_of(*options.draft_head).file;
    return file ? &*file : nullptr;
}

}  // namespace

void runtime::check_memory_limit(const Layout& layout, const ContextOptions& options) {
    const MemoryPlan plan = layout.memory();
    const std::uint64_t needs = plan.context_total();
    if (options.memory_limit == 0 || needs <= options.memory_limit) {
        // One allocation of all shows at once what the system does not have, before large tables are filled.
        void* const all = needs > kLargeContext ? ::operator new(needs, std::nothrow) : nullptr;
        ::operator delete(all);
        if (all == nullptr && needs > kLargeContext)
            fail(ErrorCode::out_of_memory, cat("context: n_ctx ", layout.options().n_ctx, " needs ", needs,
                                               " bytes (cache ", plan.cache, "), which the system does not have"));
        return;
    }
    fail(ErrorCode::limit_exceeded,
         cat("context needs ", needs, " bytes, limit ", options.memory_limit, ", ", needs - options.memory_limit,
             " too many (cache ", plan.cache, ", recurrent ", plan.recurrent, ", compute ", plan.compute, ", outputs ",
             plan.outputs, ", adapters ", plan.adapters, ", fixed ", plan.fixed,
             "); a smaller n_ctx, a smaller KV type or a smaller n_ubatch would help"));
}

void Context::Impl::refuse_busy() {
    fail(ErrorCode::busy, "context is busy: another call of it runs, or a decode that begin() has begun is pending "
                          "(step() computes it, abandon() ends it)");
}

Context::Impl::Busy::Busy(std::atomic<bool>& flag) : flag_(flag) {
    if (flag.exchange(true, std::memory_order_acquire)) refuse_busy();
}

Context::Impl::Impl(Model owner_, const model::BoundModel& bound, ContextOptions options_)
    : Impl(std::move(owner_), bound, options_, table_for(options_.isa)) {}

Context::Impl::Impl(Model owner_, const model::BoundModel& bound, ContextOptions options_,
                    const kernels::KernelTable& table, const runtime::HeadTarget* target)
    : owner(std::move(owner_)), layout(bound, options_, table, target ? &target->layout : nullptr),
      options((runtime::check_memory_limit(layout, options_), layout.options())), sequences(layout.memory_limits()),
      batch(layout.batch_limits()),
      session(std::make_shared<trace::TraceSession>(layout.tensors(), traced_file(owner), traced_draft_file(options),
                                                    layout.table().name, bound.hp.arch)),
      cache_data(layout.cache_bytes()), state_data(layout.state_bytes()), arena(layout.arena_bytes()),
      scratch(layout.scratch_bytes()), inputs(layout), outputs(layout),
      runner(layout.max_threads(), layout.max_units(), target ? target->session : session),
      transaction_({.layout = layout,
                    .options = options,
                    .inputs = inputs,
                    .outputs = outputs,
                    .runner = runner,
                    .encoder = layout.encoder() == nullptr ? nullptr : &encoder.emplace(*layout.encoder()),
                    .plans = plans,
                    .adapters = adapters,
                    .head = head,
                    .head_view = head_view,
                    .arena = arena}) {
    runner.executor().guard((bound.lender ? bound.lender : bound.file)->guarded_maps());
    runner.executor().page(bound.file->pager());
    std::byte *next_cache = cache_data.data(), *next_state = state_data.data();
    for (std::size_t i = 0; i < layout.caches().size(); ++i) {
        if (layout.caches()[i].address != nullptr) continue;  // a draft head's, of its target
        std::byte*& next = layout.caches()[i].tensor_class == TensorClass::recurrent ? next_state : next_cache;
        layout.place_cache(i, next);
        next += (layout.caches()[i].bytes + 63) / 64 * 64;
    }
    plans = std::make_unique<runtime::PlanCache>(
        layout, runtime::MemoryMap{layout.tensors(), arena.data(), scratch.data(), scratch.size(), inputs.places(),
                                   kernels::this_processor(), bound.file->paged_places()});
    if (options.draft_head) {
        head = std::make_unique<runtime::Head>(*options.draft_head, runtime::HeadTarget{layout, session}, sequences);
        session->replace_registry(head->show(head->shown_with(layout.tensors())));
    }
}

Context::Impl::~Impl() {
    try {
        rollback();
    } catch (...) {  // an observer's: nobody is left to hear of it
    }
    session->detach_all();
}

// What memory can take, and no more than the model has positions for; without causality a call is one micro-batch.
int Context::Impl::room(SeqId seq) const {
    int most = sequences.room(seq);
    if (const int n = layout.model().hp.n_pos_table; n > 0)
        most = std::min(most, std::max(0, n - 1 - sequences.pos_max(seq)));
    return layout.causal() ? most : std::min(most, options.n_ubatch);
}

void Context::Impl::clear(bool zero_data) {
    sequences.clear();
    if (head) head->clear();
    for (AlignedBuffer* buffer : {&cache_data, &state_data})
        if (zero_data && buffer->size() > 0) std::memset(buffer->data(), 0, buffer->size());
    if (zero_data && encoder) encoder->forget();
    outputs.forget();
}

void Context::Impl::check_movable(std::string_view operation) const {
    if (layout.model().hp.n_pos_table > 0)
        fail(ErrorCode::unsupported_operation,
             cat(operation, ": positions of architecture '", layout.model().hp.arch, "' are learned, and cannot move"));
    const auto& ratios = layout.model().hp.attention.compress.ratios;
    if (std::ranges::any_of(ratios, [](int ratio) { return ratio > 0; }))
        fail(ErrorCode::unsupported_operation, cat(operation, ": architecture '", layout.model().hp.arch,
                                                   "' keeps entries of groups of positions, which cannot move"));
    if (layout.model().hp.attention.head_norms_behind_rope)
        fail(ErrorCode::unsupported_operation,
             cat(operation, ": keys of architecture '", layout.model().hp.arch,
                 "' are normed behind their rotation, and cannot be rotated any more"));
}

void Context::Impl::set_threads(int n_threads, int n_threads_batch) {
    const int most = layout.max_threads();
    for (const int n : {n_threads, n_threads_batch})
        if (n < 1 || n > most)
            fail(ErrorCode::bad_parameter,
                 cat("threads = ", n, ": must lie in 1 to ", most, ", the number the context was made for"));
    options.n_threads = n_threads;
    options.n_threads_batch = n_threads_batch;
}

}  // namespace tinfer
