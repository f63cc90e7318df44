// SPDX-License-Identifier: MIT
// The members of tinfer::Context and Attachment, except those that need a loaded model's insides (src/tinfer.cpp).

#include "base/access.hpp"
#include "base/error.hpp"
#include "runtime/context.hpp"

namespace tinfer {

namespace {
constexpr std::string_view kInContext = "context: an allocation failed";

/// A range as src/memory takes it: [p0, p1), p1 = -1 to the end.
struct Bounds {
    Bounds(std::string_view operation, PosRange range)
        : p0(range.begin), p1(range.end == kPosEnd ? Pos{-1} : range.end) {
        for (const Pos pos : {range.begin, range.end})
            if (pos < Pos{0})
                fail(ErrorCode::bad_parameter, cat(operation, ": position ", static_cast<std::int32_t>(pos),
                                                   " of the range: must not be negative"));
    }
    Pos p0, p1;
};

}  // namespace

Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;
Context::~Context() = default;

DecodeStatus Context::decode(std::span<const Token> tokens) {
    return reporting_memory(kInContext, [&] { return impl_->decode(tokens); });
}
DecodeStatus Context::decode(const Batch& batch) {
    return reporting_memory(kInContext, [&] { return impl_->decode(batch); });
}

DecodeStatus Context::decode(const Batch& batch, std::span<const float> hidden) {
    return reporting_memory(kInContext, [&] { return impl_->decode(batch, hidden); });
}
DecodeStatus Context::compute(const Batch& batch, std::span<const float> hidden) {
    return reporting_memory(kInContext, [&] { return impl_->compute(batch, hidden); });
}
void Context::commit() {
    reporting_memory(kInContext, [&] { (void)impl_->commit(); });  // of all tokens: nothing is computed again
}

void Context::begin(std::span<const Token> tokens) {
    reporting_memory(kInContext, [&] { impl_->begin(tokens); });
}
void Context::begin(const Batch& batch) {
    reporting_memory(kInContext, [&] { impl_->begin(batch); });
}
void Context::begin(Batch&& batch) {
    reporting_memory(kInContext, [&] { impl_->begin(std::move(batch)); });
}

StepStatus Context::step(std::chrono::nanoseconds budget) {
    return reporting_memory(kInContext, [&] { return impl_->step(budget); });
}

void Context::abandon() {
    reporting_memory(kInContext, [&] { impl_->rollback(); });
}

int Context::n_outputs() const noexcept { return impl_->outputs.size(); }

std::span<const float> Context::logits(int index) const& {
    return reporting_memory(kInContext, [&] { return impl_->outputs.logits(index); });
}

std::span<const float> Context::embedding(int index) const& {
    return reporting_memory(kInContext, [&] { return impl_->outputs.embedding(index); });
}

std::span<const float> Context::pooled(SeqId seq) const& {
    return reporting_memory(kInContext, [&] { return impl_->outputs.pooled(seq, impl_->batch); });
}

int Context::output_index(int token_index) const {
    return reporting_memory(kInContext, [&] {
        impl_->outputs.check_any();
        return impl_->batch.output_index(token_index);
    });
}

std::span<const float> Context::result(std::string_view name) const& {
    return reporting_memory(kInContext, [&] { return impl_->outputs.result(name); });
}

std::span<const float> Context::hidden() const& {
    return reporting_memory(kInContext, [&] { return impl_->outputs.hidden(); });
}

RemoveStatus Context::seq_rm(SeqId seq, PosRange range) {
    const Impl::Busy busy(impl_->session->busy);
    return reporting_memory(kInContext, [&] {
        const Bounds bounds("seq_rm", range);
        const RemoveStatus status = impl_->sequences.seq_rm(seq, bounds.p0, bounds.p1);
        if (impl_->head && status == RemoveStatus::ok)
            impl_->head->seq_rm(seq, bounds.p0, bounds.p1, impl_->end_of(seq));
        return status;
    });
}

RemoveStatus Context::rm_all_seqs(PosRange range) {
    const Impl::Busy busy(impl_->session->busy);
    return reporting_memory(kInContext, [&] {
        const Bounds bounds("rm_all_seqs", range);
        const RemoveStatus status = impl_->sequences.rm_all_seqs(bounds.p0, bounds.p1);
        if (impl_->head && status == RemoveStatus::ok)
            for (int i = 0; i < impl_->options.n_seq_max; ++i)
                impl_->head->seq_rm(SeqId{i}, bounds.p0, bounds.p1, impl_->end_of(SeqId{i}));
        return status;
    });
}

void Context::seq_cp(SeqId from, SeqId to, PosRange range) {
    const Impl::Busy busy(impl_->session->busy);
    reporting_memory(kInContext, [&] {
        const Bounds bounds("seq_cp", range);
        impl_->sequences.seq_cp(from, to, bounds.p0, bounds.p1);
        if (impl_->head && from != to) impl_->head->seq_cp(from, to, bounds.p0, bounds.p1, impl_->end_of(to));
    });
}

void Context::seq_keep(SeqId seq) {
    const Impl::Busy busy(impl_->session->busy);
    reporting_memory(kInContext, [&] {
        impl_->sequences.seq_keep(seq);
        if (!impl_->head) return;
        for (int i = 0; i < impl_->options.n_seq_max; ++i)
            if (SeqId{i} != seq) impl_->head->seq_rm(SeqId{i}, Pos{0}, Pos{-1}, Pos{0});
    });
}

void Context::seq_add(SeqId seq, PosRange range, int delta) {
    const Impl::Busy busy(impl_->session->busy);
    reporting_memory(kInContext, [&] {
        const Bounds bounds("seq_add", range);
        impl_->check_movable("seq_add");
        impl_->sequences.seq_add(seq, bounds.p0, bounds.p1, delta);
        if (impl_->head) impl_->head->seq_add(seq, bounds.p0, bounds.p1, delta, impl_->end_of(seq));
    });
}

void Context::seq_div(SeqId seq, PosRange range, int divisor) {
    const Impl::Busy busy(impl_->session->busy);
    reporting_memory(kInContext, [&] {
        const Bounds bounds("seq_div", range);
        impl_->check_movable("seq_div");
        impl_->sequences.seq_div(seq, bounds.p0, bounds.p1, divisor);
        if (impl_->head) impl_->head->replaced(seq, impl_->end_of(seq));
    });
}

RemoveStatus Context::seq_shift(SeqId seq, Pos keep, int n) {
    const Impl::Busy busy(impl_->session->busy);
    return reporting_memory(kInContext, [&] {
        if (keep < Pos{0} || n < 0)
            fail(ErrorCode::bad_parameter, cat("seq_shift: ", n, " positions from ", static_cast<std::int32_t>(keep),
                                               " on: neither may be negative"));
        impl_->check_movable("seq_shift");
        const RemoveStatus status = impl_->sequences.shift(seq, keep, n);
        if (impl_->head && status == RemoveStatus::ok) impl_->head->seq_shift(seq, keep, n, impl_->end_of(seq));
        return status;
    });
}

bool Context::can_shift() const noexcept {
    const auto& hp = impl_->layout.model().hp;
    return hp.n_pos_table == 0 && !hp.has_states() && !hp.attention.head_norms_behind_rope;
}

void Context::clear(bool zero_data) {
    const Impl::Busy busy(impl_->session->busy);
    impl_->clear(zero_data);
}

std::optional<Pos> Context::seq_pos_min(SeqId seq) const {
    const auto pos = reporting_memory(kInContext, [&] { return impl_->sequences.pos_min(seq); });
    return pos < 0 ? std::nullopt : std::optional(Pos{pos});
}

std::optional<Pos> Context::seq_pos_max(SeqId seq) const {
    const auto pos = reporting_memory(kInContext, [&] { return impl_->sequences.pos_max(seq); });
    return pos < 0 ? std::nullopt : std::optional(Pos{pos});
}

int Context::count(SeqId seq) const {
    return reporting_memory(kInContext, [&] { return impl_->sequences.count(seq); });
}
int Context::used() const noexcept { return impl_->sequences.used(); }
int Context::room(SeqId seq) const {
    return reporting_memory(kInContext, [&] { return impl_->room(seq); });
}

const Model& Context::model() const& noexcept { return impl_->owner; }
const ContextOptions& Context::options() const& noexcept { return impl_->options; }
std::string_view Context::isa() const noexcept { return impl_->layout.table().name; }
Timings Context::timings() const noexcept { return impl_->timings; }

void Context::reset_timings() noexcept {
    const double load_s = impl_->timings.load_s;
    impl_->timings = {};
    impl_->timings.load_s = load_s;
}

void Context::set_threads(int n_threads, int n_threads_batch) {
    const Impl::Busy busy(impl_->session->busy);
    reporting_memory(kInContext, [&] { impl_->set_threads(n_threads, n_threads_batch); });
}

void Context::set_cancel(CancelFn cancel) {
    const Impl::Busy busy(impl_->session->busy);
    impl_->options.cancel = std::move(cancel);
}

// Counted from the buffers held; equals the plan because both come from one layout.
MemoryPlan Context::memory() const noexcept {
    MemoryPlan memory = impl_->layout.memory();
    impl_->layout.model().file->count_weights(memory);
    if (impl_->head) return memory;  // which counts that, too
    memory.cache = impl_->cache_data.size();
    memory.recurrent = impl_->state_data.size();
    memory.compute = impl_->arena.size() + impl_->scratch.size() + impl_->inputs.bytes();
    memory.outputs = impl_->outputs.bytes();
    return memory;
}

// ---- observers ------------------------------------------------------------------------------------------------------

struct Attachment::Impl {
    std::weak_ptr<trace::TraceSession> session;
    std::shared_ptr<trace::Attached> attached;
};

Attachment Context::attach(std::shared_ptr<Observer> observer) {
#if defined(TINFER_TRACE) && !TINFER_TRACE
    (void)observer;
    fail(ErrorCode::not_available, "tracing not built in");
#else
    const Impl::Busy busy(impl_->session->busy);
    return reporting_memory("attach: an allocation failed", [&] {
        auto handle = std::make_shared<Attachment::Impl>();  // first: once the observer is attached, nothing may fail
        handle->attached = impl_->session->attach(std::move(observer), impl_->options.n_threads);
        handle->session = impl_->session;
        return detail::Access::make<Attachment>(std::move(handle));
    });
#endif
}

void Context::mark(std::string_view text) {
    reporting_memory(kInContext, [&] { impl_->session->mark(text, impl_->sample_flag()); });
}

Attachment::Attachment(Attachment&& other) noexcept : impl_(std::move(other.impl_)) {}

Attachment& Attachment::operator=(Attachment&& other) noexcept {
    if (this == &other) return *this;
    Attachment old;
    old.impl_ = std::exchange(impl_, std::move(other.impl_));
    return *this;
}

Attachment::~Attachment() {
    if (!attached()) return;
    const auto session = impl_->session.lock();
    if (session == nullptr) return;
    bool idle = false;
    if (session->busy.compare_exchange_strong(idle, true)) {
        session->detach(impl_->attached);
        session->busy.store(false);
    } else {
        impl_->attached->detach_requested = true;  // inside a callback: after the current decode
    }
}

void Attachment::detach() {
    if (!attached()) return;
    const auto session = impl_->session.lock();
    if (session == nullptr) return;
    const Context::Impl::Busy busy(session->busy);
    session->detach(impl_->attached);
}

void Attachment::request_detach() noexcept {
    if (attached()) impl_->attached->detach_requested = true;
}

bool Attachment::attached() const noexcept {
    return impl_ != nullptr && !impl_->session.expired() && impl_->attached->observer != nullptr;
}

}  // namespace tinfer
