// SPDX-License-Identifier: MIT
// The observers of one context: attaching and detaching, the events of a run, their delivery. It watches the executor's
// leader and steers nothing; with nobody attached the executor does not call it at all.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trace/live/plan.hpp"
#include "trace/live/step_observer.hpp"
#include "trace/live/step_times.hpp"

namespace tinfer::trace {

class TraceSession;

/// Text of the exception being handled.
[[nodiscard]] std::string current_error();
/// What an observer threw, as the decode reports it.
[[noreturn]] void throw_observer_failed(const std::exception_ptr& thrown);

/// One attached observer.
struct Attached {
    std::shared_ptr<Observer> observer;
    TraceRequest request;
    std::vector<bool> seen_plans;  ///< by id, from the first of the session's known plans on
    bool detach_requested = false;
    bool broken = false;  ///< it threw and asked to be detached then: called no more
    SessionSummary summary;
    // of the running run
    bool run_passes = true;
    std::vector<bool> step_passes;
    std::vector<KernelEvent> filtered_events;
};

struct RunDetails {
    const graph::Graph* graph = nullptr;
    BoundSteps bound;
    Phase phase = Phase::decode;
    std::uint64_t decode = 0;
    std::uint32_t micro_batch = 0;
    int n_threads = 1;
    std::uint32_t slots_used = 0, slots_total = 0;
    std::span<const TokenView> tokens;
    std::span<const graph::InputPlace> inputs;
    const HeadView* head = nullptr;  ///< whose graph it is; null: the context's own
};

class TraceSession final : public StepObserver {
public:
    /// `draft_file`: SessionInfo::draft_file.
    TraceSession(graph::TensorRegistry registry, const ModelFile* file, const ModelFile* draft_file,
                 std::string_view isa, std::string_view architecture);
    ~TraceSession() override;

    /// Throws bad_parameter for an observer that is on another context already and not thread safe.
    std::shared_ptr<Attached> attach(std::shared_ptr<Observer> observer, int n_threads);
    void detach(const std::shared_ptr<Attached>& attached) noexcept;
    void detach_requested() noexcept;  ///< those that asked for it, after a decode
    void detach_all() noexcept;
    /// Replaces the tensors after the caches, while nobody is attached. The tensors of a HeadView are among them.
    void replace_registry(graph::TensorRegistry registry) noexcept;
    [[nodiscard]] bool active() const noexcept { return !attached_.empty(); }
    /// Whether somebody attached takes the times of threads, in the runs that pass its filter.
    [[nodiscard]] bool may_want_threads() const noexcept { return may_want_threads_; }

    /// Around one run of the executor. An observer that throws leaves them as compute_failed, the original nested;
    /// end_run after a run that failed throws nothing of an observer's.
    void begin_run(const RunDetails& details);
    /// `reads`: for its steps, without run and time.
    void end_run(EventStatus status, std::vector<ReadEvent> reads = {});

    /// `flag` is held meanwhile (Context::Impl::sample_flag): busy where it is set.
    void on_sample(SampleEvent event, std::atomic<bool>& flag);
    /// From now on there are other rows to draw from, or none.
    void begin_outputs() noexcept { ++n_outputs_; }
    void mark(std::string_view text, std::atomic<bool>& flag);
    [[nodiscard]] std::uint64_t runs() const noexcept { return n_runs_; }

    // StepObserver
    [[nodiscard]] bool immediate() const noexcept override { return immediate_; }
    void begin_slice() noexcept override { step_begin_ = now(); }
    std::uint64_t before_step(std::size_t step, const kernels::KernelCall& call) override;
    void after_step(std::size_t step, const kernels::KernelCall& call, bool cancelled, std::uint64_t end) override;
    void thread_span(std::size_t step, int thread, std::uint64_t begin, std::uint64_t end,
                     std::uint32_t work_items) noexcept override;
    [[nodiscard]] bool wants_threads() const noexcept override { return threads_; }
    [[nodiscard]] bool times_threads() const noexcept override { return threads_ || (clock_ && run_.n_threads > 1); }
    [[nodiscard]] bool wants_times() const noexcept override { return clock_; }
    [[nodiscard]] std::uint64_t now() const noexcept override;

    /// Set while an operation of the context runs: others refuse then (another thread's, or a callback's).
    std::atomic<bool> busy{false};

private:
    /// What a run has resolved about a step that is not of source `plan`.
    struct Resolved {
        std::uint32_t first_access = 0, n_accesses = 0;  ///< of pending_, where its kernel resolves some
        std::uint64_t weight_bytes = 0;                  ///< once its event is complete
    };
    template <class Fn>
    void for_each_observer(Fn&& fn);
    void update_level() noexcept;
    void find_plan(const RunDetails& details);
    [[nodiscard]] std::uint32_t plan_id(const std::array<std::uint8_t, 16>& hash);
    void describe_run(const RunDetails& details);
    void prepare_filters();
    void prepare_buffers();
    void prepare_events();
    void add_accesses(std::size_t step, const kernels::KernelCall& call);
    std::span<const Access> repeat_accesses(std::size_t step, std::size_t& end);
    void take_thread_spans(std::size_t first);
    void add_busy_time(int thread, std::size_t first);
    void show_values(const KernelEvent& event);
    void complete_events(std::size_t first);
    void write_accesses(std::span<const std::uint32_t> steps);
    [[nodiscard]] bool accesses_fit() const noexcept;
    void write_figures(std::span<const std::uint32_t> steps);
    void deliver_batched();
    [[nodiscard]] std::uint64_t observed_weight_bytes() const noexcept;
    [[nodiscard]] std::uint64_t expected_weight_bytes() const;
    void remember_routing(std::size_t step, const kernels::KernelCall& call);

    graph::TensorRegistry registry_;
    const ModelFile *file_, *draft_file_;
    std::string isa_, architecture_;
    std::chrono::steady_clock::time_point zero_;
    std::uint64_t wall_clock_ = 0;
    bool started_ = false;
    std::vector<std::shared_ptr<Attached>> attached_;
    // Plans are known by their hash: the context makes one anew when it has dropped it, and it stays the same plan.
    struct ShownPlan {
        std::unique_ptr<TracePlan> plan;
        const HeadView* head = nullptr;
        std::uint32_t bound_id = 0;
        std::uint64_t last_use = 0;
    };
    std::vector<ShownPlan> plans_;  // those that ran last
    std::map<std::array<std::uint8_t, 16>, std::uint32_t> plan_ids_;
    std::uint32_t first_plan_id_ = 1, next_plan_id_ = 1;  // of plan_ids_, and of the next new plan
    std::uint64_t plan_uses_ = 0;

    bool immediate_ = false, threads_ = false;  // of the running run
    bool clock_ = true;                         // somebody attached wants times
    bool may_want_threads_ = false;
    std::uint64_t n_runs_ = 0, n_events_ = 0;
    std::optional<std::uint64_t> first_decode_;
    std::uint64_t last_decode_ = 0;  // counted from the first

    // of the running run
    const TracePlan* plan_ = nullptr;
    BoundSteps bound_;
    RunInfo run_;
    std::vector<InputView> inputs_;
    // By step, kept from run to run of one plan: what the plan knows of an event is written once, for between two
    // tokens the weights push all of it out of the caches.
    std::vector<KernelEvent> events_;
    std::vector<Resolved> resolved_;
    struct Prepared {
        std::uint32_t plan = 0;
        bool threads = false;
        bool operator==(const Prepared&) const = default;
    };
    std::optional<Prepared> prepared_;  // what events_ are of
    std::size_t n_begun_ = 0;           // steps of the running run
    std::vector<PendingAccess> pending_;
    std::vector<Access> accesses_;        // those of pending_, then those of repeats
    std::vector<PendingAccess> written_;  // the pending_ that accesses_ were written from, of so many steps
    std::size_t n_written_ = 0;
    const AccessRange* written_ranges_ = nullptr;
    std::vector<AccessRange> ranges_;
    std::vector<BusyTime> busy_times_;  // {steps, threads}: each thread writes its own part, read when all have met
    std::vector<ThreadSpan> spans_;     // {threads, steps}
    std::vector<StepValues::Value> values_;
    // Expert ids, by the tensor that holds them.
    std::vector<std::pair<const TensorInfo*, std::vector<std::int32_t>>> routing_;
    std::size_t n_routing_ = 0;
    std::uint64_t step_begin_ = 0;
    std::uint64_t n_outputs_ = 0;  // how often there were others
};

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

}  // namespace tinfer::trace
