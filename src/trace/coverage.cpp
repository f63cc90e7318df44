// SPDX-License-Identifier: MIT
// CoverageCheck: for every step, the accesses of its event against what its nodes mean (trace/expected.hpp), in both
// directions, operand by operand and byte by byte.
#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.hpp"
#include "tinfer/observers.hpp"
#include "trace/expected.hpp"

namespace tinfer {

using trace::ByteSet;
using trace::ExpectedAccess;

struct CoverageCheck::Impl {
    std::uint64_t runs = 0, steps = 0, operands = 0;
    std::vector<std::string> differences;
    const RunInfo* run = nullptr;
    std::uint32_t events_of_run = 0, plan_steps = 0;

    void report(std::string text) {
        if (differences.size() < 1000) differences.push_back(std::move(text));
    }
    using Key = std::pair<const TensorInfo*, AccessMode>;
    using Sets = std::map<Key, ByteSet>;
    void compare(const StepView& step, Sets& expected, Sets& observed);
};

namespace {

using CoverageSets = std::map<std::pair<const TensorInfo*, AccessMode>, ByteSet>;

void add_modes(CoverageSets& sets, const TensorInfo* tensor, AccessMode mode, const ByteSet& bytes) {
    for (const AccessMode single : {AccessMode::read, AccessMode::write}) {
        if ((static_cast<int>(mode) & static_cast<int>(single)) == 0) continue;
        ByteSet& set = sets[{tensor, single}];
        set.intervals.insert(set.intervals.end(), bytes.intervals.begin(), bytes.intervals.end());
    }
}

CoverageSets observed_sets(const KernelEvent& event) {
    CoverageSets sets;
    for (const Access& access : event.accesses) {
        if (access.scratch || access.kind == AccessKind::elided) continue;
        ByteSet bytes;
        if (access.kind == AccessKind::whole) bytes.add(0, access.tensor->bytes);
        for (const AccessRange& range : access.ranges)  // padding is not expected: no node asks for it
            for (std::uint32_t i = 0; i < range.count && !range.padding; ++i)
                bytes.add(range.offset + i * range.stride, range.offset + i * range.stride + range.length);
        add_modes(sets, access.tensor, access.mode, bytes);
    }
    return sets;
}

// True for a result between the nodes of a fused step. It is never stored, so no write and no read of it are expected.
bool is_inner(const KernelEvent& event, const TensorInfo* tensor) {
    return std::ranges::any_of(event.accesses,
                               [&](const Access& a) { return a.tensor == tensor && a.kind == AccessKind::elided; });
}

// True for a tensor that a fused step writes itself. Its nodes read it from registers, so no read is
// expected; a cache it only writes.
bool from_registers(const StepView& step, const TensorInfo* tensor) {
    return step.nodes.size() > 1 &&
           std::ranges::any_of(step.nodes, [&](const NodeView* node) { return node->output == tensor; });
}

// True if the step's list of operands, which is known before the run, names the tensor with this mode.
bool lists(const StepView& step, const TensorInfo* tensor, AccessMode mode) {
    if (tensor == nullptr || (mode == AccessMode::read && from_registers(step, tensor))) return true;
    return std::ranges::any_of(step.operands, [&](const Access& a) {
        return a.tensor == tensor &&
               (a.kind == AccessKind::elided || (static_cast<int>(a.mode) & static_cast<int>(mode)) != 0);
    });
}

CoverageSets expected_sets(const KernelEvent& event, const trace::DataOf& data) {
    std::vector<ExpectedAccess> accesses;
    for (const NodeView* node : event.step->nodes) trace::expect(*node, data, accesses);
    CoverageSets sets;
    for (const ExpectedAccess& access : accesses)
        if (!is_inner(event, access.tensor)) add_modes(sets, access.tensor, access.mode, access.set);
    for (const NodeView* node : event.step->nodes)
        if (from_registers(*event.step, node->output)) sets.erase({node->output, AccessMode::read});
    return sets;
}

std::string describe(const StepView& step, const TensorInfo* tensor, AccessMode mode, std::string_view what) {
    return cat("step ", step.number, " ", step.kernel, step.nodes.empty() ? "" : " (",
               step.nodes.empty() ? "" : step.nodes.back()->name, step.nodes.empty() ? "" : ")", ": ",
               mode == AccessMode::read ? "read" : "write", " of '", escaped(tensor->name), "' ", what);
}

}  // namespace

void CoverageCheck::Impl::compare(const StepView& step, Sets& expected, Sets& observed) {
    for (auto& [key, set] : expected) set.normalize();
    for (auto& [key, set] : observed) set.normalize();
    for (const auto& [key, set] : expected) {
        ++operands;
        const auto found = observed.find(key);
        if (found == observed.end()) report(describe(step, key.first, key.second, "is missing"));
        else if (!(found->second == set))
            report(describe(step, key.first, key.second,
                            cat("covers ", found->second.bytes(), " bytes, expected ", set.bytes())));
    }
    for (const auto& [key, set] : observed)
        if (!expected.contains(key)) report(describe(step, key.first, key.second, "is surplus"));
}

CoverageCheck::CoverageCheck() : impl_(std::make_unique<Impl>()) {}
CoverageCheck::~CoverageCheck() = default;
std::uint64_t CoverageCheck::runs() const noexcept { return impl_->runs; }
std::uint64_t CoverageCheck::steps() const noexcept { return impl_->steps; }
std::uint64_t CoverageCheck::operands() const noexcept { return impl_->operands; }
const std::vector<std::string>& CoverageCheck::differences() const& noexcept { return impl_->differences; }

TraceRequest CoverageCheck::request() const { return {.delivery = Delivery::immediate}; }
void CoverageCheck::on_session(const SessionInfo&) {}

// Every node that is no view lies in exactly one step, and the step lists what the node touches before anything runs.
void CoverageCheck::on_plan(const PlanView& plan) {
    std::vector<int> uses(plan.nodes.size(), 0);
    for (const StepView& step : plan.steps)
        for (const NodeView* node : step.nodes) ++uses[node->number];
    for (const NodeView& node : plan.nodes) {
        const int expected = node.op == Op::alias ? 0 : 1;
        if (uses[node.number] != expected)
            impl_->report(cat("plan ", plan.id, ": node '", escaped(node.name), "' lies in ", uses[node.number],
                              " steps, expected ", expected));
    }
    for (const StepView& step : plan.steps) {
        const auto check = [&](const TensorInfo* tensor, AccessMode mode) {
            if (!lists(step, tensor, mode))
                impl_->report(describe(step, tensor, mode, "is not in its list of operands"));
        };
        for (const NodeView* node : step.nodes) {
            check(node->output, AccessMode::write);
            for (const TensorInfo* input : node->inputs) check(input, AccessMode::read);
        }
    }
}

void CoverageCheck::on_run_begin(const RunInfo& run) {
    impl_->run = &run;
    impl_->events_of_run = 0;
    impl_->plan_steps = static_cast<std::uint32_t>(run.plan->steps.size());
}

void CoverageCheck::on_step_end(const KernelEvent& event, const StepValues& values) {
    const trace::DataOf data = [&](const TensorInfo& tensor) -> std::span<const std::byte> {
        for (const InputView& input : impl_->run->inputs)
            if (input.tensor == &tensor) return input.data;
        for (std::uint16_t slot = 0; slot < 10; ++slot)
            if (const auto value = values.value(slot); value.tensor == &tensor) return value.data;
        return {};
    };
    if (event.step->number != impl_->events_of_run)
        impl_->report(cat("run ", event.run->run, ": event of step ", event.step->number, " where step ",
                          impl_->events_of_run, " was due"));
    ++impl_->events_of_run;
    ++impl_->steps;
    auto expected = expected_sets(event, data);
    auto observed = observed_sets(event);
    impl_->compare(*event.step, expected, observed);
}

void CoverageCheck::on_run_end(const RunResult& result) {
    ++impl_->runs;
    if (result.status == EventStatus::ok && impl_->events_of_run != impl_->plan_steps)
        impl_->report(
            cat("run ", result.run->run, ": ", impl_->events_of_run, " events for ", impl_->plan_steps, " steps"));
    if (result.status == EventStatus::ok && result.expected_weight_bytes != result.observed_weight_bytes)
        impl_->report(cat("run ", result.run->run, ": ", result.observed_weight_bytes, " weight bytes observed, ",
                          result.expected_weight_bytes, " expected"));
    impl_->run = nullptr;
}

}  // namespace tinfer
