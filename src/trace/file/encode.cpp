// SPDX-License-Identifier: MIT
#include "trace/file/encode.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.hpp"

namespace tinfer::trace {

namespace {

constexpr std::size_t kBatchBytes = 16u << 20;  // of one EVENTS block, before another is begun
constexpr std::size_t kMaxRanges = 0xFFFF;      // of one event

std::uint32_t ref_of(const TensorInfo* tensor) {
    if (tensor == nullptr) return trace_format::kNone;
    return tensor->tensor_class == TensorClass::scratch ? trace_format::kValueBit | trace_format::kScratchValue
                                                        : tensor->id;
}

trace_format::Operand encode_operand(const Access& access) {
    trace_format::Operand operand;
    operand.ref = ref_of(access.tensor);
    operand.mode = static_cast<std::uint8_t>(access.mode);
    operand.kind = operand_kind(access);
    operand.passes = access.passes;
    operand.slot = access.slot;
    operand.flags = access.scratch ? trace_format::scratch : 0;
    if (operand.kind == trace_format::OperandKind::range) {
        const AccessRange& range = access.ranges[0];
        operand.offset = range.offset;
        operand.length = range.length;
        operand.stride = range.stride;
        operand.count = range.count;
    }
    return operand;
}

trace_format::Value encode_value(const TensorInfo& tensor, StringTable& strings) {
    trace_format::Value value;
    value.id = tensor.tensor_class == TensorClass::scratch ? trace_format::kScratchValue
                                                           : tensor.id & ~trace_format::kValueBit;
    value.name = strings.id(tensor.name);
    value.type = static_cast<std::uint32_t>(tensor.type);
    value.layer = layer16(tensor.layer);
    value.flags =
        static_cast<std::uint16_t>((tensor.tensor_class == TensorClass::output ? trace_format::output_value : 0) |
                                   (tensor.tensor_class == TensorClass::input ? trace_format::input_value : 0));
    for (std::size_t d = 0; d < 4; ++d) value.ne[d] = static_cast<std::uint64_t>(tensor.ne[d]);
    value.bytes = tensor.bytes;
    return value;
}

trace_format::Step encode_step(const StepView& view, StringTable& strings) {
    trace_format::Step step;
    step.number = view.number;
    step.op = static_cast<std::uint16_t>(view.op);
    step.layer = layer16(view.layer);
    step.kernel = strings.id(view.kernel);
    step.part = static_cast<std::uint8_t>(view.part);
    step.n_operands = static_cast<std::uint16_t>(view.operands.size());
    step.n_nodes = static_cast<std::uint16_t>(view.nodes.size());
    step.macs = view.macs;
    bool dynamic = false;
    for (const Access& access : view.operands) {
        if (operand_kind(access) == trace_format::OperandKind::dynamic) dynamic = true;
        else if (!access.scratch) step.static_bytes += access.bytes() * (access.mode == AccessMode::read_write ? 2 : 1);
    }
    step.flags =
        static_cast<std::uint8_t>((view.fused ? trace_format::fused : 0) | (dynamic ? trace_format::dynamic_step : 0));
    return step;
}

struct PlanArrays {
    std::vector<trace_format::Step> steps;
    std::vector<trace_format::Operand> operands;
    std::vector<trace_format::Node> nodes;
    std::vector<std::uint32_t> inputs;
    std::vector<trace_format::Value> values;
    std::vector<std::uint32_t> step_nodes;
};

void add_plan_values(PlanArrays& arrays, const PlanView& plan, StringTable& strings) {
    for (const TensorInfo& tensor : plan.values) arrays.values.push_back(encode_value(tensor, strings));
    const TensorInfo* scratch_tensor = nullptr;
    for (const StepView& step : plan.steps)
        for (const Access& access : step.operands) {
            if (access.scratch) scratch_tensor = access.tensor;
            if (access.kind != AccessKind::elided) continue;
            for (trace_format::Value& value : arrays.values)
                if ((value.id | trace_format::kValueBit) == access.tensor->id)
                    value.flags |= trace_format::elided_value;
        }
    if (scratch_tensor != nullptr) arrays.values.push_back(encode_value(*scratch_tensor, strings));
}

void add_plan_nodes(PlanArrays& arrays, const PlanView& plan, StringTable& strings) {
    for (const NodeView& view : plan.nodes) {
        trace_format::Node node;
        node.name = strings.id(view.name);
        node.op = static_cast<std::uint16_t>(view.op);
        node.layer = layer16(view.layer);
        node.step = view.step;
        node.value = ref_of(view.output);
        node.first_input = static_cast<std::uint32_t>(arrays.inputs.size());
        node.n_inputs = static_cast<std::uint16_t>(view.inputs.size());
        node.part = static_cast<std::uint8_t>(view.part);
        if (std::ranges::any_of(view.shapes, [](const ViewShape& shape) { return !shape.whole; }))
            node.flags = trace_format::reads_view;
        for (const TensorInfo* input : view.inputs) arrays.inputs.push_back(ref_of(input));
        arrays.nodes.push_back(node);
    }
}

}  // namespace

trace_format::OperandKind operand_kind(const Access& access) noexcept {
    if (access.kind == AccessKind::elided) return trace_format::OperandKind::elided;
    if (access.kind == AccessKind::whole) return trace_format::OperandKind::whole;
    if (access.ranges.size() != 1) return trace_format::OperandKind::dynamic;
    const AccessRange& range = access.ranges[0];
    return range.tag == 0 && range.weight == 0 && !range.padding ? trace_format::OperandKind::range
                                                                 : trace_format::OperandKind::dynamic;
}

std::uint16_t RoleNumbers::number(std::string_view role) {
    if (role.empty()) return 0;
    const auto found = std::ranges::find(names_, role);
    if (found != names_.end()) return static_cast<std::uint16_t>(found - names_.begin() + 1);
    names_.emplace_back(role);
    return static_cast<std::uint16_t>(names_.size());
}

trace_format::Tensor encode_tensor(const TensorInfo& info, StringTable& strings, RoleNumbers& roles,
                                   bool with_address) {
    trace_format::Tensor tensor;
    tensor.id = info.id;
    tensor.name = strings.id(info.name);
    tensor.tensor_class = static_cast<std::uint8_t>(info.tensor_class);
    tensor.flags = static_cast<std::uint8_t>((info.file_index < 0 ? trace_format::not_in_file : 0) |
                                             (info.slice_bytes > 0 ? trace_format::stacked : 0));
    tensor.layer = layer16(info.layer);
    tensor.role = roles.number(info.role);
    tensor.file_index = info.file_index < 0 ? trace_format::kNoFile : static_cast<std::uint16_t>(info.file_index);
    tensor.type = static_cast<std::uint32_t>(info.type);
    tensor.n_dims = static_cast<std::uint16_t>(info.n_dims);
    for (std::size_t d = 0; d < 4; ++d) tensor.ne[d] = static_cast<std::uint64_t>(info.ne[d]);
    tensor.bytes = info.bytes;
    tensor.file_offset = info.file_offset;
    tensor.row_bytes = info.row_bytes;
    tensor.slice_bytes = info.slice_bytes;
    if (with_address) tensor.address = reinterpret_cast<std::uintptr_t>(info.address);
    return tensor;
}

std::vector<std::byte> encode_plan(const PlanView& plan, StringTable& strings) {
    PlanArrays arrays;
    add_plan_values(arrays, plan, strings);
    add_plan_nodes(arrays, plan, strings);
    for (const StepView& view : plan.steps) {
        trace_format::Step step = encode_step(view, strings);
        step.first_operand = static_cast<std::uint32_t>(arrays.operands.size());
        step.first_step_node = static_cast<std::uint32_t>(arrays.step_nodes.size());
        for (const Access& access : view.operands) arrays.operands.push_back(encode_operand(access));
        for (const NodeView* node : view.nodes) arrays.step_nodes.push_back(node->number);
        arrays.steps.push_back(step);
    }
    trace_format::PlanHeader header;
    header.id = plan.id;
    header.n_steps = static_cast<std::uint32_t>(arrays.steps.size());
    header.n_operands = static_cast<std::uint32_t>(arrays.operands.size());
    header.n_nodes = static_cast<std::uint32_t>(arrays.nodes.size());
    header.n_inputs = static_cast<std::uint32_t>(arrays.inputs.size());
    header.n_values = static_cast<std::uint32_t>(arrays.values.size());
    header.n_step_nodes = static_cast<std::uint32_t>(arrays.step_nodes.size());
    header.n_tokens = plan.n_tokens;
    header.hash = plan.hash;
    header.architecture = strings.id(plan.architecture);
    std::vector<std::byte> payload;
    put(payload, header);
    put_all(payload, std::span<const trace_format::Step>(arrays.steps));
    put_all(payload, std::span<const trace_format::Operand>(arrays.operands));
    put_all(payload, std::span<const trace_format::Node>(arrays.nodes));
    put_all(payload, std::span<const std::uint32_t>(arrays.inputs));
    put_all(payload, std::span<const trace_format::Value>(arrays.values));
    put_all(payload, std::span<const std::uint32_t>(arrays.step_nodes));
    return payload;
}

std::vector<bool> dynamic_steps(const PlanView& plan) {
    std::vector<bool> dynamic(plan.steps.size());
    for (std::size_t s = 0; s < dynamic.size(); ++s)
        dynamic[s] = std::ranges::any_of(plan.steps[s].operands, [](const Access& a) {
            return operand_kind(a) == trace_format::OperandKind::dynamic;
        });
    return dynamic;
}

void EventBatch::clear() noexcept {
    header_ = {};
    latest_ = 0;
    events_.clear();
    ranges_.clear();
    spans_.clear();
    n_lists_ = 0;
}

std::size_t EventBatch::bytes() const noexcept {
    return sizeof header_ + events_.size() * sizeof(trace_format::Event) +
           ranges_.size() * sizeof(trace_format::Range) + spans_.size() * sizeof(trace_format::Span);
}

bool EventBatch::takes(const KernelEvent& event) const noexcept {
    return empty() ||
           (bytes() < kBatchBytes && header_.run == event.run->run && header_.n_threads == event.threads.size());
}

// Where the ranges from `first` on lie: there, or where an event before has the same ones.
std::size_t EventBatch::place_of(std::size_t first) {
    const std::size_t n = ranges_.size() - first;
    if (n == 0) return first;
    const auto* own = ranges_.data() + first;
    for (std::size_t i = 0; i < std::min(n_lists_, lists_.size()); ++i) {
        const RangeList& list = lists_[i];
        if (list.n != n || std::memcmp(ranges_.data() + list.first, own, n * sizeof *own) != 0) continue;
        ranges_.resize(first);
        return list.first;
    }
    lists_[n_lists_++ % lists_.size()] = {first, n};
    return first;
}

void EventBatch::add_ranges(const KernelEvent& event, trace_format::Event& record) {
    const std::size_t first = ranges_.size();
    const auto operands = event.step->operands;
    for (const Access& access : event.accesses) {
        if (access.scratch || access.kind == AccessKind::elided) continue;
        const auto same = std::ranges::find_if(operands, [&](const Access& operand) {
            return operand.slot == access.slot && operand.mode == access.mode &&
                   operand_kind(operand) == trace_format::OperandKind::dynamic;
        });
        if (same == operands.end()) continue;  // the plan says it all
        const auto number = static_cast<std::uint16_t>(same - operands.begin());
        if (access.kind == AccessKind::whole) ranges_.push_back({number, 0, 0, 0, access.tensor->bytes, 0, 1, 0});
        for (const AccessRange& range : access.ranges)
            ranges_.push_back({number, static_cast<std::uint16_t>(range.padding ? trace_format::padding : 0), range.tag,
                               range.offset, range.length, range.stride, range.count, range.weight});
    }
    if (ranges_.size() - first > kMaxRanges)
        fail(ErrorCode::limit_exceeded, cat("trace: event ", event.index, " has ", ranges_.size() - first,
                                            " ranges, at most ", kMaxRanges, " fit"));
    record.n_ranges = static_cast<std::uint16_t>(ranges_.size() - first);
    record.first_range = static_cast<std::uint32_t>(place_of(first));
}

void EventBatch::add(const KernelEvent& event, bool dynamic) {
    if (empty()) {
        header_.run = event.run->run;
        header_.first_event = event.index;
        header_.n_threads = static_cast<std::uint32_t>(event.threads.size());
    }
    trace_format::Event record;
    record.begin = event.begin;
    const std::uint64_t duration = event.end - event.begin;
    constexpr std::uint64_t kLongest = std::numeric_limits<std::uint32_t>::max();
    record.duration = static_cast<std::uint32_t>(std::min(duration, kLongest));
    record.flags = duration >= kLongest ? trace_format::saturated : 0;
    record.step = event.step->number;
    record.first_range = static_cast<std::uint32_t>(ranges_.size());
    record.status = static_cast<std::uint8_t>(event.status);
    record.bytes = event.bytes_read + event.bytes_written;
    if (dynamic) add_ranges(event, record);
    latest_ = std::max(latest_, event.end);
    events_.push_back(record);
    for (const ThreadSpan& span : event.threads)
        spans_.push_back({span.begin, span.busy, span.work_items, span.cpu, 0});
}

void EventBatch::write(std::vector<std::byte>& payload) {
    header_.n_events = static_cast<std::uint32_t>(events_.size());
    header_.n_ranges = static_cast<std::uint32_t>(ranges_.size());
    payload.clear();
    put(payload, header_);
    put_all(payload, std::span<const trace_format::Event>(events_));
    put_all(payload, std::span<const trace_format::Range>(ranges_));
    put_all(payload, std::span<const trace_format::Span>(spans_));
}

}  // namespace tinfer::trace
