// SPDX-License-Identifier: MIT
// The events of a run, recorded around the executor's steps: what each step touched, how long it took, what it moved.
#if defined(__linux__)
#    include <sched.h>
#endif

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/ops.hpp"
#include "trace/live/session.hpp"

namespace tinfer::trace {

namespace {

std::uint16_t current_cpu() noexcept {
#if defined(__linux__)
    return static_cast<std::uint16_t>(std::max(::sched_getcpu(), 0));
#else
    return 0;
#endif
}

}  // namespace

// What the plan knows of its events.
void TraceSession::prepare_events() {
    const auto steps = plan_->view().steps;
    prepared_.reset();
    events_.assign(steps.size(), {});
    for (std::size_t s = 0; s < steps.size(); ++s) {
        KernelEvent& event = events_[s];
        event.run = &run_;
        event.step = &steps[s];
        if (plan_->source(s) != TracePlan::Source::plan) continue;
        const TracePlan::Known& known = plan_->known(s);
        event.accesses = steps[s].operands;
        event.macs = known.macs;
        event.bytes_read = known.bytes.read;
        event.bytes_written = known.bytes.written;
    }
    resolved_.assign(steps.size(), {});
    ranges_.assign(plan_->declared_ranges().begin(), plan_->declared_ranges().end());
    n_written_ = 0;
    prepared_ = {plan_->view().id, threads_};
}

void TraceSession::prepare_buffers() {
    if (prepared_ != Prepared{plan_->view().id, threads_}) prepare_events();
    n_begun_ = 0;
    pending_.clear();
    ranges_.resize(plan_->declared_ranges().size());
    n_routing_ = 0;
    if (!times_threads()) return;
    busy_times_.resize(events_.size() * static_cast<std::size_t>(run_.n_threads));
    if (threads_) spans_.resize(busy_times_.size());
}

// Copies the expert ids that a routed product or bias is about to use, and ids of rows that the graph computes: the
// expectation needs them, and they may be recycled before the run ends.
void TraceSession::remember_routing(std::size_t step, const kernels::KernelCall& call) {
    const Touches touches = info(plan_->view().steps[step].op).touches;
    const bool rows = touches == Touches::rows;
    if (!rows && touches != Touches::experts && touches != Touches::biases) return;
    const std::uint16_t slot = rows ? 2 : 3;
    const TensorInfo* of_ids = plan_->tensor(step, slot);
    if (rows && of_ids->tensor_class != TensorClass::value) return;
    if (n_routing_ == routing_.size()) routing_.emplace_back();
    auto& [tensor, ids] = routing_[n_routing_++];
    const kernels::Operand& operand = call[slot];
    tensor = of_ids;
    ids.resize(static_cast<std::size_t>(operand.ne[0] * operand.ne[1]));
    std::memcpy(ids.data(), operand.data, ids.size() * sizeof(std::int32_t));
}

// The operands of a step with a resolving kernel: those known from the plan, then those that the step's inputs decide
// now.
void TraceSession::add_accesses(std::size_t step, const kernels::KernelCall& call) {
    const auto declared = plan_->declared(step);
    for (const PendingAccess& access : declared)
        if (!access.dynamic) pending_.push_back(access);
    AccessCollector collector(pending_, ranges_);
    const std::size_t first = pending_.size();
    collector.start();
    bound_.kernels[step]->resolve(call, collector);
    collector.check();
    // What the plan does not announce is not in the events either, so that a gap in `declare` shows as one.
    const auto is_announced = [&](const PendingAccess& p) {
        return std::ranges::any_of(declared, [&](const PendingAccess& d) {
            return d.dynamic && d.access.slot == p.access.slot && d.access.mode == p.access.mode;
        });
    };
    pending_.erase(std::remove_if(pending_.begin() + static_cast<std::ptrdiff_t>(first), pending_.end(),
                                  std::not_fn(is_announced)),
                   pending_.end());
    const std::span resolved = std::span(pending_).subspan(first);
    plan_->complete(step, resolved, ranges_);
    // What was announced as dynamic and touched nothing this time stays visible, with no ranges.
    const std::size_t n_resolved = resolved.size();
    for (const PendingAccess& access : declared) {
        const auto same = [&](const PendingAccess& p) {
            return p.access.slot == access.access.slot && p.access.mode == access.access.mode;
        };
        if (access.dynamic && std::ranges::none_of(std::span(pending_).subspan(first, n_resolved), same))
            pending_.push_back(access);
    }
    for (std::size_t i = first; i < pending_.size(); ++i) pending_[i].resolved = true;
    remember_routing(step, call);
}

// Writes the accesses of a step that touches the same ranges as an earlier step of this run, with its own tensors, to
// `end` of accesses_.
std::span<const Access> TraceSession::repeat_accesses(std::size_t step, std::size_t& end) {
    const std::size_t first = end;
    const auto declared = plan_->declared(step);
    for (std::size_t i = 0; i < declared.size(); ++i)
        if (!declared[i].dynamic) accesses_[end++] = plan_->view().steps[step].operands[i];
    const Resolved& same = resolved_[plan_->same_as(step)];
    for (const PendingAccess& access : std::span(pending_).subspan(same.first_access, same.n_accesses)) {
        if (!access.resolved) continue;
        Access& copy = accesses_[end++] = access.access;
        copy.tensor = plan_->tensor(step, copy.slot);
        copy.ranges = std::span(ranges_).subspan(access.first_range, access.n_ranges);
    }
    return std::span(accesses_).subspan(first, end - first);
}

std::uint64_t TraceSession::before_step(std::size_t step, const kernels::KernelCall& call) {
    const bool resolves = plan_->source(step) == TracePlan::Source::kernel;
    if (resolves) {
        const std::size_t first = pending_.size();
        add_accesses(step, call);
        resolved_[step] = {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(pending_.size() - first), 0};
    }
    KernelEvent& event = events_[step];
    event.index = n_events_++;
    event.begin = event.end = resolves ? now() : step_begin_;  // resolving is not the kernel's time
    event.status = EventStatus::failed;
    n_begun_ = step + 1;
    if (!immediate_) return event.begin;
    for_each_observer([&](Attached& a) {
        if (a.request.delivery == Delivery::immediate && a.step_passes[step]) a.observer->on_step_begin(*event.step);
    });
    return event.begin = event.end = now();
}

// Where threads do not meet after a step, one may begin the next while another still works on it. That time counts for
// the step that is not over, because events divide the run's time: its sums are exact to the nanosecond, but some work
// may be listed with a neighbouring step. Threads meet before and after a step that was cut into slices, so its
// time is its own.
void TraceSession::add_busy_time(int thread, std::size_t first) {
    const BusyTime* times = busy_times_.data() + static_cast<std::size_t>(thread) * events_.size();
    const auto span_of = [&](std::size_t step) -> ThreadSpan& {
        return spans_[step * static_cast<std::size_t>(run_.n_threads) + static_cast<std::size_t>(thread)];
    };
    const auto add = [&](std::size_t step, std::uint64_t begin, std::uint64_t end) {
        ThreadSpan& span = span_of(step);
        if (span.busy == 0) span.begin = static_cast<std::uint32_t>(begin - events_[step].begin);
        span.busy += static_cast<std::uint32_t>(end - begin);
    };
    std::size_t event = first;  // the first one whose time is not over
    for (std::size_t step = first; step < n_begun_; ++step) {
        const BusyTime& time = times[step];
        if (time.run != static_cast<std::uint32_t>(n_runs_)) continue;  // the team was smaller
        span_of(step).work_items = time.work_items;
        span_of(step).cpu = time.cpu;
        const std::uint64_t begin = time.begin, end = time.begin + time.busy;
        if (time.n_slices > 1) {
            const KernelEvent& own = events_[step];
            const std::uint64_t from = std::clamp(begin, own.begin, own.end);
            add(step, from, std::max(from, std::min(end, own.end)));
            continue;
        }
        while (event < n_begun_ && events_[event].end <= begin) ++event;
        for (std::size_t i = event; i < n_begun_ && events_[i].begin < end; ++i)
            if (begin < events_[i].end) add(i, std::max(begin, events_[i].begin), std::min(end, events_[i].end));
    }
}

void TraceSession::take_thread_spans(std::size_t first) {
    const auto n = static_cast<std::size_t>(run_.n_threads);
    std::fill(spans_.begin() + static_cast<std::ptrdiff_t>(first * n),
              spans_.begin() + static_cast<std::ptrdiff_t>(n_begun_ * n), ThreadSpan{});
    for (int thread = 0; thread < run_.n_threads; ++thread) add_busy_time(thread, first);
    for (std::size_t step = first; step < n_begun_; ++step)
        events_[step].threads = std::span(spans_).subspan(step * n, n);
}

void TraceSession::after_step(std::size_t step, const kernels::KernelCall&, bool cancelled, std::uint64_t end) {
    KernelEvent& event = events_[step];
    step_begin_ = event.end = std::max(end, event.begin);
    event.status = cancelled ? EventStatus::cancelled : EventStatus::ok;
    if (!immediate_) return;
    complete_events(step);
    show_values(event);
    for_each_observer([&](Attached& a) {
        if (a.request.delivery == Delivery::immediate && a.step_passes[step])
            a.observer->on_step_end(event, StepValues(values_));
    });
    step_begin_ = now();
}

// Views of the event's operands, by slot.
void TraceSession::show_values(const KernelEvent& event) {
    values_.assign(kernels::kMaxOperands, {nullptr, {}, StepValues::Missing::not_requested});
    for (const Access& access : event.accesses) {
        if (access.scratch) continue;
        StepValues::Value& value = values_[access.slot];
        value.tensor = access.tensor;
        value.missing = access.kind == AccessKind::elided ? StepValues::Missing::elided : StepValues::Missing::no;
        if (access.kind == AccessKind::elided) continue;
        if (access.tensor->address == nullptr) value.missing = StepValues::Missing::not_requested;  // paged
        else value.data = std::span(static_cast<const std::byte*>(access.tensor->address), access.tensor->bytes);
    }
}

void TraceSession::thread_span(std::size_t step, int thread, std::uint64_t begin, std::uint64_t end,
                               std::uint32_t work_items) noexcept {
    BusyTime& time = busy_times_[static_cast<std::size_t>(thread) * events_.size() + step];
    if (const auto run = static_cast<std::uint32_t>(n_runs_); time.run != run) time = {begin, 0, run, 0, 0, 0};
    time.busy += end - begin;
    time.work_items += work_items;
    time.cpu = current_cpu();
    ++time.n_slices;
}

// Accesses of the events of `steps`, none of which is of source `plan`.
void TraceSession::write_accesses(std::span<const std::uint32_t> steps) {
    std::size_t end = pending_.size(), n_accesses = end;  // of repeats: at most what is declared and what was resolved
    for (const std::uint32_t step : steps)
        if (plan_->source(step) == TracePlan::Source::same_as)
            n_accesses += plan_->declared(step).size() + resolved_[plan_->same_as(step)].n_accesses;
    accesses_.resize(n_accesses);
    for (const std::uint32_t step : steps) {
        if (plan_->source(step) == TracePlan::Source::same_as) {
            events_[step].accesses = repeat_accesses(step, end);
            continue;
        }
        const Resolved& resolved = resolved_[step];
        for (std::size_t i = resolved.first_access; i < resolved.first_access + resolved.n_accesses; ++i) {
            accesses_[i] = pending_[i].access;
            accesses_[i].ranges = std::span(ranges_).subspan(pending_[i].first_range, pending_[i].n_ranges);
        }
        events_[step].accesses = std::span(accesses_).subspan(resolved.first_access, resolved.n_accesses);
    }
}

// True if the events and accesses that the run before left have the right spans for this one: most tokens of a sequence
// differ from the one before in the contents of ranges alone.
bool TraceSession::accesses_fit() const noexcept {
    const auto is_same = [](const PendingAccess& a, const PendingAccess& b) {
        return a.access.tensor == b.access.tensor && a.access.slot == b.access.slot && a.access.mode == b.access.mode &&
               a.access.kind == b.access.kind && a.access.passes == b.access.passes &&
               a.access.scratch == b.access.scratch && a.first_range == b.first_range && a.n_ranges == b.n_ranges &&
               a.resolved == b.resolved;
    };
    return n_written_ == n_begun_ && written_ranges_ == ranges_.data() &&
           std::ranges::equal(pending_, written_, is_same);
}

// Writes multiply-accumulates and bytes into the events of steps that are not of source `plan`.
void TraceSession::write_figures(std::span<const std::uint32_t> steps) {
    for (const std::uint32_t step : steps) {
        KernelEvent& event = events_[step];
        if (plan_->source(step) == TracePlan::Source::same_as) {
            const KernelEvent& same = events_[plan_->same_as(step)];
            event.macs = same.macs;
            event.bytes_read = same.bytes_read;
            event.bytes_written = same.bytes_written;
            resolved_[step].weight_bytes = resolved_[plan_->same_as(step)].weight_bytes;
            continue;
        }
        const kernels::KernelDescriptor& kernel = *bound_.kernels[step];
        event.macs = kernel.macs != nullptr ? kernel.macs(bound_.calls[step]) : 0;
        const MovedBytes moved(event.accesses);
        event.bytes_read = moved.read;
        event.bytes_written = moved.written;
        resolved_[step].weight_bytes = moved.weights;
    }
}

// Completes the events of the steps from `first` on. Spans of earlier events may dangle until the run ends, when all
// are completed anew.
void TraceSession::complete_events(std::size_t first) {
    const auto all = plan_->data_dependent();
    const std::span steps(std::ranges::lower_bound(all, first), std::ranges::lower_bound(all, n_begun_));
    if (first > 0 || !accesses_fit()) {
        n_written_ = 0;
        write_accesses(steps);
        if (first == 0) {
            written_ = pending_;
            written_ranges_ = ranges_.data();
            n_written_ = n_begun_;
        }
    }
    write_figures(steps);
    // Immediate callbacks have seen a step's times when the next begins, and threads meet before it and after it.
    if (run_.n_threads > 1 && times_threads() && !immediate_)
        settle_step_times(std::span(events_).first(n_begun_), busy_times_, events_.size(), run_.n_threads,
                          static_cast<std::uint32_t>(n_runs_));
    if (threads_) take_thread_spans(first);
}

std::uint64_t TraceSession::expected_weight_bytes() const {
    const DataOf data = [&](const TensorInfo& tensor) -> std::span<const std::byte> {
        for (const InputView& input : inputs_)
            if (input.tensor == &tensor) return input.data;
        for (std::size_t i = 0; i < n_routing_; ++i)
            if (routing_[i].first == &tensor) return std::as_bytes(std::span(routing_[i].second));
        return {};
    };
    return plan_->expected_weight_bytes(n_begun_, data);
}

std::uint64_t TraceSession::observed_weight_bytes() const noexcept {
    std::uint64_t sum = plan_->known_weight_bytes(n_begun_);
    for (const std::uint32_t step : plan_->data_dependent())
        if (step < n_begun_) sum += resolved_[step].weight_bytes;
    return sum;
}

}  // namespace tinfer::trace
