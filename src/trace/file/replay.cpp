// SPDX-License-Identifier: MIT
// Replay: what a trace holds, shown to an observer as if it were running.
#include <algorithm>
#include <charconv>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "trace/file/reader_impl.hpp"

namespace tinfer {

namespace {

constexpr std::size_t kEventsAtOnce = 8192, kRangesAtOnce = 1u << 18;  // events may share ranges of the file

int layer_of(std::uint16_t layer) { return layer == trace_format::kNoLayer16 ? kNoLayer : layer; }

/// Numbers of a file by their names, so that a later version may number anew. What has no name here becomes `other`.
template <class Enum>
std::vector<Enum> numbers_of(const TraceReader::Impl& trace, std::string_view prefix, int n_ours, Enum other) {
    std::vector<Enum> ours;
    for (const auto& [key, value] : trace.session) {
        if (!key.starts_with(prefix)) continue;
        std::uint16_t number = 0;
        const char* end = key.data() + key.size();
        const auto [at, error] = std::from_chars(key.data() + prefix.size(), end, number);
        if (error != std::errc() || at != end) continue;
        if (number >= ours.size()) ours.resize(number + std::size_t{1}, other);
        for (int i = 0; i < n_ours; ++i)
            if (to_string(static_cast<Enum>(i)) == value) ours[number] = static_cast<Enum>(i);
    }
    return ours;
}

template <class Enum>
Enum by_number(const std::vector<Enum>& ours, std::size_t number, Enum other) {
    return number < ours.size() ? ours[number] : other;
}

struct EnumNumbers {
    std::vector<Op> ops;
    std::vector<Part> parts;
    std::vector<Phase> phases;
    explicit EnumNumbers(const TraceReader::Impl& trace)
        : ops(numbers_of<Op>(trace, "op.", static_cast<int>(Op::count_), Op::none)),
          parts(numbers_of<Part>(trace, "part.", static_cast<int>(Part::pool) + 1, Part::none)),
          phases(numbers_of<Phase>(trace, "phase.", static_cast<int>(kLastPhase) + 1, Phase::decode)) {}
};

TensorInfo info_of_value(const TraceReader::Impl& trace, const trace_format::Value& value) {
    TensorInfo info;
    info.id = trace_format::kValueBit | value.id;
    info.name = trace.text(value.name);
    info.tensor_class = (value.flags & trace_format::output_value) != 0  ? TensorClass::output
                        : (value.flags & trace_format::input_value) != 0 ? TensorClass::input
                                                                         : TensorClass::value;
    info.type = static_cast<DType>(value.type);
    info.layer = layer_of(value.layer);
    info.role = info.name;
    if (info.layer != kNoLayer)
        if (const std::string suffix = cat('-', info.layer); info.role.ends_with(suffix))
            info.role.remove_suffix(suffix.size());
    for (std::size_t d = 0; d < 4; ++d) info.ne[d] = static_cast<std::int64_t>(value.ne[d]);
    info.n_dims = 4;
    while (info.n_dims > 1 && info.ne[static_cast<std::size_t>(info.n_dims) - 1] == 1) --info.n_dims;
    info.bytes = value.bytes;
    const std::uint64_t n_rows = value.ne[1] * value.ne[2] * value.ne[3];
    info.row_bytes = n_rows > 0 ? value.bytes / n_rows : 0;
    if (value.id == trace_format::kScratchValue) {
        info.id = 0xFFFFFFFF;
        info.tensor_class = TensorClass::scratch;
        info.role = "scratch";
        info.row_bytes = 0;
    }
    return info;
}

/// A plan as an observer sees it; what it refers to that is lost appears as a tensor without a name.
struct ReplayedPlan {
    ReplayedPlan(const TraceReader::Impl& trace, const RecordedPlan& plan, const EnumNumbers& numbers);
    ReplayedPlan(const ReplayedPlan&) = delete;
    ReplayedPlan& operator=(const ReplayedPlan&) = delete;

    PlanView view;
    const RecordedPlan& recorded;
    std::vector<TensorInfo> values;
    std::vector<std::pair<std::uint32_t, std::size_t>> places;  // of values, by id
    TensorInfo lost;
    std::vector<NodeView> nodes;
    std::vector<const TensorInfo*> inputs;
    std::vector<ViewShape> shapes;
    std::vector<const NodeView*> step_nodes;
    std::vector<StepView> steps;
    std::vector<Access> operands;
    std::vector<AccessRange> ranges;

private:
    const TensorInfo* tensor(const TraceReader::Impl& trace, std::uint32_t ref) const;
};

const TensorInfo* ReplayedPlan::tensor(const TraceReader::Impl& trace, std::uint32_t ref) const {
    if ((ref & trace_format::kValueBit) == 0) {
        const TensorInfo* info = trace.info(ref);
        return info != nullptr ? info : &lost;
    }
    const auto found = std::ranges::lower_bound(places, ref & ~trace_format::kValueBit, {},
                                                &std::pair<std::uint32_t, std::size_t>::first);
    return found != places.end() && found->first == (ref & ~trace_format::kValueBit) ? &values[found->second] : &lost;
}

ReplayedPlan::ReplayedPlan(const TraceReader::Impl& trace, const RecordedPlan& plan, const EnumNumbers& numbers)
    : recorded(plan) {
    for (const trace_format::Value& value : plan.values) {
        places.emplace_back(value.id, values.size());
        values.push_back(info_of_value(trace, value));
    }
    std::ranges::sort(places);
    nodes.reserve(plan.nodes.size());
    for (const std::uint32_t ref : plan.inputs)
        inputs.push_back(ref == trace_format::kNone ? nullptr : tensor(trace, ref));
    shapes.resize(inputs.size());
    for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
        const trace_format::Node& node = plan.nodes[i];
        NodeView& seen = nodes.emplace_back();
        seen.number = static_cast<std::uint32_t>(i);
        seen.name = trace.text(node.name);
        seen.op = by_number(numbers.ops, node.op, Op::none);
        seen.layer = layer_of(node.layer);
        seen.part = by_number(numbers.parts, node.part, Part::none);
        seen.step = node.step;
        seen.output = tensor(trace, node.value);
        seen.inputs = std::span(inputs).subspan(node.first_input, node.n_inputs);
        seen.shapes = std::span(shapes).subspan(node.first_input, node.n_inputs);
    }
    for (const std::uint32_t node : plan.step_nodes) step_nodes.push_back(&nodes[node]);
    ranges.reserve(plan.operands.size());
    for (const trace_format::Operand& operand : plan.operands) {
        Access& access = operands.emplace_back();
        access.tensor = tensor(trace, operand.ref);
        access.slot = operand.slot;
        access.mode = static_cast<AccessMode>(operand.mode);
        access.passes = operand.passes;
        access.scratch = (operand.flags & trace_format::scratch) != 0;
        access.kind = operand.kind == trace_format::OperandKind::whole    ? AccessKind::whole
                      : operand.kind == trace_format::OperandKind::elided ? AccessKind::elided
                                                                          : AccessKind::ranges;
        if (operand.kind != trace_format::OperandKind::range) continue;
        ranges.push_back(
            {.offset = operand.offset, .length = operand.length, .stride = operand.stride, .count = operand.count});
        access.ranges = std::span(ranges).last(1);
    }
    for (const trace_format::Step& step : plan.steps) {
        StepView& seen = steps.emplace_back();
        seen.number = step.number;
        seen.op = by_number(numbers.ops, step.op, Op::none);
        seen.kernel = trace.text(step.kernel);
        seen.layer = layer_of(step.layer);
        seen.part = by_number(numbers.parts, step.part, Part::none);
        seen.fused = (step.flags & trace_format::fused) != 0;
        seen.macs = step.macs;
        seen.nodes = std::span(step_nodes).subspan(step.first_step_node, step.n_nodes);
        seen.operands = std::span(operands).subspan(step.first_operand, step.n_operands);
    }
    view.id = plan.header.id;
    view.hash = plan.header.hash;
    view.n_tokens = plan.header.n_tokens;
    view.architecture = trace.text(plan.header.architecture);
    view.nodes = nodes;
    view.steps = steps;
    view.values = values;
    if (!values.empty() && values.back().tensor_class == TensorClass::scratch)
        view.values = std::span<const TensorInfo>(values).first(values.size() - 1);
}

/// What attention computes: every query meets every KV slot that it sees, in each of its heads.
std::uint64_t macs_of_attention(std::span<const Access> accesses) {
    std::uint64_t n_queries_times_dims = 0, per_key = 0, per_value = 0;
    for (const Access& access : accesses) {
        if (access.slot == 1) per_key = static_cast<std::uint64_t>(access.tensor->ne[0] * access.tensor->ne[1]);
        if (access.slot == 0) per_value = static_cast<std::uint64_t>(access.tensor->ne[0]);
    }
    for (const Access& access : accesses) {
        if ((access.slot != 2 && access.slot != 3) || access.tensor->row_bytes == 0) continue;
        for (const AccessRange& range : access.ranges)
            n_queries_times_dims += range.length / access.tensor->row_bytes * range.count * range.weight *
                                    (access.slot == 2 ? per_key : per_value);
    }
    return n_queries_times_dims;
}

/// Shows the runs of a trace one after another.
class Replay {
public:
    Replay(const TraceReader::Impl& trace, Observer& observer) : trace_(trace), observer_(observer), numbers_(trace) {}
    void operator()();

private:
    const ReplayedPlan* plan_of(const RecordedRun& run);
    void show_marks_until(std::uint64_t time);
    void show_run(const RecordedRun& run);
    void show_events(const RecordedEvents& events, const ReplayedPlan& plan, const RunInfo& info, std::uint64_t end);
    void add_event(const RecordedEvents& events, std::size_t i, const ReplayedPlan& plan, std::uint64_t end);
    void add_accesses(const RecordedEvents& events, std::size_t i, const ReplayedPlan& plan, const StepView& step);

    const TraceReader::Impl& trace_;
    Observer& observer_;
    EnumNumbers numbers_;
    std::unordered_map<std::uint32_t, std::unique_ptr<ReplayedPlan>> plans_;
    SessionSummary summary_;
    std::size_t next_mark_ = 0, next_sample_ = 0;
    // of the events that are shown together
    std::vector<KernelEvent> events_;
    struct Places {
        std::size_t access = 0, n_accesses = 0, span = 0, n_spans = 0;
    };
    std::vector<Places> event_places_;
    std::vector<Access> accesses_;
    std::vector<std::pair<std::size_t, std::size_t>> access_places_;  // first range and their number, {accesses}
    std::vector<AccessRange> ranges_;
    std::vector<ThreadSpan> spans_;
};

const ReplayedPlan* Replay::plan_of(const RecordedRun& run) {
    if (!run.found) return nullptr;
    const auto place = trace_.plan_places.find(run.record.plan);
    if (place == trace_.plan_places.end()) return nullptr;
    auto& plan = plans_[run.record.plan];
    if (plan == nullptr) {
        plan = std::make_unique<ReplayedPlan>(trace_, trace_.plans[place->second], numbers_);
        observer_.on_plan(plan->view);
    }
    return plan.get();
}

void Replay::show_marks_until(std::uint64_t time) {
    for (; next_mark_ < trace_.marks.size() && trace_.marks[next_mark_].time <= time; ++next_mark_)
        observer_.on_mark(trace_.marks[next_mark_].time, trace_.text(trace_.marks[next_mark_].text));
}

// The operands that the plan knows, in its order, then those that the event decided, each with its ranges.
void Replay::add_accesses(const RecordedEvents& events, std::size_t i, const ReplayedPlan& plan, const StepView& step) {
    const auto add = [&](const Access& access) {
        accesses_.push_back(access);
        access_places_.emplace_back(0, 0);
    };
    const trace_format::Operand* operands =
        plan.recorded.operands.data() + plan.recorded.steps[step.number].first_operand;
    for (std::size_t o = 0; o < step.operands.size(); ++o)
        if (operands[o].kind != trace_format::OperandKind::dynamic) add(step.operands[o]);
    for (std::size_t o = 0; o < step.operands.size(); ++o) {
        if (operands[o].kind != trace_format::OperandKind::dynamic) continue;
        add(step.operands[o]);
        Access& access = accesses_.back();
        const std::size_t first = ranges_.size();
        for (const trace_format::Range& range : events.ranges_of(i))
            if (range.operand == o)
                ranges_.push_back({range.offset, range.length, range.stride, range.count, range.tag, range.weight,
                                   (range.flags & trace_format::padding) != 0});
        const std::size_t n = ranges_.size() - first;
        if (n == 1 && ranges_.back().tag == 0 && ranges_.back().weight == 0 && ranges_.back().offset == 0 &&
            ranges_.back().length == access.tensor->bytes) {
            access.kind = AccessKind::whole;
            ranges_.pop_back();
        } else {
            access_places_.back() = {first, n};
        }
    }
}

void Replay::add_event(const RecordedEvents& events, std::size_t i, const ReplayedPlan& plan, std::uint64_t end) {
    const trace_format::Event& record = events.events[i];
    const StepView& step = plan.steps[record.step];
    KernelEvent& event = events_.emplace_back();
    Places& places = event_places_.emplace_back();
    event.index = events.index(i);
    event.step = &step;
    event.begin = record.begin;
    event.end = record.begin + record.duration;
    if ((record.flags & trace_format::saturated) != 0)
        event.end = i + 1 < events.events.size() ? events.events[i + 1].begin : std::max(end, event.end);
    event.status = static_cast<EventStatus>(std::min<std::uint8_t>(record.status, 2));
    places.access = accesses_.size();
    add_accesses(events, i, plan, step);
    places.n_accesses = accesses_.size() - places.access;
    places.span = spans_.size();
    places.n_spans = events.n_threads;
    for (std::uint32_t t = 0; t < events.n_threads; ++t) {
        const trace_format::Span& span = events.spans[i * events.n_threads + t];
        spans_.push_back({span.begin, span.busy, span.work_items, span.cpu});
    }
}

void Replay::show_events(const RecordedEvents& events, const ReplayedPlan& plan, const RunInfo& info,
                         std::uint64_t end) {
    for (std::size_t i = 0; i < events.events.size();) {
        events_.clear(), event_places_.clear(), accesses_.clear(), access_places_.clear(), ranges_.clear(),
            spans_.clear();
        for (const std::size_t first = i;
             i < events.events.size() && i < first + kEventsAtOnce && ranges_.size() < kRangesAtOnce; ++i)
            if (events.events[i].step < plan.steps.size()) add_event(events, i, plan, end);
        for (std::size_t a = 0; a < accesses_.size(); ++a)
            if (access_places_[a].second > 0)
                accesses_[a].ranges = std::span(ranges_).subspan(access_places_[a].first, access_places_[a].second);
        for (std::size_t e = 0; e < events_.size(); ++e) {
            KernelEvent& event = events_[e];
            event.run = &info;
            event.accesses = std::span(accesses_).subspan(event_places_[e].access, event_places_[e].n_accesses);
            event.threads = std::span(spans_).subspan(event_places_[e].span, event_places_[e].n_spans);
            event.macs = event.step->macs != kDynamicMacs ? event.step->macs : macs_of_attention(event.accesses);
            for (const Access& access : event.accesses) {
                if (access.scratch) continue;
                if (access.mode != AccessMode::write) event.bytes_read += access.bytes();
                if (access.mode != AccessMode::read) event.bytes_written += access.bytes();
            }
        }
        summary_.events += events_.size();
        observer_.on_events(events_);
    }
}

void Replay::show_run(const RecordedRun& run) {
    const ReplayedPlan* plan = plan_of(run);
    if (plan == nullptr) return;
    const trace_format::Run& record = run.record;
    show_marks_until(record.begin);
    std::vector<TokenView> tokens;
    for (const trace_format::RunToken& token : run.tokens)
        tokens.push_back({Token{token.id}, Pos{token.position}, SeqId{static_cast<std::int32_t>(token.sequence)},
                          (token.flags & trace_format::output) != 0,
                          (token.flags & trace_format::several_sequences) != 0});
    RunInfo info;
    info.run = record.run;
    info.decode = record.decode;
    info.micro_batch = record.micro_batch;
    info.phase = by_number(numbers_.phases, record.phase, Phase::decode);
    info.plan = &plan->view;
    info.n_threads = record.n_threads;
    info.begin = record.begin;
    info.slots_used = record.slots_used;
    info.slots_total = record.slot_extent;
    info.tokens = tokens;
    observer_.on_run_begin(info);
    RunResult result;
    result.run = &info;
    result.status = EventStatus::failed;
    result.rolled_back = true;
    result.end = record.begin;
    for (const RecordedEvents& events : run.events) {
        result.events += static_cast<std::uint32_t>(events.events.size());
        for (const trace_format::Event& event : events.events)
            result.end = std::max(result.end, event.begin + event.duration);
    }
    if (run.end) {
        result.end = run.end->end;
        result.events = run.end->n_events;
        result.status = static_cast<EventStatus>(std::min<std::uint32_t>(run.end->status, 2));
        result.rolled_back = (run.end->flags & trace_format::rolled_back) != 0;
        result.expected_weight_bytes = run.end->expected_weight_bytes;
        result.observed_weight_bytes = run.end->observed_weight_bytes;
    }
    for (const RecordedEvents& events : run.events) show_events(events, *plan, info, result.end);
    std::vector<ReadEvent> reads;
    for (const trace_format::Read& read : trace_.reads)
        if (read.run == record.run)
            reads.push_back({read.run, read.time, read.file_offset, read.bytes, read.waited, read.layer, read.unit,
                             read.file, (read.flags & trace_format::read_ahead) != 0});
    if (!reads.empty()) observer_.on_reads(reads);
    observer_.on_run_end(result);
    ++summary_.runs;
}

void Replay::operator()() {
    SessionInfo session;
    session.library_version = trace_.session_value("library");
    if (session.library_version.starts_with("tinfer ")) session.library_version.remove_prefix(7);
    session.isa = trace_.session_value("isa");
    session.architecture = trace_.session_value("architecture");
    session.wall_clock_ns = trace_.header.wall_clock;
    session.steady_clock_ns = trace_.header.steady_clock;
    const std::string_view threads = trace_.session_value("threads");
    std::from_chars(threads.data(), threads.data() + threads.size(), session.n_threads);
    session.weights = std::span(trace_.infos).first(trace_.n_weights);
    session.caches = std::span(trace_.infos).subspan(trace_.n_weights);
    observer_.on_session(session);
    for (const RecordedRun& run : trace_.runs) {
        show_run(run);
        for (; next_sample_ < trace_.samples.size() && trace_.samples[next_sample_].run <= run.record.run;
             ++next_sample_) {
            const trace_format::Sample& sample = trace_.samples[next_sample_];
            show_marks_until(sample.time);
            observer_.on_sample({sample.run, sample.time, sample.duration, static_cast<int>(sample.output_index),
                                 Token{sample.token}, sample.p, sample.candidates_left, sample.run});
        }
    }
    show_marks_until(~std::uint64_t{0});
    summary_.filtered = trace_.header.n_filtered;
    observer_.on_detach(summary_);
}

}  // namespace

const TensorInfo* TraceReader::Impl::info(std::uint32_t id) const noexcept {
    const auto found = std::ranges::lower_bound(tensor_places, id, {}, &std::pair<std::uint32_t, std::uint32_t>::first);
    return found != tensor_places.end() && found->first == id ? &infos[found->second] : nullptr;
}

// What the end of the scan makes known: texts by number, and the registry with its weights first.
void TraceReader::Impl::resolve() {
    const auto same_id = [](const Text& a, const Text& b) { return a.id == b.id; };
    for (auto* const list : {&texts, &pieces}) {
        std::ranges::stable_sort(*list, {}, &Text::id);
        list->erase(std::unique(list->begin(), list->end(), same_id), list->end());
    }
    for (const auto& [key, value] : session_ids) session.emplace_back(text(key), text(value));
    std::vector<std::string_view> roles;
    for (const auto& [key, value] : session) {
        std::uint16_t number = 0;
        const char* end = key.data() + key.size();
        if (!key.starts_with("role.") || std::from_chars(key.data() + 5, end, number).ptr != end) continue;
        if (number >= roles.size()) roles.resize(number + std::size_t{1});
        roles[number] = value;
    }
    std::stable_partition(tensors.begin(), tensors.end(),
                          [](const trace_format::Tensor& tensor) { return tensor.tensor_class == 0; });
    for (std::uint32_t i = 0; i < tensors.size(); ++i) {
        const trace_format::Tensor& tensor = tensors[i];
        tensor_places.emplace_back(tensor.id, i);
        TensorInfo& info = infos.emplace_back();
        info.id = tensor.id;
        info.name = text(tensor.name);
        info.tensor_class = static_cast<TensorClass>(
            std::min<std::uint8_t>(tensor.tensor_class, static_cast<std::uint8_t>(TensorClass::scratch)));
        info.type = static_cast<DType>(tensor.type);
        info.layer = layer_of(tensor.layer);
        if (tensor.role < roles.size()) info.role = roles[tensor.role];
        info.n_dims = std::clamp<int>(tensor.n_dims, 1, 4);
        for (std::size_t d = 0; d < 4; ++d) info.ne[d] = static_cast<std::int64_t>(tensor.ne[d]);
        info.bytes = tensor.bytes;
        info.row_bytes = tensor.row_bytes;
        info.slice_bytes = tensor.slice_bytes;
        info.file_index = tensor.file_index == trace_format::kNoFile ? -1 : tensor.file_index;
        info.file_offset = tensor.file_offset;
        if (tensor.file_offset != kNoOffset && tensor.file_index < files.size() &&
            files[tensor.file_index].data_start <= tensor.file_offset)
            info.data_offset = tensor.file_offset - files[tensor.file_index].data_start;
        if (tensor.tensor_class == 0) ++n_weights;
    }
    std::ranges::stable_sort(tensor_places, {}, &std::pair<std::uint32_t, std::uint32_t>::first);
    std::ranges::stable_sort(runs, {}, [](const RecordedRun& run) { return run.record.run; });
    for (std::size_t i = 0; i < runs.size(); ++i) run_places[runs[i].record.run] = i;
}

void TraceReader::replay(Observer& observer) const { Replay(*impl_, observer)(); }

}  // namespace tinfer
