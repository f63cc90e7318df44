// SPDX-License-Identifier: MIT
// TraceStats: events added up by what they are. Which groups a step belongs to is found once for each plan; an event
// then costs an addition for each grouping and operand.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <unordered_map>

#include "base/error.hpp"
#include "base/json.hpp"
#include "tinfer/observers.hpp"
#include "trace/fixed_text.hpp"

namespace tinfer {

namespace {

constexpr std::size_t kGroupings = 6, kMaxGroups = 8192, kStatsPlansKept = 64;
constexpr std::array<StatsBy, 6> kAllGroupings{StatsBy::op,   StatsBy::kernel, StatsBy::layer,
                                               StatsBy::part, StatsBy::tensor, StatsBy::phase};
constexpr std::array<std::string_view, kGroupings> kGroupingNames{"op", "kernel", "layer", "part", "tensor", "phase"};

}  // namespace

namespace trace {

/// Durations in 160 bins up to 2^40 ns, each a fourth of an octave wide.
class DurationBins {
public:
    void add(std::uint64_t ns) noexcept { ++bins_[bin_of(ns)]; }
    [[nodiscard]] std::uint64_t median(std::uint64_t n, std::uint64_t least, std::uint64_t most) const noexcept {
        std::uint64_t before = 0;
        for (std::size_t bin = 0; bin < kBins; ++bin) {
            if (2 * (before + bins_[bin]) < n + n % 2) {
                before += bins_[bin];
                continue;
            }
            const double middle = std::exp2((static_cast<double>(bin) + 0.5) / 4);
            return std::clamp(static_cast<std::uint64_t>(std::llround(middle)), least, most);
        }
        return most;
    }

private:
    static constexpr std::size_t kBins = 160;
    static std::size_t bin_of(std::uint64_t ns) noexcept {
        if (ns < 2) return 0;
        const int octave = std::bit_width(ns) - 1;
        const double rest = std::log2(static_cast<double>(ns)) - octave;  // 0 … 1
        const auto bin = static_cast<std::size_t>(4 * octave + std::min(static_cast<int>(4 * rest), 3));
        return std::min(bin, kBins - 1);
    }
    std::array<std::uint32_t, kBins> bins_{};
};

struct StatsGroup {
    StatsRow row;
    DurationBins durations;
    double max_busy = 0, lost_busy = 0;  // of threads: Σ max, Σ (max − mean)

    void add(const KernelEvent& event, std::uint64_t read, std::uint64_t written, std::uint64_t streamed,
             std::uint64_t macs) {
        const std::uint64_t time = event.end - event.begin;
        row.min = row.calls == 0 ? time : std::min(row.min, time);
        row.max = std::max(row.max, time);
        ++row.calls;
        row.time += time;
        durations.add(time);
        row.bytes_read += read;
        row.bytes_written += written;
        row.bytes_streamed += streamed;
        row.macs += macs;
        if (event.threads.empty()) return;
        std::uint64_t sum = 0, most = 0;
        for (const ThreadSpan& span : event.threads) {
            sum += span.busy;
            most = std::max<std::uint64_t>(most, span.busy);
        }
        max_busy += static_cast<double>(most);
        lost_busy += static_cast<double>(most) - static_cast<double>(sum) / static_cast<double>(event.threads.size());
    }
};

}  // namespace trace

namespace {

std::uint64_t streamed_bytes(const Access& access) noexcept {
    const std::uint64_t streamed = access.bytes() * access.passes;
    return access.mode == AccessMode::read_write ? 2 * streamed : streamed;
}

void append_cell(std::string& out, std::string_view text, std::size_t width, bool left) {
    const std::size_t pad = text.size() < width ? width - text.size() : 0;
    if (left) out.append(text).append(pad, ' ');
    else out.append(pad, ' ').append(text);
}
/// A field by RFC 4180.
void append_csv(std::string& out, std::string_view text) {
    if (text.find_first_of(",\"\r\n") == std::string_view::npos) {
        out += text;
        return;
    }
    out += '"';
    for (const char c : text) out.append(c == '"' ? "\"\"" : std::string_view(&c, 1));
    out += '"';
}

}  // namespace

std::string_view to_string(StatsBy by) noexcept {
    const auto i = static_cast<std::size_t>(by);
    return i < kGroupingNames.size() ? kGroupingNames[i] : "unknown";
}

struct TraceStats::Impl {
    struct Grouping {
        std::vector<trace::StatsGroup> groups;
        std::map<std::string, std::uint32_t, std::less<>> by_name;

        std::uint32_t find(std::string_view name) {
            if (const auto known = by_name.find(name); known != by_name.end()) return known->second;
            if (groups.size() + 1 >= kMaxGroups && name != "(others)") return find("(others)");
            const auto number = static_cast<std::uint32_t>(groups.size());
            by_name.emplace(name, number);
            groups.emplace_back().row.name = name;
            return number;
        }
    };
    struct StepGroups {
        std::array<std::uint32_t, 4> places;  // op, kernel, layer, part
    };
    struct PlanGroups {
        std::vector<StepGroups> steps;
        std::unordered_map<const TensorInfo*, std::uint32_t> tensors;
        std::uint64_t last_use = 0;
    };

    TraceLevel level = TraceLevel::steps;
    std::array<Grouping, kGroupings> groupings;
    std::map<std::array<std::uint8_t, 16>, PlanGroups> plans;  ///< by hash: ids are those of one session
    std::uint64_t runs = 0, events = 0, run_time = 0, event_time = 0, uses = 0;

    Grouping& of(StatsBy by) { return groupings[static_cast<std::size_t>(by)]; }
    PlanGroups& plan_groups(const PlanView& plan);
    void add(const KernelEvent& event, PlanGroups& plan, trace::StatsGroup& phase);
};

// Names of values belong to a plan's view, which may be made anew: what is known of its tensors is kept by address for
// as long as one call of on_events, and by name beyond.
TraceStats::Impl::PlanGroups& TraceStats::Impl::plan_groups(const PlanView& plan) {
    auto known = plans.find(plan.hash);
    if (known != plans.end() && known->second.steps.size() != plan.steps.size()) {  // an inconsistent file
        plans.erase(known);
        known = plans.end();
    }
    if (known == plans.end()) {
        if (plans.size() >= kStatsPlansKept)
            plans.erase(std::ranges::min_element(plans, {}, [](const auto& p) { return p.second.last_use; }));
        known = plans.emplace(plan.hash, PlanGroups{}).first;
        for (const StepView& step : plan.steps)
            known->second.steps.push_back(
                {{of(StatsBy::op).find(to_string(step.op)), of(StatsBy::kernel).find(step.kernel),
                  of(StatsBy::layer).find(step.layer < 0 ? "-" : std::to_string(step.layer)),
                  of(StatsBy::part).find(to_string(step.part))}});
    }
    known->second.last_use = ++uses;
    known->second.tensors.clear();
    return known->second;
}

void TraceStats::Impl::add(const KernelEvent& event, PlanGroups& plan, trace::StatsGroup& phase) {
    std::uint64_t streamed = 0;
    for (std::size_t i = 0; i < event.accesses.size(); ++i) {
        const Access& access = event.accesses[i];
        if (access.scratch || access.kind == AccessKind::elided) continue;
        streamed += streamed_bytes(access);
        const bool again = std::ranges::any_of(event.accesses.first(i), [&](const Access& other) {
            return other.tensor == access.tensor && !other.scratch && other.kind != AccessKind::elided;
        });
        const auto [place, is_new] = plan.tensors.try_emplace(access.tensor, 0);
        if (is_new) place->second = of(StatsBy::tensor).find(access.tensor->name);
        trace::StatsGroup& group = of(StatsBy::tensor).groups[place->second];
        const std::uint64_t bytes = access.bytes();
        const std::uint64_t read = access.mode == AccessMode::write ? 0 : bytes,
                            written = access.mode == AccessMode::read ? 0 : bytes;
        if (!again) {
            group.add(event, read, written, streamed_bytes(access), 0);
        } else {  // a tensor in two roles of one step: the step counts once
            group.row.bytes_read += read;
            group.row.bytes_written += written;
            group.row.bytes_streamed += streamed_bytes(access);
        }
    }
    const StepGroups& step = plan.steps[event.step->number];
    for (std::size_t g = 0; g < step.places.size(); ++g)
        groupings[g].groups[step.places[g]].add(event, event.bytes_read, event.bytes_written, streamed, event.macs);
    phase.add(event, event.bytes_read, event.bytes_written, streamed, event.macs);
    ++events;
    event_time += event.end - event.begin;
}

TraceStats::TraceStats(TraceLevel level) : impl_(std::make_unique<Impl>()) { impl_->level = level; }
TraceStats::~TraceStats() = default;

TraceRequest TraceStats::request() const { return {.level = impl_->level}; }
std::uint64_t TraceStats::runs() const noexcept { return impl_->runs; }
std::uint64_t TraceStats::events() const noexcept { return impl_->events; }
std::uint64_t TraceStats::run_time() const noexcept { return impl_->run_time; }
std::uint64_t TraceStats::gap_time() const noexcept {
    return impl_->run_time - std::min(impl_->event_time, impl_->run_time);
}

void TraceStats::on_events(std::span<const KernelEvent> events) {
    if (events.empty()) return;
    const RunInfo& run = *events.front().run;  // events come by run
    auto& plan = impl_->plan_groups(*run.plan);
    const std::uint32_t phase = impl_->of(StatsBy::phase).find(to_string(run.phase));
    for (const KernelEvent& event : events) impl_->add(event, plan, impl_->of(StatsBy::phase).groups[phase]);
}

void TraceStats::on_run_end(const RunResult& result) {
    ++impl_->runs;
    impl_->run_time += result.end - result.run->begin;
}

std::vector<StatsRow> TraceStats::rows(StatsBy by) const {
    std::vector<StatsRow> rows;
    for (const trace::StatsGroup& group : impl_->of(by).groups) {
        if (group.row.calls == 0) continue;
        StatsRow& row = rows.emplace_back(group.row);
        row.median = group.durations.median(row.calls, row.min, row.max);
        row.imbalance = group.max_busy > 0 ? group.lost_busy / group.max_busy : 0;
    }
    std::ranges::stable_sort(rows, std::ranges::greater{}, &StatsRow::time);
    return rows;
}

std::string TraceStats::report(StatsBy by) const {
    const auto list = rows(by);
    std::size_t width = to_string(by).size();
    for (const StatsRow& row : list) width = std::max(width, row.name.size());
    std::string out;
    append_cell(out, to_string(by), width, true);
    out += "     calls        ms    share   median us     MB read  MB written     GB/s   imbalance\n";
    for (const StatsRow& row : list) {
        append_cell(out, row.name, width, true);
        append_cell(out, std::to_string(row.calls), 10, false);
        append_cell(out, trace::fixed_text(1e-6 * static_cast<double>(row.time), 3), 10, false);
        const double all = static_cast<double>(std::max<std::uint64_t>(impl_->run_time, 1));
        append_cell(out, trace::fixed_text(100 * static_cast<double>(row.time) / all, 1), 7, false);
        out += " %";
        append_cell(out, trace::fixed_text(1e-3 * static_cast<double>(row.median), 2), 12, false);
        append_cell(out, trace::fixed_text(1e-6 * static_cast<double>(row.bytes_read), 3), 12, false);
        append_cell(out, trace::fixed_text(1e-6 * static_cast<double>(row.bytes_written), 3), 12, false);
        const double ns = static_cast<double>(std::max<std::uint64_t>(row.time, 1));
        append_cell(out, trace::fixed_text(static_cast<double>(row.bytes_streamed) / ns, 2), 9, false);
        append_cell(out, trace::fixed_text(100 * row.imbalance, 1), 10, false);
        out += " %\n";
    }
    return out;
}

std::string TraceStats::csv(StatsBy by) const {
    std::string out =
        cat(to_string(by), ",calls,time_ns,min_ns,median_ns,max_ns,bytes_read,bytes_written,bytes_streamed,"
                           "macs,imbalance\n");
    for (const StatsRow& row : rows(by)) {
        append_csv(out, row.name);
        for (const std::uint64_t number : {row.calls, row.time, row.min, row.median, row.max, row.bytes_read,
                                           row.bytes_written, row.bytes_streamed, row.macs})
            out.append(",").append(std::to_string(number));
        out.append(",").append(trace::fixed_text(row.imbalance, 6)) += '\n';
    }
    return out;
}

std::string TraceStats::json() const {
    std::string out;
    JsonWriter json(out);
    json.begin_object();
    json.member("runs", impl_->runs).member("events", impl_->events);
    json.member("run_ns", impl_->run_time).member("gap_ns", gap_time());
    for (const StatsBy by : kAllGroupings) {
        json.key(to_string(by)).begin_array();
        for (const StatsRow& row : rows(by)) {
            json.begin_object().member("name", row.name).member("calls", row.calls);
            json.member("time_ns", row.time).member("min_ns", row.min).member("median_ns", row.median);
            json.member("max_ns", row.max).member("bytes_read", row.bytes_read);
            json.member("bytes_written", row.bytes_written).member("bytes_streamed", row.bytes_streamed);
            json.member("macs", row.macs).member("imbalance", row.imbalance).end_object();
        }
        json.end_array();
    }
    json.end_object();
    return out;
}

}  // namespace tinfer
