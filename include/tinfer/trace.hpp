// SPDX-License-Identifier: MIT
// Observers: which bytes of which tensor every kernel call touches.
//
// The executor, not the kernels, makes one event of every step from the operand list that is also the step's only source
// of pointers: nothing can forget to report. An observer steers nothing: plan, kernels, threads and every bit of the
// result are the same with and without it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tinfer/error.hpp"
#include "tinfer/export.hpp"
#include "tinfer/operations.hpp"
#include "tinfer/tensor.hpp"
#include "tinfer/types.hpp"

namespace tinfer {

enum class AccessKind : std::uint8_t { whole, ranges, elided };
enum class Phase : std::uint8_t { prefill, decode, verify, encode, load, warm_up, maintenance };
enum class TraceLevel : std::uint8_t { counts, steps, threads };
enum class Delivery : std::uint8_t { batched, immediate };
enum class OnThrow : std::uint8_t { fail_decode, detach };
enum class EventStatus : std::uint8_t { ok, cancelled, failed };
[[nodiscard]] TINFER_API std::string_view to_string(Phase phase) noexcept;

/// One operand of one event with the bytes it touched. Cache ranges are logical: row = page·64 + slot.
struct Access {
    const TensorInfo* tensor = nullptr;
    std::uint16_t slot = 0;          ///< 0 output, 1 first input, …
    AccessMode mode = AccessMode::read;
    AccessKind kind = AccessKind::whole;
    std::uint16_t passes = 1;        ///< times the kernel's loops walk the range
    bool scratch = false;
    std::span<const AccessRange> ranges;
    /// Unique bytes: the sum of length·count, the tensor's size for `whole`, 0 for `elided`.
    [[nodiscard]] TINFER_API std::uint64_t bytes() const noexcept;
};

/// The part of its tensor that an operand is: count[2] · count[1] · count[0] rows of `length` bytes, `stride` bytes apart.
struct ViewShape {
    bool whole = true;               ///< all of the tensor: the rest says nothing
    std::uint64_t offset = 0, length = 0;
    std::array<std::uint64_t, 3> count{1, 1, 1}, stride{0, 0, 0};
};

/// One symbolic operation of the graph.
struct NodeView {
    std::uint32_t number = 0;
    std::string_view name;           ///< "attn_norm-0"
    Op op = Op::none;
    int layer = kNoLayer;
    Part part = Part::none;
    std::uint32_t step = 0xFFFFFFFF; ///< all ones: alias, no step
    const TensorInfo* output = nullptr;
    std::span<const TensorInfo* const> inputs;
    std::span<const ViewShape> shapes;   ///< of the inputs
};

/// One step of a plan: one kernel call, standing for one node or, fused, for several.
struct StepView {
    std::uint32_t number = 0;
    Op op = Op::none;
    std::string_view kernel;         ///< "mul_mat.q4_k.avx512vnni"
    int layer = kNoLayer;
    Part part = Part::none;
    bool fused = false;
    std::span<const NodeView* const> nodes;
    std::span<const Access> operands;   ///< what is known before running; data-dependent ranges come with the event
};

struct PlanView {
    std::uint32_t id = 0;
    std::array<std::uint8_t, 16> hash{};    ///< of structure and kernels; no address, thread count or time
    std::uint32_t n_tokens = 0;
    std::string_view architecture;
    std::span<const NodeView> nodes;
    std::span<const StepView> steps;
    std::span<const TensorInfo> values;     ///< results of nodes, graph inputs
};

struct TokenView { Token id{-1}; Pos pos{}; SeqId first_seq{}; bool output = false, several_seqs = false; };
/// A graph input, readable before the run starts.
struct InputView { const TensorInfo* tensor = nullptr; std::span<const std::byte> data; };

struct RunInfo {
    std::uint64_t run = 0;           ///< counts runs of the session
    std::uint64_t decode = 0;        ///< counts decode calls of the session
    std::uint32_t micro_batch = 0;   ///< inside its decode
    Phase phase = Phase::decode;
    const PlanView* plan = nullptr;
    int n_threads = 1;
    std::uint64_t begin = 0;         ///< ns since time zero
    std::uint32_t cells_used = 0, cells_total = 0;
    std::span<const TokenView> tokens;
    std::span<const InputView> inputs;
};

/// One thread's work on an event: when it began, ns since the event's begin, how long it worked, and how many pieces of the
/// step it took (1 where threads have even shares).
struct ThreadSpan { std::uint32_t begin = 0, busy = 0; std::uint32_t work_items = 0; std::uint16_t cpu = 0; };

/// One executed step. All spans and pointers are valid during the callback.
struct KernelEvent {
    std::uint64_t index = 0;         ///< session-wide, gapless over filtered events too
    const RunInfo* run = nullptr;
    const StepView* step = nullptr;
    std::uint64_t begin = 0, end = 0;   ///< ns since time zero, never decreasing; a step that slices of time cut spans them
    std::span<const Access> accesses;   ///< every operand
    std::span<const ThreadSpan> threads;
    std::uint64_t macs = 0;
    std::uint64_t bytes_read = 0, bytes_written = 0;   ///< unique bytes
    EventStatus status = EventStatus::ok;
};

struct RunResult {
    const RunInfo* run = nullptr;
    std::uint64_t end = 0;
    std::uint32_t events = 0;
    EventStatus status = EventStatus::ok;
    bool rolled_back = false;
    std::uint64_t expected_weight_bytes = 0;   ///< from node semantics alone, by separate code
    std::uint64_t observed_weight_bytes = 0;   ///< from the events
};

struct SampleEvent {
    std::uint64_t run = 0, time = 0, duration = 0;
    int output_index = 0;
    Token token{-1};
    float p = 0;
    std::uint32_t candidates_left = 0;
};

/// Typed const views of a step's operands, immediate delivery only.
class TINFER_API StepValues {
public:
    enum class Missing : std::uint8_t { no, elided, recycled, not_requested };
    struct Value { const TensorInfo* tensor = nullptr; std::span<const std::byte> data; Missing missing = Missing::no; };
    [[nodiscard]] Value value(std::uint16_t slot) const noexcept;
    explicit StepValues(std::span<const Value> values) noexcept : values_(values) {}

private:
    std::span<const Value> values_;
};

struct SessionInfo {
    std::string_view library_version, isa, architecture;
    std::uint64_t wall_clock_ns = 0;      ///< at time zero, since 1970
    int n_threads = 1;
    std::span<const TensorInfo> weights;  ///< every tensor of the GGUF directory, ids 0 …
    std::span<const TensorInfo> caches;   ///< K and V per attention layer, states per recurrent one; ids go on
    [[nodiscard]] TINFER_API const TensorInfo* find(const void* address) const noexcept;
    [[nodiscard]] TINFER_API const TensorInfo* find(std::string_view name) const noexcept;
    [[nodiscard]] const TensorInfo* find(const char* name) const noexcept { return find(std::string_view(name)); }
};

struct SessionSummary {
    std::uint64_t events = 0, filtered = 0, runs = 0;
    std::string error;                    ///< of an observer that was detached because it threw
};

/// Empty field = everything. Compiled once per plan into a bit per step.
struct EventFilter {
    std::vector<Op> ops{};
    std::vector<int> layers{};
    std::vector<Part> parts{};
    std::vector<Phase> phases{};
    std::vector<std::string> tensors{};   ///< globs (* and ?) on names
    std::uint64_t every_nth_run = 1;
    std::uint64_t first_run = 0, last_run = ~std::uint64_t{0};
};

struct TraceRequest {
    TraceLevel level = TraceLevel::steps;
    Delivery delivery = Delivery::batched;
    EventFilter filter{};
    OnThrow on_throw = OnThrow::fail_decode;
};

/// Sees every tensor access of every kernel call. Callbacks run on the thread inside decode/attach/detach, in order.
/// Allowed inside: const queries of model and context, Attachment::request_detach(), anything on other contexts; decode,
/// sequence operations, attach and detach of the same context throw `busy`.
class TINFER_API Observer {
public:
    Observer() = default;
    Observer(const Observer&) noexcept {}                                  ///< copies are not attached
    Observer& operator=(const Observer&) noexcept { return *this; }
    virtual ~Observer() = default;
    [[nodiscard]] virtual TraceRequest request() const { return {}; }      ///< asked once, at attach
    [[nodiscard]] virtual bool thread_safe() const { return false; }       ///< may serve several contexts

    virtual void on_session(const SessionInfo&) {}
    virtual void on_plan(const PlanView&) {}                               ///< first time the session sees the plan
    virtual void on_run_begin(const RunInfo&) {}                           ///< graph inputs are readable
    virtual void on_step_begin(const StepView&) {}                         ///< immediate delivery only
    virtual void on_step_end(const KernelEvent&, const StepValues&) {}     ///< immediate delivery only
    virtual void on_events(std::span<const KernelEvent>) {}                ///< batched delivery only
    virtual void on_run_end(const RunResult&) {}                           ///< before the decode commits
    virtual void on_sample(const SampleEvent&) {}
    virtual void on_mark(std::uint64_t /*time*/, std::string_view /*text*/) {}
    virtual void on_detach(const SessionSummary&) noexcept {}

private:
    friend struct detail::Access;
    std::atomic<int> n_attached_{0};   // on how many contexts
};

/// Keeps an observer attached; destroying it detaches (inside a callback: after the current decode). May outlive its
/// context, whose end detaches too.
class TINFER_API Attachment {
public:
    Attachment() = default;
    Attachment(Attachment&& other) noexcept;
    Attachment& operator=(Attachment&& other) noexcept;
    ~Attachment();
    void detach();                            ///< throws busy inside a callback of the same context
    void request_detach() noexcept;           ///< takes effect after the current decode; allowed in callbacks
    [[nodiscard]] bool attached() const noexcept;

    struct Impl;   ///< the library's own

private:
    friend struct detail::Access;
    explicit Attachment(std::shared_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
    std::shared_ptr<Impl> impl_;
};

/// Compares, at every run end, the accesses of the events with what the graph's nodes mean (two separate pieces of code).
/// Needs every event: with a filter of another observer it is unaffected, its own request has none.
class TINFER_API CoverageCheck : public Observer {
public:
    CoverageCheck();
    ~CoverageCheck() override;
    [[nodiscard]] std::uint64_t runs() const noexcept;
    [[nodiscard]] std::uint64_t steps() const noexcept;
    [[nodiscard]] std::uint64_t operands() const noexcept;
    /// Differences found so far, each one line: step, node, tensor, what is missing or surplus. At most 1000 are kept.
    [[nodiscard]] const std::vector<std::string>& differences() const noexcept;

    [[nodiscard]] TraceRequest request() const override;   ///< immediate: routing is read from the values themselves
    void on_session(const SessionInfo&) override;
    void on_plan(const PlanView&) override;
    void on_run_begin(const RunInfo&) override;
    void on_step_end(const KernelEvent&, const StepValues&) override;
    void on_run_end(const RunResult&) override;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// What the machine can do at most, per second, however it was measured. 0: not known, and nothing is said of it.
struct RooflinePeaks { double bytes = 0, int8_macs = 0, f32_macs = 0; };

/// All steps that read weights of one role, or, where a step reads none, all steps of one op.
struct RooflineRow {
    enum class Bound : std::uint8_t { unknown, memory, compute };
    std::string role;               ///< "ffn_down", "attn_q+attn_k" of a step that reads both, "" where there is no weight
    Op op = Op::none;
    std::uint64_t calls = 0;
    double seconds = 0;
    std::uint64_t bytes = 0;        ///< streamed, read and written: unique bytes times passes
    std::uint64_t weight_bytes = 0, cache_bytes = 0;   ///< unique bytes of weights and of the cache
    std::uint64_t int8_macs = 0, f32_macs = 0;
    /// Seconds that the bytes, or the multiply-accumulates, would take at the peaks.
    double memory_seconds = 0, compute_seconds = 0;

    [[nodiscard]] double gbps() const noexcept { return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0; }
    [[nodiscard]] double gmacs() const noexcept { return seconds > 0 ? static_cast<double>(int8_macs + f32_macs) / seconds / 1e9 : 0; }
    /// The nearer roof, and how near: 1 is on it.
    [[nodiscard]] TINFER_API Bound bound() const noexcept;
    [[nodiscard]] TINFER_API double of_peak() const noexcept;
};

/// Where the time of runs goes and how near each role of weights comes to the machine's roofs. Adds up the events of the
/// decodes it is attached for; its memory does not grow with them.
class TINFER_API Roofline : public Observer {
public:
    explicit Roofline(RooflinePeaks peaks = {});
    ~Roofline() override;
    [[nodiscard]] std::vector<RooflineRow> rows() const;   ///< by time, descending
    [[nodiscard]] double step_seconds() const noexcept;    ///< of all rows
    [[nodiscard]] double run_seconds() const noexcept;     ///< from the begin of each run to its end
    [[nodiscard]] std::uint64_t runs() const noexcept;
    /// The rows as a table with a line of names above and a total below.
    [[nodiscard]] std::string report() const;

    void on_events(std::span<const KernelEvent>) override;
    void on_run_end(const RunResult&) override;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tinfer
