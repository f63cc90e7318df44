// SPDX-License-Identifier: MIT
// Runs a bound plan: one parallel region, every thread through the same list of steps, barriers between steps. The loop
// exists twice, with and without observers, and the choice is made once per run. A run may be cut into slices of time:
// it stops between steps, or between the chunks of a long one, and goes on there with a region of its own.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "base/barrier.hpp"
#include "base/fault_guard.hpp"
#include "base/pager.hpp"
#include "base/processors.hpp"
#include "base/team.hpp"
#include "runtime/binding.hpp"
#include "runtime/shared_processors.hpp"
#include "tinfer/context.hpp"
#include "trace/live/step_observer.hpp"

namespace tinfer::runtime {

using trace::StepObserver;

/// Forwards everything until something is thrown, and keeps that exception: for a run that must get to its end, because
/// its changes cannot be rolled back.
class DeferringObserver final : public StepObserver {
public:
    void watch(StepObserver* inner) noexcept { inner_ = inner, error_ = nullptr; }
    [[nodiscard]] std::exception_ptr take_error() noexcept { return std::exchange(error_, nullptr); }

    [[nodiscard]] bool immediate() const noexcept override { return inner_->immediate(); }
    void begin_slice() noexcept override { inner_->begin_slice(); }
    std::uint64_t before_step(std::size_t step, const kernels::KernelCall& call) override {
        std::uint64_t begin = inner_->now();
        guard([&] { begin = inner_->before_step(step, call); });
        return begin;
    }
    void after_step(std::size_t step, const kernels::KernelCall& call, bool cancelled, std::uint64_t end) override {
        guard([&] { inner_->after_step(step, call, cancelled, end); });
    }
    void thread_span(std::size_t step, int thread, std::uint64_t begin, std::uint64_t end,
                     std::uint32_t work_items) noexcept override {
        inner_->thread_span(step, thread, begin, end, work_items);
    }
    [[nodiscard]] bool wants_threads() const noexcept override { return inner_->wants_threads(); }
    [[nodiscard]] bool times_threads() const noexcept override { return inner_->times_threads(); }
    [[nodiscard]] bool wants_times() const noexcept override { return inner_->wants_times(); }
    [[nodiscard]] std::uint64_t now() const noexcept override { return inner_->now(); }

private:
    template <class Fn>
    void guard(Fn&& fn) noexcept {
        if (error_) return;
        try {
            fn();
        } catch (...) {
            error_ = std::current_exception();
        }
    }
    StepObserver* inner_ = nullptr;
    std::exception_ptr error_;
};

/// damaged: a page of a mapped file was lost (base/fault_guard.hpp).
enum class RunStatus : std::uint8_t { ok, cancelled, failed, paused, damaged };

class Executor {
public:
    using Clock = kernels::WorkQueue::Clock;
    static constexpr Clock::time_point kNoDeadline = kernels::WorkQueue::kNoDeadline;

    /// max_units: experts that a step may need of a model that is paged.
    explicit Executor(int max_threads, std::uint32_t max_units = 0, int n_processors = usable_cpu_count())
        : n_processors_(n_processors), workers_(static_cast<std::size_t>(max_threads)),
          thread_ids_(static_cast<std::size_t>(max_threads)), held_(max_units), part_ids_(n_part_ids(max_units)) {}
    /// Holds what steps need of it while they run (null: nothing is paged). It must outlive all runs.
    void page(Pager* pager) noexcept { pager_ = pager; }
    /// What steps needed of it so far, and the reads of the last run that was observed.
    [[nodiscard]] const Pager::Hold& held() const noexcept { return held_; }
    [[nodiscard]] const Pager* pager() const noexcept { return pager_; }
    /// Whether the last slice waited for storage: its time says nothing about other programs.
    [[nodiscard]] bool has_waited() const noexcept { return has_waited_; }
    /// Guards the threads of all runs from here on against what these mappings lose (null: does not).
    void guard(GuardedMaps* maps) noexcept { maps_ = maps; }
    [[nodiscard]] int n_processors() const noexcept { return n_processors_; }

    /// shares_processors: with other programs, so threads that wait spin for a moment only.
    /// shortest_count: the leader counts its sleeps at least so long before it goes on alone.
    struct Mode {
        int n_threads = 1;
        bool shares_processors = false;
        Clock::duration shortest_count{};
        TeamRunner team = run_team;
    };
    /// Sets out to run all steps; resume() does it. `cancel` (null or empty: none) is polled between steps and chunks.
    /// What is given here must stay until the run is over.
    void start(const BoundPlan& bound, const Mode& mode, const CancelFn* cancel, StepObserver* observer) noexcept;
    /// Runs to the end; with a deadline, until about then (`paused`: there is more to do), but at least one chunk per
    /// thread, or one step. The deadline may fall inside a step that takes a sixteenth of that time or more. Threads
    /// meet twice after each such step.
    /// An exception of the observer stops the run (`failed`) and is kept for take_error().
    RunStatus resume(Clock::time_point deadline = kNoDeadline) noexcept;
    [[nodiscard]] std::exception_ptr take_error() noexcept { return std::exchange(error_, nullptr); }
    [[nodiscard]] static std::uint64_t bytes(int max_threads, std::uint32_t max_units) noexcept {
        return static_cast<std::uint64_t>(max_threads) * (sizeof(kernels::Worker) + sizeof(GuardedWork::ThreadId)) +
               Pager::Hold::bytes(max_units) + n_part_ids(max_units) * sizeof(std::int32_t);
    }

private:
    enum class Next : std::uint8_t { go_on, alone, pause, stop };  ///< alone: all but the leader leave

    template <bool Traced>
    void loop(int thread, int n_threads) noexcept;
    /// Whether a step needs what no step of this slice before it has held.
    [[nodiscard]] bool begins_need(std::size_t step) const noexcept {
        const PagedNeed& need = bound_->needs[step];
        return need.group >= 0 && pager_ != nullptr && (need.first == step || need.first < first_step_);
    }
    /// What the leader has found of a need. Steps before part_end do first what is in memory.
    struct Need {
        bool stops = false;
        std::size_t part_end = 0;
    };
    [[nodiscard]] Need hold_needs(std::size_t step) noexcept;
    [[nodiscard]] Need await_rest(std::size_t step, std::size_t part_end) noexcept;
    [[nodiscard]] std::size_t end_of_parts(std::size_t step) const noexcept;
    void choose_part(const kernels::Operand& ids, bool here) noexcept;
    void run_part(std::size_t step, bool cut, int thread, int n_threads) noexcept;
    void ask_ahead(std::size_t step) noexcept;
    [[nodiscard]] static std::size_t n_part_ids(std::uint32_t max_units) noexcept {
        return max_units > 1 ? kMaxPartIds : 0;
    }
    void run_team_on_steps() noexcept;
    void run_loop(int thread, int n_threads) noexcept;
    void meet(int thread, int n_threads) noexcept;
    [[nodiscard]] bool waits_too_long() noexcept;
    [[nodiscard]] bool is_long(std::size_t step) const noexcept;
    void arm(std::size_t step) noexcept;
    void set_cut(std::size_t step, bool cut) noexcept;
    void run_step(const kernels::KernelCall& call, std::size_t step, bool cut, int thread, int n_threads) noexcept;
    Next after(std::size_t first, std::size_t last, bool cut) noexcept;
    /// Written only where it changes: the other threads' copies of the cache line stay valid for hundreds of barriers.
    void decide(std::size_t parity, Next next) noexcept {
        if (next != Next::go_on) next_[parity] = next;
    }
    [[nodiscard]] kernels::WorkQueue& queue(std::size_t step) noexcept { return queues_[step % kQueues]; }
    [[nodiscard]] kernels::WorkQueue& parts(std::size_t step) noexcept { return parts_[step % kQueues]; }

    // A queue is armed again when all have passed a barrier since its last use, and before the one that precedes the
    // next.
    static constexpr std::size_t kAhead = kMaxStepsBetweenBarriers, kQueues = 2 * kAhead;
    static constexpr std::size_t kMaxPartIds = 4096;  ///< of experts: steps with more do not begin with a part
    static constexpr Clock::duration kNeverCut = Clock::duration::max();
    template <class Fn>
    void observe(Fn&& fn) noexcept;

    const BoundPlan* bound_ = nullptr;
    const CancelFn* cancel_ = nullptr;
    StepObserver* observer_ = nullptr;
    Mode mode_;
    const long process_ = process_id();  ///< that made this: a fork has none of its OpenMP threads
    int n_processors_ = 1;
    LeaderSleeps sleeps_;
    Clock::time_point paused_at_{};
    bool alone_ = false;  ///< the leader does the rest alone; between slices it may get its team back
    int team_size_ = 1;   ///< threads that this slice is expected to have
    int last_team_ = 1;   ///< that the last slice had
    Barrier barrier_;
    std::array<kernels::WorkQueue, kQueues> queues_;  ///< chunks of a step
    std::array<kernels::WorkQueue, kQueues> parts_;   ///< parts of a step that is cut and knows no chunks
    std::array<bool, kQueues> cut_{};                 ///< the deadline may fall inside a step; written with its queue
    std::vector<kernels::Worker> workers_;            ///< per thread
    std::vector<GuardedWork::ThreadId> thread_ids_;
    Pager* pager_ = nullptr;
    Pager::Hold held_;
    std::array<Need, 2> needs_{};         ///< alternating, as next_
    std::vector<std::int32_t> part_ids_;  ///< of the experts that a part is about; others are -1
    bool has_waited_ = false;
    GuardedMaps* maps_ = nullptr;
    GuardedWork* work_ = nullptr;  ///< while a team runs
    // Decided by the leader before a barrier, read by all after it; alternating, so that the next decision cannot
    // overtake a slow reader of the last one.
    std::array<Next, 2> next_{};
    std::array<bool, 2> stop_before_{};
    Clock::time_point deadline_ = kNoDeadline;
    Clock::duration longest_step_{};  ///< steps from here on are cut in this slice; kNeverCut: no deadline
    std::size_t first_step_ = 0;      ///< of the slice; a thread may read it when others are steps ahead
    std::size_t rest_begin_ = 0;      ///< first step of the next slice
    bool inside_step_ = false;        ///< a slice ended inside it
    bool cancelled_ = false;
    std::exception_ptr error_;
};

}  // namespace tinfer::runtime
