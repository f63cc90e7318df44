// SPDX-License-Identifier: MIT
#include "runtime/executor.hpp"

#include <cstring>

#include "base/fp_env.hpp"

namespace tinfer::runtime {

namespace {

// A callback that throws is taken as a wish to stop: nothing may escape a parallel region.
bool wants_cancel(const CancelFn& cancel) noexcept {
    try {
        return cancel && cancel();
    } catch (...) {
        return true;
    }
}

}  // namespace

template <class Fn>
void Executor::observe(Fn&& fn) noexcept {
    try {
        fn();
    } catch (...) {
        error_ = std::current_exception();
    }
}

// The leader's decision after its share of a step: an observer threw, or the cancel callback said so (in the queue's poll
// between chunks, or here between steps).
bool Executor::should_stop(std::size_t step) noexcept {
    if (error_) return true;
    if (!cancelled_ && (queues_[step % 2].stopped() || wants_cancel(*cancel_))) cancelled_ = true;
    return cancelled_;
}

void Executor::poison(const graph::Step& step) noexcept {
    const graph::Plan& plan = bound_->plan;
    for (std::uint32_t i = 0; i < step.n_dead; ++i) {
        const std::uint32_t value = plan.dead[step.first_dead + i];
        if (plan.offsets[value] != graph::kNotInArena)
            std::memset(poison_arena_ + plan.offsets[value], 0xFF, bound_->value_bytes[value]);
    }
}

// Every thread runs this. Work queues alternate: the leader re-arms the next step's while this one runs, and nobody can
// still hold it, because all have passed the barrier of the step before.
template <bool Traced>
void Executor::loop(int thread, int n_threads) noexcept {
    const FpEnvironment environment;   // round to nearest, denormals kept; the caller's comes back at the end
    const bool leader = thread == 0;
    const bool immediate = Traced && observer_->immediate();
    const bool timed = Traced && observer_->wants_threads();
    for (std::size_t i = 0; i < bound_->calls.size(); ++i) {
        const kernels::KernelCall& call = bound_->calls[i];
        if (leader) queues_[(i + 1) % 2].rearm();
        if constexpr (Traced) {
            if (leader && !error_) observe([&] { observer_->before_step(i, call); });
            if (immediate) {   // the callbacks see the step before any thread runs it
                if (leader) stop_before_[i % 2] = error_ != nullptr;
                barrier_.wait(n_threads);
                if (stop_before_[i % 2]) return;
            }
        }
        const std::uint64_t begin = timed ? observer_->now() : 0;
        bound_->kernels[i]->run(call, {thread, n_threads, &queues_[i % 2]});
        if (timed) observer_->thread_span(i, thread, begin, observer_->now());

        if (leader) stop_after_[i % 2] = should_stop(i);
        barrier_.wait(n_threads);
        if (poison_arena_ != nullptr) {
            if (leader) poison(bound_->plan.steps[i]);
            barrier_.wait(n_threads);
        }
        if constexpr (Traced)
            if (leader && !error_) observe([&] { observer_->after_step(i, call, stop_after_[i % 2]); });
        if (stop_after_[i % 2]) return;
    }
}

RunStatus Executor::run(const BoundPlan& bound, int n_threads, const CancelFn& cancel, StepObserver* observer, TeamRunner team) noexcept {
    bound_ = &bound;
    cancel_ = &cancel;
    observer_ = observer;
    cancelled_ = false;
    error_ = nullptr;
    for (kernels::WorkQueue& queue : queues_) {
        queue.rearm();
        queue.set_poll([](void* fn) noexcept { return wants_cancel(*static_cast<const CancelFn*>(fn)); }, const_cast<CancelFn*>(&cancel));
        if (!cancel) queue.set_poll(nullptr, nullptr);
    }
    team(n_threads, [](void* self, int thread, int team_size) noexcept {
        auto& executor = *static_cast<Executor*>(self);
        if (executor.observer_ != nullptr) executor.loop<true>(thread, team_size);
        else executor.loop<false>(thread, team_size);
    }, this);
    if (error_) return RunStatus::failed;
    return cancelled_ ? RunStatus::cancelled : RunStatus::ok;
}

}  // namespace tinfer::runtime
