// SPDX-License-Identifier: MIT
// Roofline: adds up events by the role of the weights they read. After S. Williams, A. Waterman, D. Patterson,
// "Roofline: an insightful visual performance model", CACM 52 (2009): a kernel is bound by the roof it would take
// longer at.
#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "tinfer/observers.hpp"
#include "trace/fixed_text.hpp"
#include "trace/own_map.hpp"

namespace tinfer {

namespace {

bool reads_weight(const Access& access) noexcept {
    return access.tensor->tensor_class == TensorClass::weight && access.kind != AccessKind::elided;
}

/// Roles of the weights that a step reads, in the order of its operands, each once: "ffn_gate+ffn_up".
std::string roles_of(const StepView& step) {
    std::vector<std::string_view> roles;
    for (const Access& access : step.operands)
        if (reads_weight(access) && std::ranges::find(roles, access.tensor->role) == roles.end())
            roles.push_back(access.tensor->role);
    std::string text;
    for (const std::string_view role : roles) text.append(text.empty() ? "" : "+").append(role);
    return text;
}

/// Products of block formats are of integers; everything else computes in float32.
bool multiplies_int8(const StepView& step) noexcept {
    return std::ranges::any_of(step.operands, [](const Access& access) {
        return reads_weight(access) && access.tensor->n_dims > 1 && !is_float(access.tensor->type);
    });
}

void add_row(RooflineRow& to, const RooflineRow& row) {
    to.calls += row.calls;
    to.seconds += row.seconds;
    to.bytes += row.bytes;
    to.weight_bytes += row.weight_bytes;
    to.cache_bytes += row.cache_bytes;
    to.int8_macs += row.int8_macs;
    to.f32_macs += row.f32_macs;
    to.memory_seconds += row.memory_seconds;
    to.compute_seconds += row.compute_seconds;
}

double over(double amount, double peak) noexcept { return peak > 0 ? amount / peak : 0; }

void append_left(std::string& out, std::string_view text, std::size_t width) {
    out.append(text).append(text.size() < width ? width - text.size() : 0, ' ');
}
void append_right(std::string& out, double value, int digits, std::size_t width) {
    const std::string text = trace::fixed_text(value, digits);
    out.append(text.size() < width ? width - text.size() : 0, ' ').append(text);
}

void append_line(std::string& out, std::string_view name, std::string_view op, const RooflineRow& row,
                 double all_seconds) {
    constexpr std::string_view kBounds[] = {"", " %  memory", " %  compute", " %  overhead"};
    append_left(out, name, 24);
    append_left(out, op, 18);
    append_right(out, static_cast<double>(row.calls), 0, 9);
    append_right(out, 1e3 * row.seconds, 3, 11);
    append_right(out, 100 * over(row.seconds, all_seconds), 1, 7);
    out += " %";
    append_right(out, row.gbps(), 2, 9);
    append_right(out, row.gmacs(), 1, 10);
    if (row.bound() != RooflineRow::Bound::unknown) append_right(out, 100 * row.of_peak(), 1, 7);
    out.append(kBounds[static_cast<std::size_t>(row.bound())]) += '\n';
}

}  // namespace

RooflineRow::Bound RooflineRow::bound() const noexcept {
    if (memory_seconds <= 0 && compute_seconds <= 0) return Bound::unknown;
    if (of_peak() < kOverhead) return Bound::overhead;
    return memory_seconds >= compute_seconds ? Bound::memory : Bound::compute;
}

double RooflineRow::of_peak() const noexcept { return over(std::max(memory_seconds, compute_seconds), seconds); }

struct Roofline::Impl {
    RooflinePeaks peaks;
    std::vector<RooflineRow> rows;
    OwnMap<std::pair<std::string, Op>, std::size_t> row_of_role;
    /// By step, the place of its row. Keyed by hash: a roofline that is attached to another context meets the same ids
    /// for other plans.
    std::map<std::array<std::uint8_t, 16>, std::vector<std::size_t>> rows_of_plan;
    double run_seconds = 0;
    std::uint64_t runs = 0;

    const std::vector<std::size_t>& steps_of(const PlanView& plan);
};

// Roles are read from the names once per plan; an event then costs a look at its operands.
const std::vector<std::size_t>& Roofline::Impl::steps_of(const PlanView& plan) {
    const auto known = rows_of_plan.find(plan.hash);
    if (known != rows_of_plan.end() && known->second.size() == plan.steps.size()) return known->second;
    if (known != rows_of_plan.end()) rows_of_plan.erase(known);  // two plans of one hash: an inconsistent file
    std::vector<std::size_t> steps;
    for (const StepView& step : plan.steps) {
        const auto [place, is_new] = row_of_role.try_emplace({roles_of(step), step.op}, rows.size());
        if (is_new) {
            rows.emplace_back();
            rows.back().role = place->first.first;
            rows.back().op = step.op;
        }
        steps.push_back(place->second);
    }
    constexpr std::size_t kPlansKept = 64;
    if (rows_of_plan.size() >= kPlansKept) rows_of_plan.erase(rows_of_plan.begin());
    return rows_of_plan.emplace(plan.hash, std::move(steps)).first->second;
}

void RooflineRow::add(const KernelEvent& event, const RooflinePeaks& peaks) noexcept {
    std::uint64_t streamed_bytes = 0;
    for (const Access& access : event.accesses) {
        if (access.scratch) continue;
        const std::uint64_t unique = access.bytes(), streamed = unique * access.passes;
        const TensorClass kind = access.tensor->tensor_class;
        streamed_bytes += access.mode == AccessMode::read_write ? 2 * streamed : streamed;
        if (kind == TensorClass::weight) weight_bytes += unique;
        if (kind == TensorClass::cache_k || kind == TensorClass::cache_v || kind == TensorClass::recurrent)
            cache_bytes += unique;
    }
    const bool is_int8 = multiplies_int8(*event.step);
    ++calls;
    seconds += 1e-9 * static_cast<double>(event.end - event.begin);
    bytes += streamed_bytes;
    (is_int8 ? int8_macs : f32_macs) += event.macs;
    memory_seconds += over(static_cast<double>(streamed_bytes), peaks.bytes);
    compute_seconds += over(static_cast<double>(event.macs), is_int8 ? peaks.int8_macs : peaks.f32_macs);
}

Roofline::Roofline(RooflinePeaks peaks) : impl_(std::make_unique<Impl>()) { impl_->peaks = peaks; }
Roofline::~Roofline() = default;

double Roofline::run_seconds() const noexcept { return impl_->run_seconds; }
std::uint64_t Roofline::runs() const noexcept { return impl_->runs; }

double Roofline::step_seconds() const noexcept {
    double seconds = 0;
    for (const RooflineRow& row : impl_->rows) seconds += row.seconds;
    return seconds;
}

std::vector<RooflineRow> Roofline::rows() const {
    std::vector<RooflineRow> rows;
    std::ranges::copy_if(impl_->rows, std::back_inserter(rows), [](const RooflineRow& row) { return row.calls > 0; });
    std::ranges::stable_sort(rows, std::ranges::greater{}, &RooflineRow::seconds);
    return rows;
}

std::string Roofline::report() const {
    std::string out =
        "role                    op                    calls         ms     time     GB/s    GMAC/s  of peak  bound\n";
    RooflineRow total;
    for (const RooflineRow& row : rows()) {
        append_line(out, row.role.empty() ? "-" : row.role, to_string(row.op), row, impl_->run_seconds);
        add_row(total, row);
    }
    append_line(out, "all steps", "", total, impl_->run_seconds);
    return out;
}

void Roofline::on_events(std::span<const KernelEvent> events) {
    if (events.empty()) return;
    const auto& steps = impl_->steps_of(*events.front().run->plan);  // events come by run
    for (const KernelEvent& event : events) impl_->rows[steps[event.step->number]].add(event, impl_->peaks);
}

void Roofline::on_run_end(const RunResult& result) {
    ++impl_->runs;
    impl_->run_seconds += 1e-9 * static_cast<double>(result.end - result.run->begin);
}

std::string_view to_string(RooflineRow::Bound value) noexcept {
    switch (value) {
        case RooflineRow::Bound::unknown: return "unknown";
        case RooflineRow::Bound::memory: return "memory";
        case RooflineRow::Bound::compute: return "compute";
        case RooflineRow::Bound::overhead: return "overhead";
    }
    return "unknown";
}

}  // namespace tinfer
