// SPDX-License-Identifier: MIT
#include "recorder.hpp"

#include <algorithm>

namespace tinfer_python {

namespace {

/// * and ? as in the filters of the library.
bool matches(std::string_view glob, std::string_view text) {
    std::size_t g = 0, t = 0, star = std::string_view::npos, mark = 0;
    while (t < text.size()) {
        if (g < glob.size() && (glob[g] == '?' || glob[g] == text[t]) && glob[g] != '*') ++g, ++t;
        else if (g < glob.size() && glob[g] == '*') star = g++, mark = t;
        else if (star != std::string_view::npos) g = star + 1, t = ++mark;
        else return false;
    }
    while (g < glob.size() && glob[g] == '*') ++g;
    return g == glob.size();
}

/// Ids of weights and caches are those of the session, the others belong to a plan.
bool is_of_session(tinfer::TensorClass tensor_class) {
    using enum tinfer::TensorClass;
    return tensor_class == weight || tensor_class == cache_k || tensor_class == cache_v || tensor_class == recurrent ||
           tensor_class == adapter;
}

}  // namespace

std::uint32_t Names::number(std::string_view text) {
    if (const auto found = numbers_.find(text); found != numbers_.end()) return found->second;
    const auto number = static_cast<std::uint32_t>(all_.size());
    all_.emplace_back(text);
    numbers_.emplace(text, number);
    return number;
}

template <class Call>
void Recorder::call(Call&& call) {
    if (self_ == nullptr) return;
    nb::gil_scoped_acquire acquired;
    try {
        call(nb::handle(self_));
    } catch (...) {
        const auto error = std::current_exception();
        if (interrupt_) interrupt_->keep(error);
        throw tinfer::Error(tinfer::ErrorCode::compute_failed, "an observer in Python raised an exception");
    }
}

tinfer::TraceRequest Recorder::request() const {
    auto request = options;
    if (!values.empty()) {
        request.delivery = tinfer::Delivery::immediate;
        if (request.filter.tensors.empty()) request.filter.tensors = values;
    }
    return request;
}

std::uint32_t Recorder::tensor_number(const tinfer::TensorInfo& tensor, std::uint32_t plan) {
    const std::uint32_t owner = is_of_session(tensor.tensor_class) ? 0 : plan;
    const std::uint64_t key =
        std::uint64_t{owner} << 36 | std::uint64_t{static_cast<std::uint8_t>(tensor.tensor_class)} << 32 | tensor.id;
    const auto [place, is_new] = tensor_numbers_.try_emplace(key, static_cast<std::uint32_t>(records_.tensors.size()));
    if (is_new) {
        TensorRecord record{.name = names_.number(tensor.name),
                            .role = names_.number(tensor.role),
                            .type = names_.number(to_string(tensor.type)),
                            .plan = owner,
                            .ne = {tensor.ne[0], tensor.ne[1], tensor.ne[2], tensor.ne[3]},
                            .bytes = tensor.bytes,
                            .row_bytes = tensor.row_bytes,
                            .file_offset = tensor.file_offset,
                            .layer = static_cast<std::int16_t>(tensor.layer),
                            .tensor_class = static_cast<std::uint8_t>(tensor.tensor_class),
                            .n_dims = static_cast<std::uint8_t>(tensor.n_dims),
                            .reserved = {}};
        records_.tensors.push_back(record);
    }
    return place->second;
}

void Recorder::on_session(const tinfer::SessionInfo& session) {
    const std::lock_guard lock(mutex_);
    kernels_.clear();
    for (const auto& tensor : session.weights) tensor_number(tensor, 0);
    for (const auto& tensor : session.caches) tensor_number(tensor, 0);
}

void Recorder::on_plan(const tinfer::PlanView& plan) {
    const std::lock_guard lock(mutex_);
    kernels_.clear();
    for (const auto& step : plan.steps)
        records_.steps.push_back({.macs = step.macs,
                                  .plan = plan.id,
                                  .step = step.number,
                                  .kernel = names_.number(step.kernel),
                                  .n_nodes = static_cast<std::uint32_t>(step.nodes.size()),
                                  .op = static_cast<std::uint16_t>(step.op),
                                  .layer = static_cast<std::int16_t>(step.layer),
                                  .part = static_cast<std::uint8_t>(step.part),
                                  .fused = step.fused,
                                  .reserved = {}});
}

void Recorder::on_run_begin(const tinfer::RunInfo& run) {
    const std::lock_guard lock(mutex_);
    run_events_ = records_.events.size();
    run_accesses_ = records_.accesses.size();
    run_ranges_ = records_.ranges.size();
    records_.runs.push_back({.run = run.run,
                             .decode = run.decode,
                             .begin = run.begin,
                             .end = run.begin,
                             .expected_weight_bytes = 0,
                             .observed_weight_bytes = 0,
                             .plan = run.plan != nullptr ? run.plan->id : 0,
                             .micro_batch = run.micro_batch,
                             .n_tokens = static_cast<std::uint32_t>(run.tokens.size()),
                             .n_threads = static_cast<std::uint32_t>(run.n_threads),
                             .n_events = 0,
                             .slots_used = run.slots_used,
                             .phase = static_cast<std::uint8_t>(run.phase),
                             .status = 0,
                             .rolled_back = 0,
                             .reserved = {}});
}

std::uint32_t Recorder::kernel_number(const tinfer::StepView& step, const tinfer::PlanView* plan) {
    const std::pair key{plan, plan != nullptr ? plan->id : 0};
    if (key != kernels_plan_) {
        kernels_.clear();
        kernels_plan_ = key;
    }
    if (step.number >= kernels_.size()) kernels_.resize(std::size_t{step.number} + 1, kUnknown);
    auto& number = kernels_[step.number];
    if (number == kUnknown) number = names_.number(step.kernel);
    return number;
}

void Recorder::add(const tinfer::KernelEvent& event) {
    const auto& step = *event.step;
    const std::uint32_t plan = event.run->plan != nullptr ? event.run->plan->id : 0;
    records_.events.push_back({.index = event.index,
                               .run = event.run->run,
                               .begin = event.begin,
                               .end = event.end,
                               .bytes_read = event.bytes_read,
                               .bytes_written = event.bytes_written,
                               .macs = event.macs,
                               .first_access = records_.accesses.size(),
                               .n_accesses = static_cast<std::uint32_t>(event.accesses.size()),
                               .plan = plan,
                               .step = step.number,
                               .kernel = kernel_number(step, event.run->plan),
                               .op = static_cast<std::uint16_t>(step.op),
                               .layer = static_cast<std::int16_t>(step.layer),
                               .part = static_cast<std::uint8_t>(step.part),
                               .phase = static_cast<std::uint8_t>(event.run->phase),
                               .status = static_cast<std::uint8_t>(event.status),
                               .fused = step.fused});
    for (const auto& access : event.accesses) {
        records_.accesses.push_back({.event = event.index,
                                     .bytes = access.bytes(),
                                     .first_range = records_.ranges.size(),
                                     .tensor = tensor_number(*access.tensor, plan),
                                     .n_ranges = static_cast<std::uint32_t>(access.ranges.size()),
                                     .slot = access.slot,
                                     .passes = access.passes,
                                     .mode = static_cast<std::uint8_t>(access.mode),
                                     .kind = static_cast<std::uint8_t>(access.kind),
                                     .scratch = access.scratch,
                                     .tensor_class = static_cast<std::uint8_t>(access.tensor->tensor_class)});
        for (const auto& range : access.ranges)
            records_.ranges.push_back({.offset = range.offset,
                                       .length = range.length,
                                       .stride = range.stride,
                                       .count = range.count,
                                       .tag = range.tag,
                                       .weight = range.weight,
                                       .padding = range.padding});
    }
}

void Recorder::on_events(std::span<const tinfer::KernelEvent> events) {
    const std::lock_guard lock(mutex_);
    for (const auto& event : events) add(event);
}

void Recorder::on_step_end(const tinfer::KernelEvent& event, const tinfer::StepValues& step_values) {
    {
        const std::lock_guard lock(mutex_);
        add(event);
    }
    const auto value = step_values.value(0);
    if (value.tensor == nullptr || value.missing != tinfer::StepValues::Missing::no) return;
    const auto& tensor = *value.tensor;
    const bool is_wanted =
        std::any_of(values.begin(), values.end(), [&](const std::string& glob) { return matches(glob, tensor.name); });
    if (!is_wanted || tensor.type != tinfer::DType::f32) return;
    call([&](nb::handle object) {
        std::vector<std::size_t> shape;
        for (int i = tensor.n_dims; i-- > 0;)
            shape.push_back(static_cast<std::size_t>(tensor.ne[static_cast<std::size_t>(i)]));
        // A copy: the memory is used again by the next steps.
        const nb::ndarray<nb::numpy, const float> array(reinterpret_cast<const float*>(value.data.data()), shape.size(),
                                                        shape.data(), nb::handle());
        object.attr("_on_value")(text_of(tensor.name), event.run->run, tensor.layer,
                                 nb::cast(array, nb::rv_policy::copy));
    });
}

void Recorder::on_run_end(const tinfer::RunResult& result) {
    std::vector<RunRecord> runs;
    std::vector<EventRecord> events;
    std::vector<AccessRecord> accesses;
    std::vector<RangeRecord> ranges;
    {
        const std::lock_guard lock(mutex_);
        if (records_.runs.empty()) return;
        auto& run = records_.runs.back();
        run.end = result.end;
        run.n_events = static_cast<std::uint32_t>(records_.events.size() - run_events_);
        run.status = static_cast<std::uint8_t>(result.status);
        run.rolled_back = result.rolled_back;
        run.expected_weight_bytes = result.expected_weight_bytes;
        run.observed_weight_bytes = result.observed_weight_bytes;
        if (keep) return;
        runs.swap(records_.runs);
        events.swap(records_.events);
        accesses.swap(records_.accesses);
        ranges.swap(records_.ranges);
        run_events_ = run_accesses_ = run_ranges_ = 0;
    }
    call([&](nb::handle object) {
        object.attr("_on_run")(bytes_of(runs), bytes_of(events), bytes_of(accesses), bytes_of(ranges));
    });
    // Their memory serves the next run: fresh pages for each would cost as much as writing the records.
    events.clear();
    accesses.clear();
    ranges.clear();
    const std::lock_guard lock(mutex_);
    if (!records_.events.empty() || !records_.accesses.empty() || !records_.ranges.empty()) return;
    records_.events.swap(events);
    records_.accesses.swap(accesses);
    records_.ranges.swap(ranges);
}

void Recorder::on_sample(const tinfer::SampleEvent& event) {
    const std::lock_guard lock(mutex_);
    records_.samples.push_back({.run = event.run,
                                .time = event.time,
                                .duration = event.duration,
                                .output_index = event.output_index,
                                .token = static_cast<std::int32_t>(event.token),
                                .p = event.p,
                                .candidates_left = event.candidates_left});
}

void Recorder::on_mark(std::uint64_t time, std::string_view text) {
    const std::lock_guard lock(mutex_);
    records_.marks.emplace_back(time, text);
}

void Recorder::forget() {
    const std::lock_guard lock(mutex_);
    records_.events.clear();
    records_.accesses.clear();
    records_.ranges.clear();
    records_.runs.clear();
    records_.samples.clear();
    records_.marks.clear();
    run_events_ = run_accesses_ = run_ranges_ = 0;
}

}  // namespace tinfer_python
