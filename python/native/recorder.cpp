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

std::uint64_t key_of(const tinfer::TensorInfo& tensor, std::uint32_t plan) {
    const std::uint32_t owner = is_of_session(tensor.tensor_class) ? 0 : plan;
    return std::uint64_t{owner} << 36 | std::uint64_t{static_cast<std::uint8_t>(tensor.tensor_class)} << 32 | tensor.id;
}

/// The records as Python reads them. Their memory goes to `spares` with what has read them last.
template <class T>
Rows rows_of(std::vector<T> records, const std::shared_ptr<Spares<T>>& spares) {
    const std::shared_ptr<std::vector<T>> owner(new std::vector<T>, [spares](std::vector<T>* read) {
        spares->give(std::move(*read));
        delete read;
    });
    *owner = std::move(records);
    return {owner, owner->data(), owner->size() * sizeof(T)};
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
    const auto [place, is_new] =
        tensor_numbers_.try_emplace(key_of(tensor, plan), static_cast<std::uint32_t>(records_.tensors.size()));
    if (is_new) {
        TensorRecord record{.name = names_.number(tensor.name),
                            .role = names_.number(tensor.role),
                            .type = names_.number(to_string(tensor.type)),
                            .plan = is_of_session(tensor.tensor_class) ? 0 : plan,
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
    forget_known();
    for (const auto& tensor : session.weights) tensor_number(tensor, 0);
    for (const auto& tensor : session.caches) tensor_number(tensor, 0);
}

void Recorder::on_plan(const tinfer::PlanView& plan) {
    const std::lock_guard lock(mutex_);
    forget_known();
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
    next_event_ = 0;
    const std::pair plan{run.plan, run.plan != nullptr ? run.plan->id : 0};
    if (plan != known_plan_) forget_known();
    known_plan_ = plan;
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

void Recorder::forget_known() {
    known_.clear();
    known_accesses_.clear();
    known_tensors_.clear();
    next_event_ = 0;
}

AccessRecord Recorder::record_of(const tinfer::Access& access, std::uint32_t plan) {
    return {.event = 0,
            .bytes = access.bytes(),
            .first_range = 0,
            .tensor = tensor_number(*access.tensor, plan),
            .n_ranges = static_cast<std::uint32_t>(access.ranges.size()),
            .slot = access.slot,
            .passes = access.passes,
            .mode = static_cast<std::uint8_t>(access.mode),
            .kind = static_cast<std::uint8_t>(access.kind),
            .scratch = access.scratch,
            .tensor_class = static_cast<std::uint8_t>(access.tensor->tensor_class)};
}

const Recorder::Known& Recorder::next_known(const tinfer::KernelEvent& event) {
    const std::size_t i = next_event_++;
    if (i < known_.size() && known_[i].step == event.step) return known_[i];
    if (i < known_.size()) {  // what follows has moved, too
        known_accesses_.resize(known_[i].first);
        known_tensors_.resize(known_[i].first);
        known_.resize(i);
    }
    const auto& step = *event.step;
    Known known{.step = &step, .first = known_accesses_.size()};
    known.record.plan = event.run->plan != nullptr ? event.run->plan->id : 0;
    known.record.step = step.number;
    known.record.kernel = names_.number(step.kernel);
    known.record.op = static_cast<std::uint16_t>(step.op);
    known.record.layer = static_cast<std::int16_t>(step.layer);
    known.record.part = static_cast<std::uint8_t>(step.part);
    known.record.fused = step.fused;
    if (accesses) {
        const bool is_step = event.accesses.data() == step.operands.data() && !step.operands.empty();
        if (is_step && event.accesses.size() == step.operands.size()) known.accesses = step.operands.data();
        known.n = event.accesses.size();
        for (const auto& access : event.accesses) {
            known_accesses_.push_back(record_of(access, known.record.plan));
            known_tensors_.push_back(access.tensor);
        }
    }
    return known_.emplace_back(known);
}

void Recorder::add(const tinfer::KernelEvent& event) {
    const Known& known = next_known(event);
    auto& record = records_.events.emplace_back(known.record);
    record.index = event.index;
    record.run = event.run->run;
    record.begin = event.begin;
    record.end = event.end;
    record.bytes_read = event.bytes_read;
    record.bytes_written = event.bytes_written;
    record.macs = event.macs;
    record.first_access = records_.accesses.size();
    record.n_accesses = accesses ? static_cast<std::uint32_t>(event.accesses.size()) : 0;
    record.phase = static_cast<std::uint8_t>(event.run->phase);
    record.status = static_cast<std::uint8_t>(event.status);
    if (!accesses) return;
    add_accesses(event, known);
    if (keep) add_ranges(event, record.first_access);
}

void Recorder::add_accesses(const tinfer::KernelEvent& event, const Known& known) {
    auto& all = records_.accesses;
    const std::size_t begin = all.size();
    const auto first = known_accesses_.begin() + static_cast<std::ptrdiff_t>(known.first);
    if (known.accesses != nullptr && known.accesses == event.accesses.data()) {
        all.insert(all.end(), first, first + static_cast<std::ptrdiff_t>(known.n));
    } else {
        // Nearly always the tensors of the run before. Looking them up again would miss the caches, which hold weights
        // by then.
        for (std::size_t i = 0; i < event.accesses.size(); ++i) {
            const auto& access = event.accesses[i];
            if (i >= known.n || known_tensors_[known.first + i] != access.tensor) {
                all.push_back(record_of(access, known.record.plan));
                continue;
            }
            auto& record = all.emplace_back(known_accesses_[known.first + i]);
            record.bytes = access.bytes();
            record.n_ranges = static_cast<std::uint32_t>(access.ranges.size());
            record.slot = access.slot;
            record.passes = access.passes;
            record.mode = static_cast<std::uint8_t>(access.mode);
            record.kind = static_cast<std::uint8_t>(access.kind);
            record.scratch = access.scratch;
        }
    }
    for (std::size_t i = begin; i < all.size(); ++i) all[i].event = event.index;
}

void Recorder::add_ranges(const tinfer::KernelEvent& event, std::size_t first_access) {
    for (std::size_t i = 0; i < event.accesses.size(); ++i) {
        records_.accesses[first_access + i].first_range = records_.ranges.size();
        for (const auto& range : event.accesses[i].ranges)
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

Recorder::Handed Recorder::take_runs() {
    Handed handed{{}, spare_events_->take(), spare_accesses_->take()};
    n_waiting_ = 0;
    if (!keep) {
        handed.runs.swap(records_.runs);
        handed.events.swap(records_.events);
        handed.accesses.swap(records_.accesses);
        return handed;
    }
    const auto copy = [](const auto& from, std::size_t& had, auto& to) {
        to.assign(from.begin() + static_cast<std::ptrdiff_t>(had), from.end());
        had = from.size();
    };
    const std::size_t first_access = had_accesses_;
    copy(records_.runs, had_runs_, handed.runs);
    copy(records_.events, had_events_, handed.events);
    copy(records_.accesses, had_accesses_, handed.accesses);
    for (auto& event : handed.events) event.first_access -= first_access;
    return handed;
}

void Recorder::hand_over(nb::handle object, Handed handed) {
    const auto event_rows = rows_of(std::move(handed.events), spare_events_);
    const auto access_rows = rows_of(std::move(handed.accesses), spare_accesses_);
    object.attr("_on_runs")(bytes_of(handed.runs), nb::cast(event_rows), nb::cast(access_rows));
}

void Recorder::on_run_end(const tinfer::RunResult& result) {
    Handed handed;
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
        if (!calls && !keep) {
            records_.runs.clear();
            records_.events.clear();
            records_.accesses.clear();
        }
        if (!calls || ++n_waiting_ < runs_per_call) return;
        handed = take_runs();
    }
    call([&](nb::handle object) { hand_over(object, std::move(handed)); });
}

void Recorder::flush() {
    if (self_ == nullptr) return;
    Handed handed;
    {
        const std::lock_guard lock(mutex_);
        if (n_waiting_ == 0) return;
        handed = take_runs();
    }
    hand_over(nb::handle(self_), std::move(handed));
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
    run_events_ = had_runs_ = had_events_ = had_accesses_ = n_waiting_ = 0;
}

}  // namespace tinfer_python
