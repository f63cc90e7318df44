// SPDX-License-Identifier: MIT
// Which bytes of which tensor every kernel call touches, live and in files. Chapters: observers and events, records of
// a trace file, trace files.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tinfer/base.hpp"
#include "tinfer/operations.hpp"
#include "tinfer/tensor.hpp"

// =============================================== observers and events ================================================
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

// ============================================== records of a trace file ==============================================
// The records of a trace file (.tntrace 1.0) as they lie in it: little-endian, without padding. A file is a header of
// 128 bytes, then blocks, each at a multiple of 8: a block header, then its payload.
//
//     const auto show = [](const tinfer::trace_format::BlockHeader& block) {
//         std::cout << to_string(block.type) << ", " << block.records << " records\n";
//     };
//     show({.type = tinfer::trace_format::BlockType::events, .records = 380});   // "events, 380 records"
/// The names of fields are those of the format; `begin`, `end`, `time` are ns since time zero of the session.
namespace tinfer::trace_format {

using tinfer::operator<<;  // enums print here, too

inline constexpr std::array<char, 8> kMagic{'T', 'N', 'F', 'T', 'R', 'A', 'C', 'E'};
inline constexpr std::array<char, 4> kBlockMagic{'T', 'N', 'B', 'K'};
inline constexpr std::uint32_t kByteOrder = 0x0A0B0C0D;
inline constexpr std::uint32_t kMaxPayload = 64u << 20;
inline constexpr std::uint16_t kNoLayer16 = 0xFFFF, kNoFile = 0xFFFF;
/// A step of a node that is an alias; an input of a node that is not given.
inline constexpr std::uint32_t kNone = 0xFFFFFFFF;
/// Set in references to values of a plan; others are ids of tensors.
inline constexpr std::uint32_t kValueBit = 0x80000000;
/// The value that stands for the scratch memory of a plan's steps.
inline constexpr std::uint32_t kScratchValue = 0x7FFFFFFE;

enum class BlockType : std::uint16_t {
    strings = 1,
    session,
    files,
    tensors,
    plan,
    run,
    events,
    run_end,
    sample,
    mark,
    pages,
    router,
    hashes,
    drops,
    index,
    samplers,
    pieces,  ///< texts of token ids: {i32 id, u32 length, bytes, zero padding to 4}, each id once
    reads    ///< of weights that were not in memory
};
/// "events"; "unknown" for a number that this version does not know.
[[nodiscard]] TINFER_API std::string_view to_string(BlockType type) noexcept;

/// Flags of the header.
enum Flags : std::uint32_t {
    closed = 1,
    token_ids = 2,
    addresses = 4,
    pages = 8,
    filtered = 16,
    mid_session = 32,  ///< a flight recorder's: what came before was not kept
    value_hashes = 64,
    router = 128
};

struct Header {
    std::array<char, 8> magic = kMagic;
    std::uint16_t major = 1, minor = 0;
    std::uint32_t header_bytes = 128, byte_order = kByteOrder, flags = 0;
    std::uint64_t wall_clock = 0, steady_clock = 0;  ///< at time zero, ns
    std::uint32_t clock_kind = 1, level = 0;
    std::array<std::uint8_t, 16> session_id{}, fingerprint{};
    std::uint64_t index_offset = 0, n_events = 0, n_dropped = 0, n_filtered = 0, file_bytes = 0;  ///< 0 while open
    std::uint32_t reserved = 0, crc = 0;
};

struct BlockHeader {
    std::array<char, 4> magic = kBlockMagic;
    BlockType type{};
    std::uint16_t flags = 0;
    std::uint32_t payload_bytes = 0, records = 0;
    std::uint64_t sequence = 0, earliest = 0, dropped = 0;
    std::uint32_t record_bytes = 0, reserved = 0;  ///< record_bytes 0: compound
    std::uint32_t payload_crc = 0, crc = 0;
};

struct File {
    std::uint32_t name = 0, index = 0;
    std::uint64_t bytes = 0, data_start = 0;
    std::array<std::uint8_t, 16> metadata_hash{};
};

enum TensorFlags : std::uint8_t { tied = 1, repacked = 2, not_in_file = 4, stacked = 8 };
struct Tensor {
    std::uint32_t id = 0, name = 0;
    std::uint8_t tensor_class = 0, flags = 0;
    std::uint16_t layer = kNoLayer16, role = 0, file_index = kNoFile;
    std::uint32_t type = 0;
    std::uint16_t n_dims = 0, layout = 0;
    std::array<std::uint64_t, 4> ne{};
    std::uint64_t bytes = 0, file_offset = 0, row_bytes = 0, slice_bytes = 0, address = 0;
};

struct PlanHeader {
    std::uint32_t id = 0, n_steps = 0, n_operands = 0, n_nodes = 0, n_inputs = 0, n_values = 0, n_step_nodes = 0,
                  n_tokens = 0;
    std::array<std::uint8_t, 16> hash{};
    std::uint16_t step_bytes = 48, operand_bytes = 40, node_bytes = 24, value_bytes = 56;
    std::uint32_t architecture = 0, flags = 0;
};
enum StepFlags : std::uint8_t { fused = 1, dynamic_step = 2, in_place = 4 };
struct Step {
    std::uint32_t number = 0;
    std::uint16_t op = 0, layer = kNoLayer16;
    std::uint32_t kernel = 0;
    std::uint8_t part = 0, flags = 0;
    std::uint16_t n_operands = 0;
    std::uint32_t first_operand = 0, first_step_node = 0;
    std::uint16_t n_nodes = 0, reserved = 0;
    std::uint32_t work_items = 0;
    std::uint64_t macs = 0, static_bytes = 0;
};
enum class OperandKind : std::uint8_t { whole, range, dynamic, elided };
[[nodiscard]] TINFER_API std::string_view to_string(OperandKind kind) noexcept;
enum OperandFlags : std::uint16_t { scratch = 1, operand_widened = 2, operand_padding = 4 };
struct Operand {
    std::uint32_t ref = 0;
    std::uint8_t mode = 0;
    OperandKind kind = OperandKind::whole;
    std::uint16_t passes = 1;
    std::uint64_t offset = 0, length = 0, stride = 0;
    std::uint32_t count = 0;
    std::uint16_t slot = 0, flags = 0;
};
enum NodeFlags : std::uint8_t { reads_view = 1 };  ///< an input is a part of its tensor
struct Node {
    std::uint32_t name = 0;
    std::uint16_t op = 0, layer = kNoLayer16;
    std::uint32_t step = kNone, value = 0, first_input = 0;
    std::uint16_t n_inputs = 0;
    std::uint8_t part = 0, flags = 0;
};
enum ValueFlags : std::uint16_t { elided_value = 1, alias_value = 2, output_value = 4, input_value = 8 };
struct Value {
    std::uint32_t id = 0, name = 0, type = 0;
    std::uint16_t layer = kNoLayer16, flags = 0;
    std::array<std::uint64_t, 4> ne{};
    std::uint64_t bytes = 0;
};

struct Run {
    std::uint64_t run = 0, begin = 0;
    std::uint32_t decode = 0;
    std::uint16_t micro_batch = 0;
    std::uint8_t phase = 0, flags = 0;
    std::uint32_t plan = 0;
    std::uint16_t n_threads = 0, n_sequences = 0;
    std::uint32_t n_tokens = 0, n_outputs = 0;
    std::uint64_t first_event = 0;
    std::uint32_t slots_used = 0, slot_extent = 0;
    std::uint64_t reserved = 0;
};
enum TokenFlags : std::uint32_t { output = 1, several_sequences = 2 };
struct RunToken {
    std::int32_t id = -1, position = 0;
    std::uint32_t sequence = 0, flags = 0;
};

struct EventsHeader {
    std::uint64_t run = 0, first_event = 0;
    std::uint32_t n_events = 0, n_ranges = 0, n_threads = 0;
    std::uint16_t event_bytes = 32, range_bytes = 40, span_bytes = 16, reserved = 0;
    std::uint32_t reserved_2 = 0;
};
enum EventFlags : std::uint8_t { saturated = 1 };
struct Event {
    std::uint64_t begin = 0;
    std::uint32_t duration = 0, step = 0, first_range = 0;
    std::uint16_t n_ranges = 0;
    std::uint8_t status = 0, flags = 0;
    std::uint64_t bytes = 0;
};
enum RangeFlags : std::uint16_t { padding = 1, widened = 2 };
struct Range {
    std::uint16_t operand = 0, flags = 0;
    std::uint32_t tag = 0;
    std::uint64_t offset = 0, length = 0, stride = 0;
    std::uint32_t count = 0, weight = 0;
};
struct Span {
    std::uint32_t begin = 0, busy = 0, work_items = 0;
    std::uint16_t cpu = 0, flags = 0;
};

enum RunEndFlags : std::uint32_t { rolled_back = 1 };
struct RunEnd {
    std::uint64_t run = 0, end = 0;
    std::uint32_t status = 0, n_events = 0;
    std::uint64_t n_dropped = 0, expected_weight_bytes = 0, observed_weight_bytes = 0;
    std::uint32_t flags = 0, reserved = 0;
};
struct Sample {
    std::uint64_t run = 0, time = 0, duration = 0;
    std::uint32_t output_index = 0;
    std::int32_t token = -1;
    float p = 0;
    std::uint32_t candidates_left = 0, sequence = 0, draws = 0;
};
struct Mark {
    std::uint64_t time = 0;
    std::uint32_t text = 0, kind = 0;
};
enum ReadFlags : std::uint32_t { read_ahead = 1 };
/// ReadEvent.
struct Read {
    std::uint64_t run = 0, time = 0, file_offset = 0, bytes = 0, waited = 0;
    std::int32_t layer = -1;
    std::uint32_t unit = 0, file = 0, flags = 0;
};
enum PagesFlags : std::uint16_t { unknown_residency = 1 };
struct Pages {
    std::uint64_t event = 0;
    std::uint16_t operand = 0, flags = 0;
    std::uint32_t page_bytes = 0, n_pages = 0, resident_before = 0, minor_faults = 0, major_faults = 0;
};
struct RouterHeader {
    std::uint64_t event = 0;
    std::uint32_t n_tokens = 0;
    std::uint16_t k = 0, n_experts = 0;
};
struct RouterPick {
    std::uint16_t expert = 0, rank = 0;
    float weight = 0;
};
struct Hash {
    std::uint64_t event = 0;
    std::uint32_t operand = 0, kind = 0;
    std::uint64_t hash = 0;
};
struct Drop {
    std::uint64_t first_time = 0, last_time = 0, first_event = 0, count = 0;
};
struct Index {
    std::uint64_t offset = 0, earliest = 0, first = 0;
    std::uint32_t records = 0;
    BlockType type{};
    std::uint16_t reserved = 0;
};

static_assert(sizeof(Header) == 128 && offsetof(Header, flags) == 20 && offsetof(Header, session_id) == 48);
static_assert(offsetof(Header, index_offset) == 80 && offsetof(Header, crc) == 124);
static_assert(sizeof(BlockHeader) == 56 && offsetof(BlockHeader, sequence) == 16);
static_assert(offsetof(BlockHeader, record_bytes) == 40 && offsetof(BlockHeader, crc) == 52);
static_assert(sizeof(File) == 40 && sizeof(Tensor) == 96 && offsetof(Tensor, ne) == 24);
static_assert(offsetof(Tensor, layer) == 10 && offsetof(Tensor, type) == 16 && offsetof(Tensor, address) == 88);
static_assert(sizeof(PlanHeader) == 64 && offsetof(PlanHeader, hash) == 32 && offsetof(PlanHeader, step_bytes) == 48);
static_assert(sizeof(Step) == 48 && offsetof(Step, n_operands) == 14 && offsetof(Step, macs) == 32);
static_assert(sizeof(Operand) == 40 && offsetof(Operand, passes) == 6 && offsetof(Operand, slot) == 36);
static_assert(sizeof(Node) == 24 && offsetof(Node, n_inputs) == 20 && sizeof(Value) == 56);
static_assert(offsetof(Value, layer) == 12 && offsetof(Value, ne) == 16);
static_assert(sizeof(Run) == 64 && offsetof(Run, plan) == 24 && offsetof(Run, first_event) == 40);
static_assert(sizeof(RunToken) == 16 && sizeof(EventsHeader) == 40 && offsetof(EventsHeader, event_bytes) == 28);
static_assert(sizeof(Event) == 32 && offsetof(Event, n_ranges) == 20 && offsetof(Event, bytes) == 24);
static_assert(sizeof(Range) == 40 && offsetof(Range, offset) == 8 && sizeof(Span) == 16);
static_assert(sizeof(RunEnd) == 56 && sizeof(Sample) == 48 && sizeof(Mark) == 16 && sizeof(Read) == 56 &&
              sizeof(Pages) == 32);
static_assert(sizeof(RouterHeader) == 16 && sizeof(RouterPick) == 8 && sizeof(Hash) == 24 && sizeof(Drop) == 32);
static_assert(sizeof(Index) == 32 && offsetof(Index, type) == 28);

}  // namespace tinfer::trace_format

// ==================================================== trace files ====================================================
// Traces on disk: an observer that writes what it sees into a file, and a reader that shows a file to any observer.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 64});
//     const auto path = std::filesystem::temp_directory_path() / "example.tntrace";
//     const auto file = std::make_shared<tinfer::TraceFile>(path, tinfer::TraceFileOptions{.overwrite = true});
//     {
//         const auto attached = context.attach(file);
//         if (context.decode({tinfer::Token{0}}) != tinfer::DecodeStatus::ok) return;
//     }
//     file->close();   // throws what went wrong while writing
//     const auto trace = tinfer::TraceReader::open(path);
//     std::cout << trace.runs().size() << " run, " << trace.header().n_events << " events\n";
//     tinfer::Roofline roofline;
//     trace.replay(roofline);   // as if it had been attached then
//     std::cout << roofline.report();
namespace tinfer {

// ---- Writing --------------------------------------------------------------------------------------------------------

/// What a trace holds beyond accesses and times. Router records and value hashes need the values themselves, pages the
/// moment before a step: a file with one of them is delivered to step by step, while all threads wait.
struct TraceExtras {
    bool pages = false;       ///< residency of the file's pages before each step that reads them (Linux)
    bool router = false;      ///< which experts each token chose, with their weights
    bool value_hash = false;  ///< a 64-bit hash of every output
    bool addresses = false;   ///< where tensors lay in memory: such traces differ from run to run
    bool token_ids = false;   ///< of batches and samples
};

/// How a trace gets to disk. sync: on the thread that decodes, between runs; async: on a thread of its own; ring: a
/// flight recorder that keeps the last runs in memory until dump().
enum class TraceMode : std::uint8_t { sync, async, ring };
[[nodiscard]] TINFER_API std::string_view to_string(TraceMode mode) noexcept;
/// What mode async does when its buffers are full: the decode waits, or the events of a run are dropped and counted.
enum class WhenFull : std::uint8_t { wait, drop };
[[nodiscard]] TINFER_API std::string_view to_string(WhenFull when_full) noexcept;

struct TraceFileOptions {
    TraceLevel level = TraceLevel::steps;
    EventFilter filter{};
    TraceExtras extras{};
    TraceMode mode = TraceMode::sync;
    WhenFull when_full = WhenFull::wait;
    bool overwrite = false;                  ///< else a file that is there already is an error
    bool flush_every_run = false;            ///< else when 64 KiB or 250 ms have come together
    bool sync_every_decode = false;          ///< what a decode wrote survives a loss of power
    bool dump_on_failure = false;            ///< ring: a run that fails or is cancelled writes what is kept
    std::uint64_t ring_bytes = 64ull << 20;  ///< ring: what is kept
    std::uint64_t max_bytes = 0;             ///< from there on events are only counted; 0: no limit
    /// The text of a token, which the trace then carries once for each id in it, beside `extras.token_ids`; empty: no
    /// text. Called on the thread that decodes.
    std::function<std::string(Token)> piece{};
    /// More about the session (`cpu`, `read_gbps`, …), shown by readers; keys of the format itself win.
    std::vector<std::pair<std::string, std::string>> notes{};
};

/// Where the bytes of a trace go.
class TINFER_API TraceSink {
public:
    TraceSink() = default;
    TraceSink(const TraceSink&) = delete;
    TraceSink& operator=(const TraceSink&) = delete;
    virtual ~TraceSink() = default;
    /// Appends all of the bytes; throws Error (io_error) where it cannot.
    virtual void write(std::span<const std::byte> bytes) = 0;
    /// Writes over the first bytes; a sink that cannot (a pipe) does nothing, and its trace is one that was not closed.
    virtual void rewrite_start(std::span<const std::byte> bytes) = 0;
    virtual void sync() {}   ///< down to the storage
    virtual void close() {}  ///< throws what only shows then
};

/// Writes a trace. It belongs to one context: attached to another it throws bad_parameter, attached again to the same
/// it goes on. An error of the disk never fails a decode: events are then dropped and counted, and close() throws it.
/// Like every observer it is called on the thread that decodes; no decode may run during close() and dump().
class TINFER_API TraceFile : public Observer {
public:
    /// Throws io_error where the file cannot be made, or is there and `overwrite` is not set.
    explicit TraceFile(const std::filesystem::path& path, TraceFileOptions options = {});
    explicit TraceFile(std::unique_ptr<TraceSink> sink, TraceFileOptions options = {});
    ~TraceFile() override;  ///< closes; an error is lost
    /// Writes what is left, the index and the final header. Throws the first error since the beginning. Once.
    void close();
    /// Mode ring: writes the runs that are kept, and forgets them.
    void dump();

    [[nodiscard]] std::uint64_t events() const noexcept;    ///< seen so far, written or kept to be
    [[nodiscard]] std::uint64_t dropped() const noexcept;   ///< events that are in no block
    [[nodiscard]] std::uint64_t filtered() const noexcept;  ///< events that its filter kept away
    [[nodiscard]] std::uint64_t bytes() const noexcept;     ///< of the file so far, what is pending included
    [[nodiscard]] std::string error() const;                ///< the first error, "" while all is well

    [[nodiscard]] TraceRequest request() const override;
    void on_session(const SessionInfo&) override;
    void on_plan(const PlanView&) override;
    void on_run_begin(const RunInfo&) override;
    void on_step_begin(const StepView&) override;
    void on_step_end(const KernelEvent&, const StepValues&) override;
    void on_events(std::span<const KernelEvent>) override;
    void on_run_end(const RunResult&) override;
    void on_sample(const SampleEvent&) override;
    void on_mark(std::uint64_t time, std::string_view text) override;
    void on_reads(std::span<const ReadEvent> reads) override;
    void on_detach(const SessionSummary&) noexcept override;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// ---- Reading --------------------------------------------------------------------------------------------------------

/// A block that is whole.
struct TraceBlock {
    std::uint64_t offset = 0;
    trace_format::BlockHeader header;
};
/// Bytes of a file that could not be read, and why.
struct TraceDamage {
    std::uint64_t offset = 0, bytes = 0;
    std::string what;
};
/// Events that lie together. The index of one is first_event + its step - the step of the first.
struct RecordedEvents {
    std::uint64_t first_event = 0;
    std::uint32_t n_threads = 0;  ///< of the spans: {n_threads, events}; 0: none
    std::span<const trace_format::Event> events;
    std::span<const trace_format::Range> ranges;  ///< of all events; Event::first_range counts from its first
    std::span<const trace_format::Span> spans;

    [[nodiscard]] std::uint64_t index(std::size_t i) const noexcept {
        return first_event + events[i].step - events[0].step;
    }
    [[nodiscard]] std::span<const trace_format::Range> ranges_of(std::size_t i) const noexcept {
        return ranges.subspan(events[i].first_range, events[i].n_ranges);
    }
};
struct RecordedRun {
    trace_format::Run record;
    std::span<const trace_format::RunToken> tokens;
    std::vector<RecordedEvents> events;
    std::optional<trace_format::RunEnd> end;  ///< absent: the run is incomplete
    bool found = true;                        ///< false: the record of the run is lost, its events are there
    std::uint64_t offset = 0;
};
struct RecordedPlan {
    trace_format::PlanHeader header;
    std::span<const trace_format::Step> steps;
    std::span<const trace_format::Operand> operands;
    std::span<const trace_format::Node> nodes;
    std::span<const std::uint32_t> inputs;
    std::span<const trace_format::Value> values;
    std::span<const std::uint32_t> step_nodes;
    std::uint64_t offset = 0;
};
/// What each token of an event chose: {k, n_tokens} picks, best first.
struct RecordedRouting {
    trace_format::RouterHeader header;
    std::span<const trace_format::RouterPick> picks;
};

/// A trace in memory. Every number of the file has been checked: references point at what is there, ranges of arrays
/// lie inside them; what could not be read is in damage(). Immutable, so any number of threads may read it. Spans and
/// views are valid as long as the reader; a reader that has been moved from is empty.
class TINFER_API TraceReader {
public:
    /// Throws io_error; damaged for what is no trace or has a broken header; unsupported_version.
    static TraceReader open(const std::filesystem::path& path);
    /// The same for bytes; `name` stands in messages.
    static TraceReader from_bytes(std::vector<std::byte> bytes, std::string name);
    TraceReader(TraceReader&&) noexcept;
    TraceReader& operator=(TraceReader&&) noexcept;
    ~TraceReader();

    [[nodiscard]] const trace_format::Header& header() const& noexcept;
    [[nodiscard]] bool is_closed() const noexcept;  ///< the writer came to its end
    [[nodiscard]] std::string_view name() const& noexcept;
    [[nodiscard]] std::uint64_t file_bytes() const noexcept;
    [[nodiscard]] std::span<const std::byte> bytes() const& noexcept;
    [[nodiscard]] std::span<const TraceBlock> blocks() const& noexcept;
    [[nodiscard]] std::span<const TraceDamage> damage() const& noexcept;

    /// "" for 0 and for a number that is lost.
    [[nodiscard]] std::string_view text(std::uint32_t id) const& noexcept;
    /// What the session says of a key: `isa`, `threads`, `op.7`; "" where it says nothing.
    [[nodiscard]] std::string_view session_value(std::string_view key) const& noexcept;
    /// The bytes of a token's text, as the vocabulary has them; "" where the trace has no text of it.
    [[nodiscard]] std::string_view piece(Token token) const& noexcept;
    [[nodiscard]] std::span<const std::pair<std::string_view, std::string_view>> session() const& noexcept;
    [[nodiscard]] std::span<const trace_format::File> files() const& noexcept;
    [[nodiscard]] std::span<const trace_format::Tensor> tensors() const& noexcept;
    [[nodiscard]] const trace_format::Tensor* tensor(std::uint32_t id) const& noexcept;  ///< null where it is lost
    [[nodiscard]] std::span<const RecordedPlan> plans() const& noexcept;
    [[nodiscard]] const RecordedPlan* plan(std::uint32_t id) const& noexcept;  ///< null where it is lost
    [[nodiscard]] std::span<const RecordedRun> runs() const& noexcept;         ///< by number
    [[nodiscard]] std::span<const trace_format::Sample> samples() const& noexcept;
    [[nodiscard]] std::span<const trace_format::Mark> marks() const& noexcept;
    [[nodiscard]] std::span<const trace_format::Read> reads() const& noexcept;
    [[nodiscard]] std::span<const trace_format::Pages> pages() const& noexcept;
    [[nodiscard]] std::span<const RecordedRouting> routings() const& noexcept;
    [[nodiscard]] std::span<const trace_format::Hash> hashes() const& noexcept;
    [[nodiscard]] std::span<const trace_format::Drop> drops() const& noexcept;
    [[nodiscard]] std::span<const trace_format::Index> index() const& noexcept;

    // Of a reader that is about to go, views would dangle.
    const trace_format::Header& header() const&& = delete;
    std::string_view name() const&& = delete;
    std::span<const std::byte> bytes() const&& = delete;
    std::span<const TraceBlock> blocks() const&& = delete;
    std::span<const TraceDamage> damage() const&& = delete;
    std::string_view text(std::uint32_t id) const&& = delete;
    std::string_view piece(Token token) const&& = delete;
    std::string_view session_value(std::string_view key) const&& = delete;
    std::span<const std::pair<std::string_view, std::string_view>> session() const&& = delete;
    std::span<const trace_format::File> files() const&& = delete;
    std::span<const trace_format::Tensor> tensors() const&& = delete;
    const trace_format::Tensor* tensor(std::uint32_t id) const&& = delete;
    std::span<const RecordedPlan> plans() const&& = delete;
    const RecordedPlan* plan(std::uint32_t id) const&& = delete;
    std::span<const RecordedRun> runs() const&& = delete;
    std::span<const trace_format::Sample> samples() const&& = delete;
    std::span<const trace_format::Mark> marks() const&& = delete;
    std::span<const trace_format::Read> reads() const&& = delete;
    std::span<const trace_format::Pages> pages() const&& = delete;
    std::span<const RecordedRouting> routings() const&& = delete;
    std::span<const trace_format::Hash> hashes() const&& = delete;
    std::span<const trace_format::Drop> drops() const&& = delete;
    std::span<const trace_format::Index> index() const&& = delete;

    /// Shows the trace to an observer, whatever its request says, as batched delivery would have. Events whose plan is
    /// lost are left out. Tensors have no address, nodes no shapes, runs no inputs; tensors are valid as long as the
    /// reader. KernelEvent::macs of attention counts every query that a load of a KV slot serves, also where it masks
    /// the slot.
    void replay(Observer& observer) const;

    struct Impl;  ///< the library's own

private:
    explicit TraceReader(std::unique_ptr<Impl> impl) noexcept;
    std::unique_ptr<Impl> impl_;
};

/// The 16 bytes, and the whole hash, of what a trace says was done: phases, tokens, positions, plans, steps, ranges
/// and statuses, run by run. Times, threads, addresses and names of files do not count.
struct TraceHash {
    std::array<std::uint8_t, 32> all{};
    std::vector<std::array<std::uint8_t, 32>> runs{};  ///< of each run alone
};
[[nodiscard]] TINFER_API TraceHash content_hash(const TraceReader& trace);

/// Which part of a trace `cut` keeps. Empty = everything.
struct TraceCut {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> runs{};  ///< first and last
    std::vector<int> layers{};                                    ///< kNoLayer: steps of no layer
};
/// A smaller trace that is valid; what is left out is counted as filtered.
[[nodiscard]] TINFER_API std::vector<std::byte> cut(const TraceReader& trace, const TraceCut& what);
/// All of a damaged or unfinished trace that can be read, with index and final header.
[[nodiscard]] TINFER_API std::vector<std::byte> recover(const TraceReader& trace);

}  // namespace tinfer
