// SPDX-License-Identifier: MIT
// The records of a trace file (.tntrace 1.0) as they lie in it: little-endian, without padding. A file is a header of
// 128 bytes, then blocks, each at a multiple of 8: a block header, then its payload.
//
//     const auto show = [](const tinfer::trace_format::BlockHeader& block) {
//         std::cout << to_string(block.type) << ", " << block.records << " records\n";
//     };
//     show({.type = tinfer::trace_format::BlockType::events, .records = 380});   // "events, 380 records"
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tinfer/export.hpp"
#include "tinfer/types.hpp"

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
