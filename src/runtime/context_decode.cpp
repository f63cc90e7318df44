// SPDX-License-Identifier: MIT
// The ways to decode: whole, in slices of time, or as a transaction of which a part is kept. Each is one transaction;
// what is here keeps the context to one caller and counts the time.
#include <algorithm>
#include <utility>

#include "base/access.hpp"
#include "base/error.hpp"
#include "runtime/context.hpp"

namespace tinfer {

using runtime::Purpose;

namespace {

// What a whole decode says of its last step, which leaves nothing pending.
DecodeStatus outcome(StepStatus status) noexcept {
    switch (status) {
        case StepStatus::ok: return DecodeStatus::ok;
        case StepStatus::no_room: return DecodeStatus::no_room;
        default: return DecodeStatus::cancelled;
    }
}

}  // namespace

// ---- a transaction --------------------------------------------------------------------------------------------------

// Before anything changes.
void Context::Impl::check_hidden(std::size_t n_tokens, std::span<const float> hidden) const {
    const model::HParams& hp = layout.model().hp;
    const auto width = static_cast<std::size_t>(hp.part.n_in);
    if (!hp.begins_late() && !hidden.empty())
        fail(ErrorCode::invalid_batch, "hidden states: the model begins with its first layer, which takes none");
    if (hp.begins_late() && hidden.empty())
        fail(ErrorCode::invalid_batch,
             cat("the model begins with layer ", hp.part.first,
                 " (ModelOptions::layers): a batch needs the hidden states that the layers before have left"));
    if (hidden.size() != n_tokens * width)
        fail(ErrorCode::invalid_batch, cat("hidden states: ", hidden.size(), " floats, ", n_tokens, " tokens need ",
                                           n_tokens * width, ", ", width, " each"));
    if (!options.check_finite) return;
    if (const auto bad = runtime::first_non_finite(hidden))
        fail(ErrorCode::invalid_batch, cat("hidden states of the token at index ", *bad / width, " are not finite"));
}

template <class Given>
void Context::Impl::prepare(const Given& given, Purpose purpose, std::span<const float> hidden) {
    Busy busy(session->busy);
    outputs.forget();
    session->begin_outputs();
    layout.model().file->check_intact();  // another context of the model may have found it
    const bool encodes = purpose == Purpose::encode;
    memory::Memory& memory = encodes ? encoder->memory : sequences;
    runtime::BatchPlan& plan = encodes ? encoder->batch : batch;
    plan.build(given, memory);
    check_hidden(given.size(), hidden);
    inputs.hidden = hidden;
    if (encoder && !encodes) encoder->check(plan);
    if (adapters) adapters->check(plan.tokens());
    transaction_.open(plan, memory, purpose);
    busy.keep();
}

// The context is free again.
void Context::Impl::release() noexcept {
    awaits_commit_.store(false, std::memory_order_release);
    session->detach_requested();
    session->busy.store(false, std::memory_order_release);
}

StepStatus Context::Impl::advance_or_release(Clock::time_point deadline) {
    try {
        const StepStatus status = transaction_.advance(deadline);
        if (status == StepStatus::ok) awaits_commit_.store(true, std::memory_order_release);
        else if (status != StepStatus::pending) release();
        return status;
    } catch (...) {
        release();
        throw;
    }
}

StepStatus Context::Impl::commit_and_release(std::span<const runtime::Keep> keeps) {
    const bool was_open = transaction_.is_open();
    try {
        const StepStatus status = transaction_.commit(keeps);
        if (status == StepStatus::ok) take_times();
        release();
        return status;
    } catch (...) {
        if (was_open && !transaction_.is_open()) release();
        throw;
    }
}

void Context::Impl::take_times() noexcept {
    const bool generates = transaction_.generates();
    (generates ? timings.generation_n : timings.prompt_n) += transaction_.n_kept();
    (generates ? timings.generation_s : timings.prompt_s) += transaction_.seconds();
    const PagerCounts& held = runner.executor().held().counts();
    timings.expert_hits += held.hits - held_before_.hits;
    timings.expert_misses += held.misses - held_before_.misses;
    timings.expert_bytes += held.bytes_read - held_before_.bytes_read;
    timings.expert_wait_s += static_cast<double>(held.waited_ns - held_before_.waited_ns) * 1e-9;
    held_before_ = held;
    if (!transaction_.is_verification()) return;
    const std::size_t n_drafted = transaction_.n_drafted();
    timings.drafted_n += n_drafted;
    timings.accepted_n += n_drafted - std::min(n_drafted, transaction_.n_refused());
}

void Context::Impl::open(const Batch& given, Purpose purpose) {
    const Busy busy(stepping_);
    if (transaction_.is_open()) refuse_busy();  // begun_ is in use
    begun_ = given;
    prepare(begun_, purpose);
}

StepStatus Context::Impl::advance(Clock::time_point deadline) {
    const Busy busy(stepping_);
    if (!transaction_.is_open()) fail(ErrorCode::bad_parameter, "advance: no decode has begun");
    return advance_or_release(deadline);
}

DecodeStatus Context::Impl::commit(std::span<const runtime::Keep> keeps) {
    const Busy busy(stepping_);
    return outcome(commit_and_release(keeps));
}

void Context::Impl::rollback() {
    const Busy busy(stepping_);
    if (!transaction_.is_open()) return;
    try {
        transaction_.rollback();
    } catch (...) {  // an observer's
        release();
        throw;
    }
    release();
}

// ---- whole, and in slices -------------------------------------------------------------------------------------------

StepStatus Context::Impl::run_to_the_end() {
    const StepStatus status = advance_or_release(runtime::Executor::kNoDeadline);
    return status == StepStatus::ok ? commit_and_release({}) : status;
}

template <class Given>
DecodeStatus Context::Impl::decode(const Given& given, std::span<const float> hidden) {
    const Busy busy(stepping_);
    prepare(given, Purpose::decode, hidden);
    return outcome(run_to_the_end());
}

DecodeStatus Context::Impl::compute(const Batch& given, std::span<const float> hidden) {
    const Busy busy(stepping_);
    if (transaction_.is_open()) refuse_busy();  // begun_ is in use
    begun_ = given;
    begun_hidden_.assign(hidden.begin(), hidden.end());
    prepare(begun_, Purpose::decode, begun_hidden_);
    return outcome(advance_or_release(runtime::Executor::kNoDeadline));
}

template <class Given>
DecodeStatus Context::Impl::encode(const Given& given) {
    const Busy busy(stepping_);
    prepare(given, Purpose::encode);
    return outcome(run_to_the_end());
}

void Context::Impl::begin(std::span<const Token> tokens) {
    const Busy busy(stepping_);
    prepare(tokens, Purpose::decode);
}

template <class AnyBatch>
void Context::Impl::begin(AnyBatch&& given) {
    const Busy busy(stepping_);
    if (transaction_.is_open()) refuse_busy();  // begun_ is in use
    begun_ = std::forward<AnyBatch>(given);
    prepare(begun_, Purpose::decode);
}

StepStatus Context::Impl::step(std::chrono::nanoseconds budget) {
    const auto now = Clock::now();
    const Busy busy(stepping_);
    if (!transaction_.is_open()) fail(ErrorCode::bad_parameter, "step: no decode has begun");
    budget = std::clamp<std::chrono::nanoseconds>(budget, {}, runtime::Executor::kNoDeadline - now);
    const StepStatus status = advance_or_release(now + budget);
    return status == StepStatus::ok ? commit_and_release({}) : status;
}

template DecodeStatus Context::Impl::decode(const std::span<const Token>& tokens, std::span<const float> hidden);
template DecodeStatus Context::Impl::decode(const Batch& batch, std::span<const float> hidden);
template DecodeStatus Context::Impl::encode(const std::span<const Token>& tokens);
template DecodeStatus Context::Impl::encode(const Batch& batch);
template void Context::Impl::begin(const Batch& batch);
template void Context::Impl::begin(Batch&& batch);

namespace {

template <class Given>
DecodeStatus encode_any(Context& context, const Given& given) {
    return reporting_memory("encode: an allocation failed", [&] {
        Context::Impl& impl = detail::impl_of(context);
        if (impl.encoder) return impl.encode(given);
        if (context.options().attention == AttentionKind::causal)
            fail(ErrorCode::unsupported_operation, "encode: attention is causal (ContextOptions::attention)");
        return impl.decode(given);
    });
}

}  // namespace

DecodeStatus Context::encode(std::span<const Token> tokens) { return encode_any(*this, tokens); }
DecodeStatus Context::encode(const Batch& batch) { return encode_any(*this, batch); }

}  // namespace tinfer
