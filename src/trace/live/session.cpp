// SPDX-License-Identifier: MIT
// Who watches and what they are told: attaching, the plans and runs shown, delivery. Events are made in
// events.cpp.
#include "trace/live/session.hpp"

#include <algorithm>

#include "base/access.hpp"
#include "base/error.hpp"
#include "tinfer/version.hpp"
#include "trace/filter.hpp"

namespace tinfer::trace {

namespace {

constexpr std::size_t kEventsPerCall = 8192;
constexpr std::size_t kPlansKept = 64;        // views
constexpr std::size_t kPlansKnown = 1 << 14;  // hashes: about a megabyte

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

std::string current_error() {
    try {
        throw;
    } catch (const std::exception& error) {
        return error.what();
    } catch (...) {
        return "unknown exception";
    }
}

void throw_observer_failed(const std::exception_ptr& thrown) {
    try {
        std::rethrow_exception(thrown);
    } catch (...) {
        std::throw_with_nested(Error(ErrorCode::compute_failed, cat("observer failed: ", current_error())));
    }
}

TraceSession::TraceSession(graph::TensorRegistry registry, const ModelFile* file, const ModelFile* draft_file,
                           std::string_view isa, std::string_view architecture)
    : registry_(registry), file_(file), draft_file_(draft_file), isa_(isa), architecture_(architecture) {}

TraceSession::~TraceSession() { detach_all(); }

std::uint64_t TraceSession::now() const noexcept {
    if (!clock_) return 0;
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - zero_).count());
}

std::shared_ptr<Attached> TraceSession::attach(std::shared_ptr<Observer> observer, int n_threads) {
    if (observer == nullptr) fail(ErrorCode::bad_parameter, "attach: observer is null");
    const bool shareable = observer->thread_safe();
    // Made before the observer counts as attached, so that a failed allocation changes nothing.
    auto attached = std::make_shared<Attached>();
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
        info.file = file_;
        info.draft_file = draft_file_;
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

void TraceSession::replace_registry(graph::TensorRegistry registry) noexcept {
    registry_ = registry;
    plans_.clear();
    prepared_.reset();
}

void TraceSession::update_level() noexcept {
    const auto any = [&](auto&& is) { return std::ranges::any_of(attached_, is); };
    clock_ = any([](const auto& a) { return a->request.level != TraceLevel::counts; });
    may_want_threads_ = any([](const auto& a) { return a->request.level == TraceLevel::threads; });
}

void TraceSession::prepare_filters() {
    immediate_ = threads_ = false;
    for (const auto& attached : attached_) {
        const TraceRequest& request = attached->request;
        attached->run_passes = run_passes_filter(request.filter, run_);
        immediate_ = immediate_ || (attached->run_passes && request.delivery == Delivery::immediate);
        threads_ = threads_ || (attached->run_passes && request.level == TraceLevel::threads);
        compile_filter(request.filter, run_, attached->step_passes);
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
    auto shown = std::ranges::find_if(
        plans_, [&](const ShownPlan& p) { return p.bound_id == bound_.id && p.head == details.head; });
    if (shown == plans_.end()) {
        const auto hash = TracePlan::hash_of(*details.graph, bound_, isa_);
        const std::uint32_t id = plan_id(hash);
        shown = std::ranges::find_if(plans_, [&](const ShownPlan& p) { return p.plan->view().id == id; });
        if (shown == plans_.end()) {
            auto plan = std::make_unique<TracePlan>(*details.graph, bound_, GraphTensors{registry_, details.head}, isa_,
                                                    details.head ? details.head->architecture : architecture_,
                                                    static_cast<std::uint32_t>(details.tokens.size()), id, hash);
            prepared_.reset();  // it may point into the plan that goes
            if (plans_.size() >= kPlansKept) plans_.erase(std::ranges::min_element(plans_, {}, &ShownPlan::last_use));
            plans_.push_back({std::move(plan)});
            shown = plans_.end() - 1;
        }
        shown->bound_id = bound_.id;
        shown->head = details.head;
    }
    shown->last_use = ++plan_uses_;
    plan_ = shown->plan.get();
}

void TraceSession::describe_run(const RunDetails& details) {
    inputs_.clear();
    for (const TracePlan::GraphInput& input : plan_->inputs())
        for (const graph::InputPlace& place : details.inputs)
            if (place.role == input.role) inputs_.push_back({input.tensor, std::span(place.data, input.tensor->bytes)});
    if (details.head == nullptr) {  // a draft head's runs belong to the decode before them
        if (!first_decode_) first_decode_ = details.decode;
        last_decode_ = details.decode - *first_decode_;
    }
    run_ = {};
    run_.run = n_runs_;
    run_.decode = last_decode_;
    run_.micro_batch = details.micro_batch;
    run_.phase = details.phase;
    run_.plan = &plan_->view();
    run_.n_threads = details.n_threads;
    run_.slots_used = details.slots_used;
    run_.slots_total = details.slots_total;
    run_.tokens = details.tokens;
    run_.inputs = inputs_;
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
        end_run(EventStatus::failed);  // those that saw it begin see it end
        throw;
    }
    step_begin_ = now();
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

void TraceSession::end_run(EventStatus status, std::vector<ReadEvent> reads) {
    if (status == EventStatus::cancelled && n_begun_ > 0 &&
        events_[n_begun_ - 1].status == EventStatus::failed) {  // abandoned inside a step
        KernelEvent& last = events_[n_begun_ - 1];
        last.status = EventStatus::cancelled;
        last.end = std::max(now(), last.begin);
    }
    complete_events(0);
    RunResult result;
    result.run = &run_;
    result.events = static_cast<std::uint32_t>(n_begun_);
    result.status = status;
    result.rolled_back = status != EventStatus::ok;
    result.observed_weight_bytes = observed_weight_bytes();
    result.expected_weight_bytes = expected_weight_bytes();
    result.end = now();         // what observers do with the events is not the run's time
    std::exception_ptr thrown;  // by an observer now; every observer still sees the run end
    for (ReadEvent& read : reads) {
        read.run = run_.run;
        read.time = result.end;
    }
    try {
        deliver_batched();
        if (!reads.empty()) for_each_observer([&](Attached& a) { a.observer->on_reads(reads); });
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
    if (thrown && status != EventStatus::failed) std::rethrow_exception(thrown);
}

void TraceSession::on_sample(SampleEvent event, std::atomic<bool>& flag) {
    const CallbackHold hold(flag);
    event.run = n_runs_ > 0 ? n_runs_ - 1 : 0;
    event.outputs = n_outputs_;
    event.time = now();
    for_each_observer([&](Attached& a) { a.observer->on_sample(event); });
    detach_requested();
}

void TraceSession::mark(std::string_view text, std::atomic<bool>& flag) {
    const CallbackHold hold(flag);
    const std::uint64_t time = now();
    for_each_observer([&](Attached& a) { a.observer->on_mark(time, text); });
    detach_requested();
}

}  // namespace tinfer::trace
