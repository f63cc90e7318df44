// SPDX-License-Identifier: MIT
#include "trace/trace_support.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "support/temp_folder.hpp"

namespace tinfer::test {

Model load_tiny(const TinyModel& tiny) {
    const TempFolder folder;
    return Model::load(tiny.save(folder.path()));
}

ContextOptions exercise_options() {
    return {.n_ctx = 192, .n_seq_max = 3, .n_ubatch = 16, .n_outputs = 8, .n_threads = 2, .allow_position_gaps = true};
}

void exercise(Context& context) {
    const auto tokens = random_tokens(64, context.model().info().n_vocab, 7);
    std::size_t next = 37;
    const auto take = [&] { return tokens[next++]; };
    const auto add = [&](Batch& batch, std::initializer_list<int> seqs, bool output) {
        std::vector<SeqId> ids;
        for (const int seq : seqs) ids.push_back(SeqId{seq});
        batch.add(take(), {}, ids, output);
    };
    REQUIRE(context.decode(std::span(tokens).first(37)) == DecodeStatus::ok);  // 16 + 16 + 5
    for (int i = 0; i < 2; ++i) REQUIRE(context.decode(std::array{take()}) == DecodeStatus::ok);
    context.seq_cp(SeqId{0}, SeqId{1});
    Batch batch;
    add(batch, {0}, true);
    add(batch, {1}, true);  // one of them copies the page first
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    batch.clear();
    for (int i = 0; i < 3; ++i) add(batch, {2}, false);  // prefill beside a decode, no outputs
    add(batch, {0}, false);
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    REQUIRE(context.seq_rm(SeqId{0}, Pos{10}, Pos{20}) == RemoveStatus::ok);
    REQUIRE(context.decode(std::array{take()}) == DecodeStatus::ok);
    REQUIRE(context.seq_rm(SeqId{1}) == RemoveStatus::ok);
    REQUIRE(context.seq_rm(SeqId{2}) == RemoveStatus::ok);
    batch.clear();
    for (int i = 0; i < 3; ++i) add(batch, {1, 2}, i == 2);  // one slot for two sequences
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
}

std::string differences_of(const CoverageCheck& check) {
    std::string out;
    for (std::size_t i = 0; i < std::min<std::size_t>(check.differences().size(), 5); ++i)
        out += check.differences()[i] + "\n";
    return out;
}

const SeenAccess* SeenEvent::slot(std::uint16_t number) const {
    for (const SeenAccess& access : accesses)
        if (access.slot == number) return &access;
    return nullptr;
}

std::string SeenEvent::signature() const {
    std::string out = kernel;
    for (const std::string& node : nodes) out += " " + node;
    for (const SeenAccess& access : accesses)
        out += cat(' ', access.slot, ':', access.name, ':', static_cast<int>(access.mode));
    return out;
}

void Recorder::keep(const KernelEvent& event) {
    SeenEvent seen;
    seen.index = event.index, seen.run = event.run->run, seen.begin = event.begin, seen.end = event.end,
    seen.macs = event.macs;
    seen.bytes_read = event.bytes_read, seen.bytes_written = event.bytes_written, seen.status = event.status;
    seen.step = event.step->number, seen.op = event.step->op, seen.kernel = event.step->kernel,
    seen.layer = event.step->layer;
    seen.part = event.step->part, seen.fused = event.step->fused, seen.phase = event.run->phase;
    for (const NodeView* node : event.step->nodes) seen.nodes.emplace_back(node->name);
    seen.threads.assign(event.threads.begin(), event.threads.end());
    for (const Access& a : event.accesses)
        seen.accesses.push_back({*a.tensor,
                                 a.tensor,
                                 std::string(a.tensor->name),
                                 a.slot,
                                 a.mode,
                                 a.kind,
                                 a.scratch,
                                 {a.ranges.begin(), a.ranges.end()},
                                 a.bytes(),
                                 a.passes});
    events.push_back(std::move(seen));
}

void Recorder::on_session(const SessionInfo& info) { calls += 's', session = info; }

void Recorder::on_plan(const PlanView& view) {
    calls += 'p';
    SeenPlan seen{view.id, view.n_tokens, view.hash, std::string(view.architecture), {}, {}};
    for (const NodeView& node : view.nodes)
        seen.nodes.push_back({std::string(node.name),
                              node.op,
                              node.layer,
                              node.step,
                              node.output,
                              node.output->tensor_class,
                              {node.inputs.begin(), node.inputs.end()}});
    for (const StepView& step : view.steps) seen.kernels.emplace_back(step.kernel);
    plans.push_back(std::move(seen));
}

void Recorder::on_run_begin(const RunInfo& run) {
    calls += 'b';
    SeenRun seen;
    seen.info = run;
    seen.plan_id = run.plan->id;
    seen.tokens.assign(run.tokens.begin(), run.tokens.end());
    for (const InputView& input : run.inputs)
        seen.inputs.emplace_back(input.tensor->name, std::vector(input.data.begin(), input.data.end()));
    runs.push_back(std::move(seen));
}

void Recorder::on_step_begin(const StepView&) { calls += '{'; }

void Recorder::on_step_end(const KernelEvent& event, const StepValues&) {
    calls += '}';
    keep(event);
}

void Recorder::on_events(std::span<const KernelEvent> list) {
    calls += 'v';
    for (const KernelEvent& event : list) keep(event);
}

void Recorder::on_run_end(const RunResult& result) {
    calls += 'e';
    runs.back().result = result;
    runs.back().ended = true;
}

void Recorder::on_sample(const SampleEvent& event) { calls += 'a', samples.push_back(event); }
void Recorder::on_mark(std::uint64_t time, std::string_view text) { calls += 'm', marks.emplace_back(time, text); }
void Recorder::on_detach(const SessionSummary& s) noexcept { calls += 'd', summary = s; }

std::vector<SeenEvent> Recorder::of_run(std::uint64_t run) const {
    std::vector<SeenEvent> out;
    for (const SeenEvent& event : events)
        if (event.run == run) out.push_back(event);
    return out;
}

const SeenPlan& Recorder::plan(std::uint32_t id) const {
    for (const SeenPlan& seen : plans)
        if (seen.id == id) return seen;
    throw std::runtime_error("no such plan");
}

void Recorder::forget() {
    events.clear();
    runs.clear();
    calls.clear();
}

}  // namespace tinfer::test
