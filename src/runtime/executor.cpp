// SPDX-License-Identifier: MIT
#include "runtime/executor.hpp"

#include <algorithm>

#include "base/fp_env.hpp"

namespace tinfer::runtime {

namespace {

constexpr int kStepsOfSlice = 16;  // steps that take this part of a slice or more are cut

// A callback that throws is taken as a wish to stop: nothing may escape a parallel region.
bool wants_cancel(const CancelFn& cancel) noexcept {
    try {
        return cancel && cancel();
    } catch (...) {
        return true;
    }
}

bool poll_cancel(void* cancel) noexcept { return wants_cancel(*static_cast<const CancelFn*>(cancel)); }

// The number of parts into which a step is cut that its kernel does not cut itself.
std::int64_t n_parts_of(std::chrono::nanoseconds step, int n_threads) noexcept {
    constexpr auto kPart = std::chrono::microseconds(100);
    constexpr std::int64_t kMax = 1 << 16;
    return std::max(std::min<std::int64_t>(step / kPart, kMax), std::int64_t{n_threads});
}

// Prefetches the KernelCall, which the weights have evicted from the caches since the last token.
void prefetch_call(const kernels::KernelCall& call) noexcept {
    const auto* bytes = reinterpret_cast<const std::byte*>(&call);
    for (std::size_t line = 0; line < sizeof(call); line += 64) __builtin_prefetch(bytes + line, 0, 3);
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

// The leader's decision at a barrier, about the steps since the last one. The run stops if an observer threw or the
// cancel callback asked for it (polled between chunks by the queue, and here between steps). It pauses if the time is
// over.
Executor::Next Executor::after(std::size_t first, std::size_t last, bool cut) noexcept {
    if (error_ || (maps_ != nullptr && maps_->damaged() != nullptr)) return Next::stop;
    if (cancel_ != nullptr) {
        bool cancelled = wants_cancel(*cancel_);
        for (std::size_t i = first; i <= last; ++i) cancelled = cancelled || queue(i).stopped();
        if (cancelled) {
            cancelled_ = true;
            return Next::stop;
        }
    }
    const bool goes_alone = waits_too_long();
    if (deadline_ != kNoDeadline) {
        // Of other steps the threads have not met yet, and some may still look at it.
        if (cut) inside_step_ = (queue(last).in_use() ? queue(last) : parts(last)).unfinished();
        rest_begin_ = inside_step_ ? last : last + 1;
        // A leader that goes on alone does so with the next slice: which steps are long depends on the team.
        const bool is_over =
            rest_begin_ < bound_->calls.size() && (inside_step_ || goes_alone || Clock::now() >= deadline_);
        if (is_over) return Next::pause;
    }
    return goes_alone ? Next::alone : Next::go_on;
}

// An observer that wants each thread's times sees the threads that were asked for.
bool Executor::waits_too_long() noexcept {
    if (!sleeps_.are_many() || alone_ || (observer_ != nullptr && observer_->wants_threads())) return false;
    alone_ = sleeps_.goes_alone(Clock::now(), mode_.n_threads, mode_.shortest_count);
    return alone_;
}

void Executor::meet(int thread, int n_threads) noexcept {
    const Clock::duration slept = barrier_.wait(n_threads);
    if (thread != 0 || slept == Clock::duration{}) return;
    sleeps_.note(slept);
}

// Whether a step should be one into which a deadline may fall.
bool Executor::is_long(std::size_t step) const noexcept {
    if (longest_step_ == kNeverCut || step >= bound_->calls.size()) return false;
    const auto time = step_time(*bound_->kernels[step], bound_->calls[step], bound_->declared[step]);
    return time >= longest_step_ * team_size_;
}

void Executor::arm(std::size_t step) noexcept {
    queue(step).rearm();
    parts(step).rearm();
    set_cut(step, is_long(step));
}

void Executor::set_cut(std::size_t step, bool cut) noexcept {
    if (cut_[step % kQueues] != cut) cut_[step % kQueues] = cut;
    queue(step).set_deadline(cut ? deadline_ : kNoDeadline);
    parts(step).set_deadline(cut ? deadline_ : kNoDeadline);
}

// One thread's work on a step. A step that is cut is made into small parts that are handed out like chunks; a kernel
// that claims chunks itself is known by its queue.
void Executor::run_step(const kernels::KernelCall& call, std::size_t step, bool cut, int thread,
                        int n_threads) noexcept {
    const kernels::KernelDescriptor& kernel = *bound_->kernels[step];
    kernels::WorkQueue& chunks = queue(step);
    kernels::Worker& worker = workers_[static_cast<std::size_t>(thread)];
    // Kernels size their chunks by the threads asked for: a later slice may get another team, and chunks must stay the
    // same.
    kernels::WorkSlice slice{thread, mode_.n_threads, &chunks, &worker, thread, n_threads, cut};
    if (!cut || chunks.in_use()) return kernel.run(call, slice);
    slice.n_parts = n_parts_of(step_time(kernel, call, bound_->declared[step]), mode_.n_threads);
    for (;;) {
        slice.part = parts(step).claim(thread, slice.n_parts, &worker);
        if (slice.part == kernels::WorkQueue::kNoChunk) return;
        kernel.run(call, slice);
        if (!chunks.in_use()) continue;
        --worker.n_chunks;  // the part was the kernel's own chunks
        return;
    }
}

// Every thread runs this. Threads meet where the plan says that steps depend on each other, after a step that may end
// unfinished, and after every step where an observer wants its end. Each thread takes its own time, and reads the clock
// once where it goes from step to step without meeting others.
template <bool Traced>
void Executor::loop(int thread, int n_threads) noexcept {
    const GuardedWork::Thread guarded(work_, thread);
    const FpEnvironment environment;  // round to nearest, denormals kept; the caller's comes back at the end
    const bool leader = thread == 0;
    const bool immediate = Traced && observer_->immediate();
    const bool timed = Traced && observer_->times_threads();
    kernels::Worker& worker = workers_[static_cast<std::size_t>(thread)];
    worker.begin_slice();
    bool goes_on = inside_step_;                        // with a step that has begun in an earlier slice
    std::size_t first = first_step_, parity = 0;        // first: step since the last barrier
    std::size_t need_parity = 0;                        // of the needs so far
    std::size_t part_end = 0;                           // steps before it have done a part
    std::uint64_t time = timed ? observer_->now() : 0;  // where this thread's next step begins
    for (std::size_t i = first_step_, n = bound_->calls.size(); i < n; ++i) {
        const kernels::KernelCall& call = bound_->calls[i];
        if (i + 1 < n) prefetch_call(bound_->calls[i + 1]);
        if (leader) arm(i + kAhead);
        const bool cut = cut_[i % kQueues];
        if (leader && bound_->needs[i].releases && pager_ != nullptr) pager_->release(held_);
        if (begins_need(i)) {
            need_parity ^= 1;
            if (leader) needs_[need_parity] = hold_needs(i);
            meet(thread, n_threads);
            part_end = needs_[need_parity].part_end;
            if (needs_[need_parity].stops) return;
            if (part_end > i) {
                for (std::size_t k = i; k < part_end; ++k) run_part(k, false, thread, n_threads);
                meet(thread, n_threads);
                need_parity ^= 1;
                if (leader) needs_[need_parity] = await_rest(i, part_end);
                meet(thread, n_threads);
                if (needs_[need_parity].stops) return;
            }
            if constexpr (Traced) {  // the wait is no kernel's
                if (leader) observer_->begin_slice();
                if (timed) time = observer_->now();
            }
        }
        if (!std::exchange(goes_on, false)) {
            worker.begin_step();
            if constexpr (Traced) {
                if (leader && !error_) observe([&] { time = observer_->before_step(i, call); });
                if (immediate) {  // the callbacks see the step before any thread runs it
                    if (leader) stop_before_[i % 2] = error_ != nullptr;
                    barrier_.wait(n_threads);
                    if (stop_before_[i % 2]) return;
                    if (timed && !leader) time = observer_->now();
                }
            }
        }
        const std::uint32_t n_before = worker.n_chunks;
        if (leader && bound_->needs[i].asks_for_group >= 0) ask_ahead(i);
        if (i < part_end) run_part(i, cut, thread, n_threads);
        else run_step(call, i, cut, thread, n_threads);
        if (timed) {
            const std::uint32_t n_chunks = worker.n_chunks - n_before;
            const std::uint64_t begin = std::exchange(time, observer_->now());
            observer_->thread_span(i, thread, begin, time, queue(i).in_use() ? n_chunks : std::max(n_chunks, 1u));
        }

        const bool meets = cut || immediate || bound_->barriers[i] != 0;
        Next next = Next::go_on;
        if (meets) {
            if (cut) meet(thread, n_threads);  // what is left of a step is known when nobody claims
            parity ^= 1;
            if (leader) next = after(first, i, cut);
            if (leader && n_threads > 1) decide(parity, next);
            meet(thread, n_threads);
            if (!leader) next = next_[parity];
            if (next == Next::pause && inside_step_) return;
            first = i + 1;
        }
        if constexpr (Traced) {
            if (timed ? meets && n_threads > 1 : leader) time = observer_->now();
            if (leader && !error_)
                observe([&] { observer_->after_step(i, call, queue(i).stopped() || next == Next::stop, time); });
        }
        if (next == Next::go_on) continue;
        if (next != Next::alone || !leader) return;
        n_threads = 1;
    }
}

// Brings what a step needs into memory, and keeps it there until the next need: of the experts those that the step's
// ids name. The ids are final: a barrier stands between the step that wrote them and this one. What was held before is
// no longer read by anybody, because these ids depend on what it has made.
Executor::Need Executor::hold_needs(std::size_t step) noexcept {
    const PagedNeed& need = bound_->needs[step];
    const kernels::Operand& ids = bound_->calls[step][3];
    Need found{.stops = true};
    observe([&] {
        if (!need.by_ids) held_.want(0);
        for (std::int64_t t = 0; need.by_ids && t < ids.ne[1]; ++t)
            for (std::int64_t k = 0; k < ids.ne[0]; ++k) held_.want(ids.row<const std::int32_t>(t)[k]);
        const auto poll = cancel_ != nullptr ? poll_cancel : nullptr;
        auto* const context = const_cast<CancelFn*>(cancel_);
        const auto begun = pager_->begin(held_, static_cast<std::size_t>(need.group), poll, context);
        if (begun == Pager::Begun::some && need.by_ids) found.part_end = end_of_parts(step);
        if (found.part_end > step) choose_part(ids, true);
        found.stops =
            begun == Pager::Begun::cancelled || (found.part_end <= step && !pager_->finish(held_, poll, context));
        cancelled_ = cancelled_ || found.stops;
    });
    return found;
}

// Whether a step, and those with the same needs that come before a barrier, first multiply by the experts that are in
// memory, while the others are read. Each expert's rows are stored before they are summed, so no bit depends on it.
// Observers that want times see each step once.
std::size_t Executor::end_of_parts(std::size_t step) const noexcept {
    const kernels::Operand& ids = bound_->calls[step][3];
    if (static_cast<std::size_t>(ids.ne[0] * ids.ne[1]) > part_ids_.size()) return 0;
    if (observer_ != nullptr && (observer_->immediate() || observer_->wants_times())) return 0;
    std::size_t end = step;
    while (end < bound_->calls.size() && bound_->needs[end].group >= 0 &&
           bound_->needs[end].first == bound_->needs[step].first && !cut_[end % kQueues]) {
        ++end;
        if (bound_->barriers[end - 1] != 0) break;
    }
    return end;
}

void Executor::choose_part(const kernels::Operand& ids, bool here) noexcept {
    std::size_t i = 0;
    for (std::int64_t t = 0; t < ids.ne[1]; ++t)
        for (std::int64_t k = 0; k < ids.ne[0]; ++k) {
            const std::int32_t expert = ids.row<const std::int32_t>(t)[k];
            part_ids_[i++] = held_.is_here(expert) == here ? expert : -1;
        }
}

// The second part: waits for the experts that the first did not have.
Executor::Need Executor::await_rest(std::size_t step, std::size_t part_end) noexcept {
    Need found{.stops = true, .part_end = part_end};
    for (std::size_t i = step; i < part_end; ++i) {
        cancelled_ = cancelled_ || queue(i).stopped();
        queue(i).rearm();
        parts(i).rearm();
    }
    observe([&] {
        found.stops = cancelled_ || !pager_->finish(held_, cancel_ != nullptr ? poll_cancel : nullptr,
                                                    const_cast<CancelFn*>(cancel_));
        cancelled_ = cancelled_ || found.stops;
        choose_part(bound_->calls[step][3], false);
    });
    return found;
}

void Executor::run_part(std::size_t step, bool cut, int thread, int n_threads) noexcept {
    kernels::KernelCall call = bound_->calls[step];
    kernels::Operand& ids = call.operands[3];
    ids.data = reinterpret_cast<std::byte*>(part_ids_.data());
    ids.nb[1] = ids.ne[0] * static_cast<std::int64_t>(sizeof(std::int32_t));
    call.next_product = 0;  // of the list of calls, which this is not in
    run_step(call, step, cut, thread, n_threads);
}

// A router's step begins: what it multiplies is as good a question to the next router as there is now.
void Executor::ask_ahead(std::size_t step) noexcept {
    if (pager_ == nullptr) return;
    const kernels::Operand& x = bound_->calls[step][2];
    const auto group = static_cast<std::size_t>(bound_->needs[step].asks_for_group);
    observe([&] {
        const auto n_tokens = static_cast<std::size_t>(x.n_rows());
        if (n_tokens > Pager::kGuessTokens) pager_->expect_all(group);
        else if (x.type == DType::f32 && x.nb[1] == x.ne[0] * static_cast<std::int64_t>(sizeof(float)))
            pager_->guess(group, x.row<const float>(0), static_cast<std::size_t>(x.ne[0]), n_tokens);
    });
}

void Executor::start(const BoundPlan& bound, const Mode& mode, const CancelFn* cancel,
                     StepObserver* observer) noexcept {
    bound_ = &bound;
    mode_ = mode;
    cancel_ = cancel != nullptr && *cancel ? cancel : nullptr;
    observer_ = observer;
    if (mode.n_threads > n_processors_) barrier_.set_spin({});
    else barrier_.set_spin(mode.shares_processors ? LeaderSleeps::kSharedSpin : Barrier::kSpin);
    first_step_ = 0;
    last_team_ = mode.n_threads;
    paused_at_ = Clock::now();
    sleeps_.restart(paused_at_);
    inside_step_ = cancelled_ = alone_ = false;
    error_ = nullptr;
    held_.note_reads(observer != nullptr && pager_ != nullptr);
    for (kernels::WorkQueue& chunks : queues_) {
        chunks.rearm();
        chunks.set_poll(cancel_ != nullptr ? poll_cancel : nullptr, const_cast<CancelFn*>(cancel_));
    }
    for (kernels::WorkQueue& any : parts_) any.rearm();
}

void Executor::run_loop(int thread, int n_threads) noexcept {
#if !defined(TINFER_TRACE) || TINFER_TRACE
    if (observer_ != nullptr) return loop<true>(thread, n_threads);
#endif
    loop<false>(thread, n_threads);
}

void Executor::run_team_on_steps() noexcept {
    if (alone_) return run_loop(0, 1);
    const bool forked = mode_.team == run_team && process_ != process_id();  // its threads have stayed in the parent
    (forked ? run_new_team : mode_.team)(
        mode_.n_threads,
        [](void* self, int thread, int n_threads) noexcept {
            auto& executor = *static_cast<Executor*>(self);
            if (thread == 0) executor.last_team_ = n_threads;
            executor.run_loop(thread, n_threads);
        },
        this);
}

RunStatus Executor::resume(Clock::time_point deadline) noexcept {
    rest_begin_ = first_step_;
    next_ = {};
    const auto now = Clock::now();
    sleeps_.pause(now - paused_at_);
    if (alone_ && sleeps_.tries_team(now)) {
        alone_ = false;
        sleeps_.restart(now);
    }
    team_size_ = alone_ ? 1 : std::min(mode_.n_threads, last_team_);
    deadline_ = deadline;
    longest_step_ = deadline == kNoDeadline ? kNeverCut : std::max(deadline - now, Clock::duration{}) / kStepsOfSlice;
    for (std::size_t i = 0; i < kQueues; ++i)
        set_cut(first_step_ + i, (i == 0 && inside_step_) || is_long(first_step_ + i));
    if (observer_ != nullptr) observer_->begin_slice();
    const std::uint64_t waited_before = held_.counts().waited_ns;
    if (maps_ != nullptr) {
        GuardedWork work(*maps_, thread_ids_);
        work_ = &work;
        run_team_on_steps();
        work_ = nullptr;
    } else {
        run_team_on_steps();
    }
    if (pager_ != nullptr) pager_->release(held_);
    has_waited_ = held_.counts().waited_ns != waited_before;
    first_step_ = rest_begin_;
    paused_at_ = Clock::now();
    if (error_) return RunStatus::failed;
    if (maps_ != nullptr && maps_->damaged() != nullptr) return RunStatus::damaged;
    if (cancelled_) return RunStatus::cancelled;
    return deadline != kNoDeadline && first_step_ < bound_->calls.size() ? RunStatus::paused : RunStatus::ok;
}

}  // namespace tinfer::runtime
