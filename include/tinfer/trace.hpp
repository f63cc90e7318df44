// SPDX-License-Identifier: MIT
// Observers: which bytes of which tensor every kernel call touches.
//
// The executor, not the kernels, makes one event of every step from the operand list that is also the step's only
// source of pointers: nothing can forget to report. An observer steers nothing: plan, kernels, threads and every bit of
// the result are the same with and without it.
//
//     struct BytesOfWeights : tinfer::Observer {
//         std::uint64_t bytes = 0;
//         void on_events(std::span<const tinfer::KernelEvent> events) override {
//             for (const tinfer::KernelEvent& event : events)
//                 for (const tinfer::Access& access : event.accesses)
//                     if (access.tensor->tensor_class == tinfer::TensorClass::weight) bytes += access.bytes();
//         }
//     };
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 64});
//     const auto observer = std::make_shared<BytesOfWeights>();
//     const auto attached = context.attach(observer);   // until `attached` leaves its scope
//     if (context.decode({tinfer::Token{0}}) == tinfer::DecodeStatus::ok) std::cout << observer->bytes << " bytes\n";
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

class ModelFile;

/// Of an operand: all of its tensor, ranges of it, or nothing, because it stays inside a fused kernel.
enum class AccessKind : std::uint8_t { whole, ranges, elided };
[[nodiscard]] TINFER_API std::string_view to_string(AccessKind kind) noexcept;
/// What a run is for. prefill: more than one token of a sequence; verify: a token and drafted ones behind it;
/// maintenance: rotating keys, copying pages; draft: the context's draft head proposes tokens, or reads the states of a
/// text.
enum class Phase : std::uint8_t { prefill, decode, verify, encode, load, warm_up, maintenance, draft };
inline constexpr Phase kLastPhase = Phase::draft;
[[nodiscard]] TINFER_API std::string_view to_string(Phase phase) noexcept;
/// What an observer costs and gets: counts without a clock, begin and end of every step, and those of every thread.
enum class TraceLevel : std::uint8_t { counts, steps, threads };
[[nodiscard]] TINFER_API std::string_view to_string(TraceLevel level) noexcept;
/// Events at the end of each run, or around each step while all threads wait.
enum class Delivery : std::uint8_t { batched, immediate };
[[nodiscard]] TINFER_API std::string_view to_string(Delivery delivery) noexcept;
/// What an exception of an observer does: it fails the decode (compute_failed, rolled back), or it detaches the
/// observer. In a run of phase `draft` the first costs the drafts alone.
enum class OnThrow : std::uint8_t { fail_decode, detach };
[[nodiscard]] TINFER_API std::string_view to_string(OnThrow on_throw) noexcept;
/// How a step or run ended.
enum class EventStatus : std::uint8_t { ok, cancelled, failed };
[[nodiscard]] TINFER_API std::string_view to_string(EventStatus status) noexcept;

/// One operand of one event with the bytes it touched. Cache ranges are logical: row = page·64 + slot.
struct Access {
    const TensorInfo* tensor = nullptr;
    std::uint16_t slot = 0;  ///< 0 output, 1 first input, …
    AccessMode mode = AccessMode::read;
    AccessKind kind = AccessKind::whole;
    std::uint16_t passes = 1;  ///< times the kernel's loops walk the range
    bool scratch = false;
    std::span<const AccessRange> ranges;
    /// Unique bytes: the sum of length·count, the tensor's size for `whole`, 0 for `elided`.
    [[nodiscard]] TINFER_API std::uint64_t bytes() const noexcept;
};

/// The part of its tensor that an operand is: count[2] · count[1] · count[0] rows of `length` bytes, `stride` bytes
/// apart.
struct ViewShape {
    bool whole = true;  ///< all of the tensor: the rest says nothing
    std::uint64_t offset = 0, length = 0;
    std::array<std::uint64_t, 3> count{1, 1, 1}, stride{0, 0, 0};
};

/// One symbolic operation of the graph.
struct NodeView {
    std::uint32_t number = 0;
    std::string_view name;  ///< "attn_norm-0"
    Op op = Op::none;
    int layer = kNoLayer;
    Part part = Part::none;
    std::uint32_t step = 0xFFFFFFFF;  ///< all ones: alias, no step
    const TensorInfo* output = nullptr;
    std::span<const TensorInfo* const> inputs;
    std::span<const ViewShape> shapes;  ///< of the inputs
    int block = 1;  ///< select_keys: tokens of a whole block, whose last one's key is read; 0: not by whole blocks
};

/// StepView::macs of a step whose data decides how much it computes.
inline constexpr std::uint64_t kDynamicMacs = ~std::uint64_t{0};

/// One step of a plan: one kernel call, standing for one node or, fused, for several.
struct StepView {
    std::uint32_t number = 0;
    Op op = Op::none;
    std::string_view kernel;  ///< "mul_mat.q4_k.avx512vnni"
    int layer = kNoLayer;
    Part part = Part::none;
    bool fused = false;
    std::uint64_t macs = kDynamicMacs;  ///< of one event; all ones where the run decides
    std::span<const NodeView* const> nodes;
    std::span<const Access> operands;  ///< what is known before running; data-dependent ranges come with the event
};

/// A plan as a session knows it: equal plans are one, however often the context makes them anew. Views are valid during
/// the callback; a plan that runs again may lie elsewhere.
struct PlanView {
    std::uint32_t id = 0;                 ///< counts the different plans of the session, from 1
    std::array<std::uint8_t, 16> hash{};  ///< of structure and kernels; no address, thread count or time
    std::uint32_t n_tokens = 0;
    std::string_view architecture;
    std::span<const NodeView> nodes;
    std::span<const StepView> steps;
    std::span<const TensorInfo> values;  ///< results of nodes, graph inputs
};

/// A token of a run, with the first of its sequences.
struct TokenView {
    Token id{-1};
    Pos pos{};
    SeqId first_seq{};
    bool output = false, several_seqs = false;
};
/// A graph input, readable before the run starts.
struct InputView {
    const TensorInfo* tensor = nullptr;
    std::span<const std::byte> data;
};

/// One execution of a plan: a micro-batch of a decode, or maintenance.
struct RunInfo {
    std::uint64_t run = 0;          ///< counts runs of the session
    std::uint64_t decode = 0;       ///< counts decode calls of the session
    std::uint32_t micro_batch = 0;  ///< inside its decode
    Phase phase = Phase::decode;
    const PlanView* plan = nullptr;
    int n_threads = 1;
    std::uint64_t begin = 0;  ///< ns since time zero
    std::uint32_t slots_used = 0, slots_total = 0;
    std::span<const TokenView> tokens;
    std::span<const InputView> inputs;
};

/// One thread's work during an event: when it began and for how long, in ns since the event's begin, and how many work
/// items of the step it took (1 where threads have even shares). Threads meet no more often than unwatched, so one may
/// still work on the step before while this event's time runs: a run's sums are exact, one event's may hold its
/// neighbour's work.
struct ThreadSpan {
    std::uint32_t begin = 0, busy = 0;
    std::uint32_t work_items = 0;
    std::uint16_t cpu = 0;
};

/// One executed step. All spans and pointers are valid during the callback.
struct KernelEvent {
    std::uint64_t index = 0;  ///< session-wide, gapless over filtered events too
    const RunInfo* run = nullptr;
    const StepView* step = nullptr;
    /// ns since time zero, never decreasing; a step that was cut into slices of time spans all of them.
    std::uint64_t begin = 0, end = 0;
    std::span<const Access> accesses;  ///< every operand
    std::span<const ThreadSpan> threads;
    std::uint64_t macs = 0;
    std::uint64_t bytes_read = 0, bytes_written = 0;  ///< unique bytes
    EventStatus status = EventStatus::ok;
};

/// How a run ended.
struct RunResult {
    const RunInfo* run = nullptr;
    std::uint64_t end = 0;     ///< ns since time zero
    std::uint32_t events = 0;  ///< steps that began, filtered ones too
    EventStatus status = EventStatus::ok;
    bool rolled_back = false;                 ///< the decode leaves nothing of it
    std::uint64_t expected_weight_bytes = 0;  ///< from node semantics alone, by separate code
    std::uint64_t observed_weight_bytes = 0;  ///< from the events
};

/// A read of weights for a step that needed them, in a model that is larger than its memory limit
/// (ModelOptions::memory_limit): one slice of a tensor. What was read ahead is told when a step needs it.
struct ReadEvent {
    std::uint64_t run = 0;          ///< that needed it
    std::uint64_t time = 0;         ///< ns since time zero: when the run ended, for what it is told with
    std::uint64_t file_offset = 0;  ///< of the slice
    std::uint64_t bytes = 0;
    std::uint64_t waited =
        0;  ///< ns, of the steps that needed the unit (the slices that are read together): each tells it
    std::int32_t layer = -1;
    std::uint32_t unit = 0;        ///< expert; 0 where whole tensors are read
    std::uint32_t file_index = 0;  ///< shard
    bool ahead = false;            ///< read before the step asked for it
};

/// A token drawn by Sampler::sample(Context&), before the sampler accepts it.
struct SampleEvent {
    std::uint64_t run = 0;                 ///< the last run
    std::uint64_t time = 0, duration = 0;  ///< ns: since time zero, of the chain
    int output_index = 0;                  ///< not negative
    Token token{-1};
    float p = 0;                        ///< probability after the chain
    std::uint32_t candidates_left = 0;  ///< that could have been drawn
    /// Whose row it is: the outputs of one decode, or of a loaded state, have a number of their own in their context. A
    /// row that is drawn from again has the same number and output_index. In a trace that is replayed: the run's.
    std::uint64_t outputs = 0;
};

/// Typed const views of a step's operands, immediate delivery only.
class TINFER_API StepValues {
public:
    enum class Missing : std::uint8_t { no, elided, recycled, not_requested };  ///< why there is no data
    struct Value {
        const TensorInfo* tensor = nullptr;
        std::span<const std::byte> data;
        Missing missing = Missing::no;
    };
    [[nodiscard]] Value value(std::uint16_t slot) const noexcept;
    explicit StepValues(std::span<const Value> values) noexcept : values_(values) {}

private:
    std::span<const Value> values_;
};
[[nodiscard]] TINFER_API std::string_view to_string(StepValues::Missing missing) noexcept;

/// What holds for all runs of a context. Tensors are valid as long as the model (caches: as the context).
struct SessionInfo {
    std::string_view library_version, isa, architecture;
    std::uint64_t wall_clock_ns = 0;    ///< at time zero, since 1970
    std::uint64_t steady_clock_ns = 0;  ///< at time zero, of the clock that all times are of
    const ModelFile* file = nullptr;    ///< the model's; null where it is not at hand (a recorded session)
    /// Of the draft head, where it has one of its own; its shards are numbered behind the model's
    /// (TensorInfo::file_index).
    const ModelFile* draft_file = nullptr;
    int n_threads = 1;
    std::span<const TensorInfo> weights;  ///< every tensor of the GGUF directory, ids 0 …
    /// K and V per attention layer, states per recurrent one, then adapters' tensors, then those that only the draft
    /// head has; ids go on.
    std::span<const TensorInfo> caches;
    [[nodiscard]] TINFER_API const TensorInfo* find(const void* address) const noexcept;
    [[nodiscard]] TINFER_API const TensorInfo* find(std::string_view name) const noexcept;
    [[nodiscard]] const TensorInfo* find(const char* name) const noexcept { return find(std::string_view(name)); }
};

/// What an observer was shown, at its end.
struct SessionSummary {
    std::uint64_t events = 0, filtered = 0, runs = 0;  ///< delivered, kept from it by its filter, and of how many runs
    std::string error;                                 ///< of an observer that was detached because it threw
};

/// Empty field = everything. Compiled once per plan into a bit per step.
struct EventFilter {
    std::vector<Op> ops{};
    std::vector<int> layers{};
    std::vector<Part> parts{};
    std::vector<Phase> phases{};
    std::vector<std::string> tensors{};  ///< globs (* and ?) on names
    std::uint64_t every_nth_run = 1;
    std::uint64_t first_run = 0, last_run = ~std::uint64_t{0};
};

/// What an observer wants. Several observers get the union of their levels, each of them the events that it asked for.
struct TraceRequest {
    TraceLevel level = TraceLevel::steps;
    Delivery delivery = Delivery::batched;
    EventFilter filter{};
    OnThrow on_throw = OnThrow::fail_decode;
};

/// Sees every tensor access of every kernel call. Callbacks run on the thread inside decode, sample, mark, attach or
/// detach, in order. Allowed inside: const queries of model and context, Attachment::request_detach(), anything on
/// other contexts; decode, sequence operations, attach and detach of the same context throw `busy`. What a callback
/// throws fails the call it runs in (OnThrow); on_detach must not throw.
class TINFER_API Observer {
public:
    Observer() = default;
    Observer(const Observer&) noexcept {}  ///< copies are not attached
    Observer& operator=(const Observer&) noexcept { return *this; }
    virtual ~Observer() = default;
    [[nodiscard]] virtual TraceRequest request() const { return {}; }  ///< asked once, at attach
    [[nodiscard]] virtual bool thread_safe() const { return false; }   ///< may serve several contexts

    virtual void on_session(const SessionInfo&) {}
    virtual void on_plan(const PlanView&) {}                            ///< once for each plan, before it first runs
    virtual void on_run_begin(const RunInfo&) {}                        ///< graph inputs are readable
    virtual void on_step_begin(const StepView&) {}                      ///< immediate delivery only
    virtual void on_step_end(const KernelEvent&, const StepValues&) {}  ///< immediate delivery only
    virtual void on_events(std::span<const KernelEvent>) {}             ///< batched delivery only
    virtual void on_run_end(const RunResult&) {}                        ///< before the decode commits
    virtual void on_sample(const SampleEvent&) {}
    virtual void on_mark(std::uint64_t /*time*/, std::string_view /*text*/) {}
    virtual void on_detach(const SessionSummary&) noexcept {}
    virtual void on_reads(std::span<const ReadEvent>) {}  ///< of a run, before its end; not called where there are none

private:
    friend struct detail::Access;
    std::atomic<int> n_attached_{0};  // on how many contexts
};

/// Keeps an observer attached; destroying it detaches (inside a callback: after the current decode). May outlive its
/// context, whose end detaches too.
class TINFER_API Attachment {
public:
    Attachment() = default;
    Attachment(Attachment&& other) noexcept;
    Attachment& operator=(Attachment&& other) noexcept;
    ~Attachment();
    void detach();                   ///< throws busy inside a callback of the same context
    void request_detach() noexcept;  ///< takes effect after the current decode; allowed in callbacks
    [[nodiscard]] bool attached() const noexcept;

    struct Impl;  ///< the library's own

private:
    friend struct detail::Access;
    explicit Attachment(std::shared_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
    std::shared_ptr<Impl> impl_;
};

}  // namespace tinfer
