// SPDX-License-Identifier: MIT
#include "runtime/trace_session.hpp"

#if defined(__linux__)
#    include <sched.h>
#endif

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/access.hpp"
#include "base/error.hpp"
#include "tinfer/version.hpp"

namespace tinfer::runtime {

namespace {

constexpr std::size_t kEventsPerCall = 8192;
constexpr std::size_t kPlansKept = 64;        // views
constexpr std::size_t kPlansKnown = 1 << 14;  // hashes: about a megabyte

bool glob_matches(std::string_view pattern, std::string_view text) {
    std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
    while (t < text.size()) {
        if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
            ++p;
            ++t;
        } else if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            resume = t;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            t = ++resume;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == '*') ++p;
    return p == pattern.size();
}

template <class T>
bool listed(const std::vector<T>& list, const T& value) {
    return list.empty() || std::ranges::find(list, value) != list.end();
}

bool step_passes_filter(const EventFilter& filter, const StepView& step) {
    if (!listed(filter.ops, step.op) || !listed(filter.layers, step.layer) || !listed(filter.parts, step.part))
        return false;
    if (filter.tensors.empty()) return true;
    return std::ranges::any_of(step.operands, [&](const Access& access) {
        return std::ranges::any_of(filter.tensors,
                                   [&](const std::string& glob) { return glob_matches(glob, access.tensor->name); });
    });
}

bool run_passes_filter(const EventFilter& filter, const RunInfo& run) {
    return listed(filter.phases, run.phase) && run.run >= filter.first_run && run.run <= filter.last_run &&
           run.run % std::max<std::uint64_t>(filter.every_nth_run, 1) == 0;
}

std::uint16_t current_cpu() noexcept {
#if defined(__linux__)
    return static_cast<std::uint16_t>(std::max(::sched_getcpu(), 0));
#else
    return 0;
#endif
}

/// Text of the exception being handled.
std::string current_error() {
    try {
        throw;
    } catch (const std::exception& error) {
        return error.what();
    } catch (...) {
        return "unknown exception";
    }
}

/// What an observer threw, as the decode reports it.
[[noreturn]] void throw_observer_failed(const std::exception_ptr& thrown) {
    try {
        std::rethrow_exception(thrown);
    } catch (...) {
        std::throw_with_nested(Error(ErrorCode::compute_failed, cat("observer failed: ", current_error())));
    }
}

/// Holds a context busy during callbacks outside decodes: what they may not call is refused there too.
class CallbackHold {
public:
    explicit CallbackHold(std::atomic<bool>& busy) : busy_(busy) {
        if (busy_.exchange(true, std::memory_order_acquire)) fail(ErrorCode::busy, "context is busy");
    }
    ~CallbackHold() { busy_.store(false, std::memory_order_release); }
    CallbackHold(const CallbackHold&) = delete;
    CallbackHold& operator=(const CallbackHold&) = delete;

private:
    std::atomic<bool>& busy_;
};

}  // namespace

TraceSession::TraceSession(Registry registry, std::string_view isa, std::string_view architecture)
    : registry_(registry), isa_(isa), architecture_(architecture) {}

TraceSession::~TraceSession() { detach_all(); }

std::uint64_t TraceSession::now() const noexcept {
    if (!clock_) return 0;
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - zero_).count());
}

std::shared_ptr<Attached> TraceSession::attach(std::shared_ptr<Observer> observer, int n_threads) {
    if (observer == nullptr) fail(ErrorCode::bad_parameter, "attach: observer is null");
    const bool shareable = observer->thread_safe();
    auto attached =
        std::make_shared<Attached>();  // before the observer counts: an allocation that fails leaves no trace
    if (detail::Access::n_attached(*observer).fetch_add(1) > 0 && !shareable) {
        detail::Access::n_attached(*observer).fetch_sub(1);
        fail(ErrorCode::bad_parameter,
             "attach: the observer is attached already and does not say that it is thread safe");
    }
    if (!started_) {
        zero_ = std::chrono::steady_clock::now();
        wall_clock_ = static_cast<std::uint64_t>(
            std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
                .count());
        started_ = true;
    }
    attached->observer = std::move(observer);
    try {
        attached->request = attached->observer->request();
        SessionInfo info;
        info.library_version = version();
        info.isa = isa_;
        info.architecture = architecture_;
        info.wall_clock_ns = wall_clock_;
        info.steady_clock_ns = static_cast<std::uint64_t>(
            std::chrono::duration_cast<std::chrono::nanoseconds>(zero_.time_since_epoch()).count());
        info.file = registry_.file;
        info.n_threads = n_threads;
        info.weights = registry_.weights;
        info.caches = registry_.caches;
        attached->observer->on_session(info);
        attached_.push_back(attached);
    } catch (...) {
        detail::Access::n_attached(*attached->observer).fetch_sub(1);
        throw;
    }
    update_level();
    return attached;
}

void TraceSession::detach(const std::shared_ptr<Attached>& attached) noexcept {
    const auto place = std::ranges::find(attached_, attached);
    if (place == attached_.end()) return;
    attached_.erase(place);
    update_level();
    attached->observer->on_detach(attached->summary);
    detail::Access::n_attached(*attached->observer).fetch_sub(1);
    attached->observer.reset();
}

void TraceSession::detach_requested() noexcept {
    for (std::size_t i = attached_.size(); i-- > 0;)
        if (attached_[i]->detach_requested) detach(std::shared_ptr(attached_[i]));
}

void TraceSession::detach_all() noexcept {
    while (!attached_.empty()) detach(std::shared_ptr(attached_.front()));
}

void TraceSession::update_level() noexcept {
    clock_ = std::ranges::any_of(attached_, [](const auto& a) { return a->request.level != TraceLevel::counts; });
}

// Calls every observer in attach order, and goes on when one throws, so that the others see begins and ends in pairs.
// The first exception leaves as compute_failed; an observer that asked for it is detached after the decode instead.
template <class Fn>
void TraceSession::for_each_observer(Fn&& fn) {
    std::exception_ptr thrown;
    for (const auto& attached : attached_) {
        if (attached->broken) continue;
        try {
            fn(*attached);
        } catch (...) {
            if (attached->request.on_throw == OnThrow::detach) {
                attached->broken = attached->detach_requested = true;
                attached->summary.error = current_error();
            } else if (!thrown) {
                thrown = std::current_exception();
            }
        }
    }
    if (thrown) throw_observer_failed(thrown);
}

void TraceSession::prepare_filters() {
    immediate_ = threads_ = false;
    for (const auto& attached : attached_) {
        const TraceRequest& request = attached->request;
        attached->run_passes = run_passes_filter(request.filter, run_);
        immediate_ = immediate_ || (attached->run_passes && request.delivery == Delivery::immediate);
        threads_ = threads_ || (attached->run_passes && request.level == TraceLevel::threads);
        const bool all_steps = request.filter.ops.empty() && request.filter.layers.empty() &&
                               request.filter.parts.empty() && request.filter.tensors.empty();
        attached->step_passes.assign(plan_->view().steps.size(), attached->run_passes);
        for (std::size_t i = 0; i < attached->step_passes.size() && attached->run_passes && !all_steps; ++i)
            attached->step_passes[i] = step_passes_filter(request.filter, plan_->view().steps[i]);
    }
}

// The session's number of a plan. A session that has met very many forgets them all, and numbers those that come anew.
std::uint32_t TraceSession::plan_id(const std::array<std::uint8_t, 16>& hash) {
    if (const auto known = plan_ids_.find(hash); known != plan_ids_.end()) return known->second;
    if (plan_ids_.size() >= kPlansKnown) {
        plan_ids_.clear();
        plans_.clear();
        prepared_.reset();
        first_plan_id_ = next_plan_id_;
        for (const auto& attached : attached_) attached->seen_plans.clear();
    }
    plan_ids_.emplace(hash, next_plan_id_);
    return next_plan_id_++;
}

// The view of the plan that runs, made when it first runs with an observer attached.
void TraceSession::find_plan(const RunDetails& details) {
    bound_ = details.bound;
    auto shown = std::ranges::find(plans_, bound_->id, &ShownPlan::bound_id);
    if (shown == plans_.end()) {
        const auto hash = TracePlan::hash_of(*details.graph, *bound_, isa_);
        const std::uint32_t id = plan_id(hash);
        shown = std::ranges::find_if(plans_, [&](const ShownPlan& p) { return p.plan->view().id == id; });
        if (shown == plans_.end()) {
            auto plan = std::make_unique<TracePlan>(*details.graph, *bound_, registry_, isa_, architecture_,
                                                    static_cast<std::uint32_t>(details.tokens.size()), id, hash);
            prepared_.reset();  // it may point into the plan that goes
            if (plans_.size() >= kPlansKept) plans_.erase(std::ranges::min_element(plans_, {}, &ShownPlan::last_use));
            plans_.push_back({std::move(plan)});
            shown = plans_.end() - 1;
        }
        shown->bound_id = bound_->id;
    }
    shown->last_use = ++plan_uses_;
    plan_ = shown->plan.get();
}

void TraceSession::describe_run(const RunDetails& details) {
    inputs_.clear();
    for (const TracePlan::GraphInput& input : plan_->inputs())
        for (const auto& [role, address] : details.inputs)
            if (role == input.role) inputs_.push_back({input.tensor, std::span(address, input.tensor->bytes)});
    if (n_runs_ == 0) first_decode_ = details.decode;
    run_ = {};
    run_.run = n_runs_;
    run_.decode = details.decode - first_decode_;
    run_.micro_batch = details.micro_batch;
    run_.phase = details.phase;
    run_.plan = &plan_->view();
    run_.n_threads = details.n_threads;
    run_.cells_used = details.cells_used;
    run_.cells_total = details.cells_total;
    run_.tokens = details.tokens;
    run_.inputs = inputs_;
}

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
    decided_.assign(steps.size(), {});
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
    if (!threads_) return;
    spans_.assign(events_.size() * static_cast<std::size_t>(run_.n_threads), {});
    busy_times_.assign(spans_.size(), {});
}

void TraceSession::begin_run(const RunDetails& details) {
    find_plan(details);
    describe_run(details);
    prepare_filters();
    prepare_buffers();
    for_each_observer([&](Attached& a) {
        const std::size_t i = plan_->view().id - first_plan_id_;
        if (i < a.seen_plans.size() && a.seen_plans[i]) return;
        a.observer->on_plan(plan_->view());
        if (i >= a.seen_plans.size()) a.seen_plans.resize(i + 1);
        a.seen_plans[i] = true;
    });
    ++n_runs_;
    run_.begin = now();
    try {
        for_each_observer([&](Attached& a) { a.observer->on_run_begin(run_); });
    } catch (...) {
        end_run(RunStatus::failed);  // those that saw it begin see it end
        throw;
    }
    step_begin_ = now();
}

// Copies the expert ids that a routed product or bias is about to use: the expectation needs them, and they may be
// recycled before the run ends.
void TraceSession::remember_routing(std::size_t step, const kernels::KernelCall& call) {
    const Op op = plan_->view().steps[step].op;
    if (op != Op::mul_mat_id && op != Op::add_id) return;
    if (n_routing_ == routing_.size()) routing_.emplace_back();
    auto& [tensor, ids] = routing_[n_routing_++];
    const kernels::Operand& operand = call[3];
    tensor = plan_->tensor(step, 3);
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
    bound_->kernels[step]->resolve(call, collector);
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

// What an earlier step of this run resolved to, of this step's tensors: put at `end` of accesses_, where there is room.
std::span<const Access> TraceSession::repeat_accesses(std::size_t step, std::size_t& end) {
    const std::size_t first = end;
    const auto declared = plan_->declared(step);
    for (std::size_t i = 0; i < declared.size(); ++i)
        if (!declared[i].dynamic) accesses_[end++] = plan_->view().steps[step].operands[i];
    const Decided& same = decided_[plan_->twin(step)];
    for (const PendingAccess& access : std::span(pending_).subspan(same.first_access, same.n_accesses)) {
        if (!access.resolved) continue;
        Access& copy = accesses_[end++] = access.access;
        copy.tensor = plan_->tensor(step, copy.slot);
        copy.ranges = std::span(ranges_).subspan(access.first_range, access.n_ranges);
    }
    return std::span(accesses_).subspan(first, end - first);
}

void TraceSession::before_step(std::size_t step, const kernels::KernelCall& call) {
    const bool resolves = plan_->source(step) == TracePlan::Source::kernel;
    if (resolves) {
        const std::size_t first = pending_.size();
        add_accesses(step, call);
        decided_[step] = {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(pending_.size() - first), 0};
    }
    KernelEvent& event = events_[step];
    event.index = n_events_++;
    event.begin = event.end = resolves ? now() : step_begin_;  // resolving is not the kernel's time
    event.status = EventStatus::failed;
    n_begun_ = step + 1;
    if (!immediate_) return;
    for_each_observer([&](Attached& a) {
        if (a.request.delivery == Delivery::immediate && a.step_passes[step]) a.observer->on_step_begin(*event.step);
    });
    event.begin = event.end = now();
}

// A thread may begin before the leader has read its clock: the span is cut to the event.
void TraceSession::take_thread_spans(std::size_t step, KernelEvent& event) {
    const auto n = static_cast<std::size_t>(run_.n_threads);
    for (std::size_t i = step * n; i < (step + 1) * n; ++i) {
        const BusyTime& time = busy_times_[i];
        const std::uint64_t begin = std::clamp(time.begin, event.begin, event.end);
        const std::uint64_t early = std::min(begin - std::min(time.begin, begin), time.busy);
        spans_[i].begin = static_cast<std::uint32_t>(begin - event.begin);
        spans_[i].busy = static_cast<std::uint32_t>(std::min(time.busy - early, event.end - begin));
        spans_[i].work_items = time.work_items;
        spans_[i].cpu = time.cpu;
    }
    event.threads = std::span(spans_).subspan(step * n, n);
}

void TraceSession::after_step(std::size_t step, const kernels::KernelCall&, bool cancelled) {
    KernelEvent& event = events_[step];
    step_begin_ = event.end = std::max(now(), event.begin);
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
        if (access.kind != AccessKind::elided)
            value.data = std::span(static_cast<const std::byte*>(access.tensor->address), access.tensor->bytes);
    }
}

void TraceSession::thread_span(std::size_t step, int thread, std::uint64_t begin, std::uint64_t end,
                               std::uint32_t work_items) noexcept {
    BusyTime& time = busy_times_[step * static_cast<std::size_t>(run_.n_threads) + static_cast<std::size_t>(thread)];
    if (time.n_slices++ == 0) time.begin = begin;
    time.busy += end - begin;
    time.work_items += work_items;
    time.cpu = current_cpu();
}

// Accesses of the events of `steps`, none of which is of source `plan`.
void TraceSession::write_accesses(std::span<const std::uint32_t> steps) {
    std::size_t end = pending_.size(), n_accesses = end;  // of twins: at most what is declared and what was resolved
    for (const std::uint32_t step : steps)
        if (plan_->source(step) == TracePlan::Source::twin)
            n_accesses += plan_->declared(step).size() + decided_[plan_->twin(step)].n_accesses;
    accesses_.resize(n_accesses);
    for (const std::uint32_t step : steps) {
        if (plan_->source(step) == TracePlan::Source::twin) {
            events_[step].accesses = repeat_accesses(step, end);
            continue;
        }
        const Decided& decided = decided_[step];
        for (std::size_t i = decided.first_access; i < decided.first_access + decided.n_accesses; ++i) {
            accesses_[i] = pending_[i].access;
            accesses_[i].ranges = std::span(ranges_).subspan(pending_[i].first_range, pending_[i].n_ranges);
        }
        events_[step].accesses = std::span(accesses_).subspan(decided.first_access, decided.n_accesses);
    }
}

// Whether the spans that the run before left in its events and accesses are those of this one: most tokens of a
// sequence differ from the one before in the contents of ranges alone.
bool TraceSession::accesses_fit() const noexcept {
    const auto alike = [](const PendingAccess& a, const PendingAccess& b) {
        return a.access.tensor == b.access.tensor && a.access.slot == b.access.slot && a.access.mode == b.access.mode &&
               a.access.kind == b.access.kind && a.access.passes == b.access.passes &&
               a.access.scratch == b.access.scratch && a.first_range == b.first_range && a.n_ranges == b.n_ranges &&
               a.resolved == b.resolved;
    };
    return n_written_ == n_begun_ && written_ranges_ == ranges_.data() && std::ranges::equal(pending_, written_, alike);
}

// What events of steps that are not of source `plan` say in figures.
void TraceSession::write_figures(std::span<const std::uint32_t> steps) {
    for (const std::uint32_t step : steps) {
        KernelEvent& event = events_[step];
        if (plan_->source(step) == TracePlan::Source::twin) {
            const KernelEvent& twin = events_[plan_->twin(step)];
            event.macs = twin.macs;
            event.bytes_read = twin.bytes_read;
            event.bytes_written = twin.bytes_written;
            decided_[step].weight_bytes = decided_[plan_->twin(step)].weight_bytes;
            continue;
        }
        const kernels::KernelDescriptor& kernel = *bound_->kernels[step];
        event.macs = kernel.macs != nullptr ? kernel.macs(bound_->calls[step]) : 0;
        const MovedBytes moved(event.accesses);
        event.bytes_read = moved.read;
        event.bytes_written = moved.written;
        decided_[step].weight_bytes = moved.weights;
    }
}

// Completes the events of the steps from `first` on. Spans of earlier events may dangle until the run ends, when all
// are completed anew.
void TraceSession::complete_events(std::size_t first) {
    const auto all = plan_->undeclared();
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
    for (std::size_t step = first; threads_ && step < n_begun_; ++step) take_thread_spans(step, events_[step]);
}

void TraceSession::deliver_batched() {
    const std::span<const KernelEvent> all(events_.data(), n_begun_);
    for_each_observer([&](Attached& a) {
        a.filtered_events.clear();
        std::uint64_t passed = 0;
        for (std::size_t step = 0; step < all.size(); ++step) passed += a.step_passes[step] ? 1 : 0;
        a.summary.events += passed;
        a.summary.filtered += all.size() - passed;
        ++a.summary.runs;
        if (a.request.delivery != Delivery::batched) return;
        std::span<const KernelEvent> events = all;
        if (passed < all.size()) {
            for (const KernelEvent& event : all)
                if (a.step_passes[event.step->number]) a.filtered_events.push_back(event);
            events = a.filtered_events;
        }
        for (; !events.empty(); events = events.subspan(std::min(events.size(), kEventsPerCall)))
            a.observer->on_events(events.first(std::min(events.size(), kEventsPerCall)));
    });
}

std::uint64_t TraceSession::expected_weight_bytes() const {
    const trace::DataOf data = [&](const TensorInfo& tensor) -> std::span<const std::byte> {
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
    for (const std::uint32_t step : plan_->undeclared())
        if (step < n_begun_) sum += decided_[step].weight_bytes;
    return sum;
}

void TraceSession::end_run(RunStatus status) {
    if (status == RunStatus::cancelled && n_begun_ > 0 &&
        events_[n_begun_ - 1].status == EventStatus::failed) {  // abandoned inside a step
        KernelEvent& last = events_[n_begun_ - 1];
        last.status = EventStatus::cancelled;
        last.end = std::max(now(), last.begin);
    }
    complete_events(0);
    RunResult result;
    result.run = &run_;
    result.events = static_cast<std::uint32_t>(n_begun_);
    result.status = status == RunStatus::ok          ? EventStatus::ok
                    : status == RunStatus::cancelled ? EventStatus::cancelled
                                                     : EventStatus::failed;
    result.rolled_back = status != RunStatus::ok;
    result.observed_weight_bytes = observed_weight_bytes();
    result.expected_weight_bytes = expected_weight_bytes();
    result.end = now();         // what observers do with the events is not the run's time
    std::exception_ptr thrown;  // by an observer now; every observer still sees the run end
    try {
        deliver_batched();
    } catch (const Error&) {
        thrown = std::current_exception();
        result.status = EventStatus::failed;
        result.rolled_back = true;
    }
    try {
        for_each_observer([&](Attached& a) { a.observer->on_run_end(result); });
    } catch (const Error&) {
        if (!thrown) thrown = std::current_exception();
    }
    if (thrown && status != RunStatus::failed) std::rethrow_exception(thrown);
}

void TraceSession::on_sample(SampleEvent event) {
    const CallbackHold hold(busy);
    event.run = n_runs_ > 0 ? n_runs_ - 1 : 0;
    event.time = now();
    for_each_observer([&](Attached& a) { a.observer->on_sample(event); });
    detach_requested();
}

void TraceSession::mark(std::string_view text) {
    const CallbackHold hold(busy);
    const std::uint64_t time = now();
    for_each_observer([&](Attached& a) { a.observer->on_mark(time, text); });
    detach_requested();
}

}  // namespace tinfer::runtime
