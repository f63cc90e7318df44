// SPDX-License-Identifier: MIT
// The observer behind tinfer.Observer: it writes what it is shown into records that numpy reads as structured arrays,
// without the interpreter's lock, and calls Python once for each run at most.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <unordered_map>

#include "context.hpp"

namespace tinfer_python {

/// Records as python/tinfer/_records.py describes them; its dtypes and these structs are compared at import.
struct EventRecord {
    std::uint64_t index, run, begin, end, bytes_read, bytes_written, macs, first_access;
    std::uint32_t n_accesses, plan, step, kernel;
    std::uint16_t op;
    std::int16_t layer;
    std::uint8_t part, phase, status, fused;
};
struct AccessRecord {
    std::uint64_t event, bytes, first_range;
    std::uint32_t tensor, n_ranges;
    std::uint16_t slot, passes;
    std::uint8_t mode, kind, scratch, tensor_class;
};
struct RangeRecord {
    std::uint64_t offset, length, stride;
    std::uint32_t count, tag, weight, padding;
};
struct RunRecord {
    std::uint64_t run, decode, begin, end, expected_weight_bytes, observed_weight_bytes;
    std::uint32_t plan, micro_batch, n_tokens, n_threads, n_events, slots_used;
    std::uint8_t phase, status, rolled_back, reserved[5];
};
struct TensorRecord {
    std::uint32_t name, role, type, plan;
    std::int64_t ne[4];
    std::uint64_t bytes, row_bytes, file_offset;
    std::int16_t layer;
    std::uint8_t tensor_class, n_dims, reserved[4];
};
struct StepRecord {
    std::uint64_t macs;
    std::uint32_t plan, step, kernel, n_nodes;
    std::uint16_t op;
    std::int16_t layer;
    std::uint8_t part, fused, reserved[2];
};
struct SampleRecord {
    std::uint64_t run, time, duration;
    std::int32_t output_index, token;
    float p;
    std::uint32_t candidates_left;
};
static_assert(sizeof(EventRecord) == 88 && sizeof(AccessRecord) == 40 && sizeof(RangeRecord) == 40);
static_assert(sizeof(RunRecord) == 80 && sizeof(TensorRecord) == 80 && sizeof(StepRecord) == 32);
static_assert(sizeof(SampleRecord) == 40);

/// Texts by number.
class Names {
public:
    std::uint32_t number(std::string_view text);
    [[nodiscard]] const std::vector<std::string>& all() const noexcept { return all_; }

private:
    std::vector<std::string> all_;
    std::map<std::string, std::uint32_t, std::less<>> numbers_;
};

/// Memory of records that arrays have given back: fresh pages for each run would cost as much as writing the records.
template <class T>
class Spares {
public:
    std::vector<T> take() noexcept {
        const std::lock_guard lock(mutex_);
        return n_ > 0 ? std::move(kept_[--n_]) : std::vector<T>();
    }
    void give(std::vector<T> rows) noexcept {
        rows.clear();
        const std::lock_guard lock(mutex_);
        if (n_ < kept_.size()) kept_[n_++] = std::move(rows);
    }

private:
    std::mutex mutex_;
    std::size_t n_ = 0;
    std::array<std::vector<T>, 4> kept_;
};

/// Records of one run, handed over to Python without a copy: what reads them (buffer protocol) keeps them.
struct Rows {
    std::shared_ptr<const void> owner;
    const void* data = nullptr;
    std::size_t n_bytes = 0;
};

class Recorder : public tinfer::Observer, public InterruptedObserver {
public:
    struct Records {
        std::vector<EventRecord> events;
        std::vector<AccessRecord> accesses;
        std::vector<RangeRecord> ranges;
        std::vector<RunRecord> runs;
        std::vector<TensorRecord> tensors;
        std::vector<StepRecord> steps;
        std::vector<SampleRecord> samples;
        std::vector<std::pair<std::uint64_t, std::string>> marks;
    };

    tinfer::TraceRequest options;
    std::vector<std::string> values;  ///< globs of the values that on_value() gets; some: delivery is step by step
    bool keep = true;                 ///< false: what a run gave is Python's alone, and without ranges
    bool calls = false;               ///< Python is called after runs
    bool accesses = true;             ///< false: events alone
    std::size_t runs_per_call = 1;    ///< with so many; those left over by flush()

    [[nodiscard]] tinfer::TraceRequest request() const override;
    void set_interrupt(std::shared_ptr<Interrupt> interrupt, PyObject* self) override {
        interrupt_ = std::move(interrupt);
        self_ = self;
    }
    void on_plan(const tinfer::PlanView& plan) override;
    void on_session(const tinfer::SessionInfo& session) override;
    void on_run_begin(const tinfer::RunInfo& run) override;
    void on_events(std::span<const tinfer::KernelEvent> events) override;
    void on_step_end(const tinfer::KernelEvent& event, const tinfer::StepValues& values) override;
    void on_run_end(const tinfer::RunResult& result) override;
    void on_sample(const tinfer::SampleEvent& event) override;
    void on_mark(std::uint64_t time, std::string_view text) override;
    void flush() override;

    /// Reads what is recorded, from any thread.
    template <class Read>
    auto read(Read&& read) const {
        const std::lock_guard lock(mutex_);
        return read(records_, names_);
    }
    void forget();  ///< all but tensors, steps and names

private:
    std::uint32_t tensor_number(const tinfer::TensorInfo& tensor, std::uint32_t plan);
    /// An event's fields that its step decides, and its accesses as the first run had them. What depends on inputs is
    /// filled in for each run.
    struct Known {
        const tinfer::StepView* step = nullptr;
        const tinfer::Access* accesses = nullptr;  ///< the step's; null: inputs decide them
        std::size_t first = 0, n = 0;              ///< of known_accesses_
        EventRecord record{};
    };
    /// Of the run's next event: most runs repeat the run before, event by event.
    const Known& next_known(const tinfer::KernelEvent& event);
    void forget_known();
    [[nodiscard]] AccessRecord record_of(const tinfer::Access& access, std::uint32_t plan);
    void add(const tinfer::KernelEvent& event);
    void add_accesses(const tinfer::KernelEvent& event, const Known& known);
    void add_ranges(const tinfer::KernelEvent& event, std::size_t first_access);
    /// Of runs that are over, what Python has not had.
    struct Handed {
        std::vector<RunRecord> runs;
        std::vector<EventRecord> events;
        std::vector<AccessRecord> accesses;
    };
    Handed take_runs();
    void hand_over(nb::handle object, Handed handed);
    /// Calls a method of the Python object; what it raises fails the decode and is raised by it.
    template <class Call>
    void call(Call&& call);

    mutable std::mutex mutex_;  // never held while Python is called
    Records records_;
    Names names_;
    std::shared_ptr<Interrupt> interrupt_;
    PyObject* self_ = nullptr;
    std::unordered_map<std::uint64_t, std::uint32_t> tensor_numbers_;  ///< by key
    std::shared_ptr<Spares<EventRecord>> spare_events_ = std::make_shared<Spares<EventRecord>>();
    std::shared_ptr<Spares<AccessRecord>> spare_accesses_ = std::make_shared<Spares<AccessRecord>>();
    /// Which plan's events known_ has; compared alone. A new plan or session empties it.
    std::pair<const tinfer::PlanView*, std::uint32_t> known_plan_{};
    std::vector<Known> known_;  ///< in the order of a run
    std::vector<AccessRecord> known_accesses_;
    std::vector<const tinfer::TensorInfo*> known_tensors_;  ///< of known_accesses_
    std::size_t next_event_ = 0;
    std::size_t run_events_ = 0;  ///< where those of the run begin
    /// What Python has had already of what is kept, and runs that it has not had.
    std::size_t had_runs_ = 0, had_events_ = 0, had_accesses_ = 0, n_waiting_ = 0;
};

}  // namespace tinfer_python
