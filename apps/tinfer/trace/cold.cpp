// SPDX-License-Identifier: MIT
// tinfer trace cold: which runs waited for pages that were not in memory, and whether storage or page faults took the
// time.
#include <algorithm>

#include "file_reads.hpp"
#include "ranges.hpp"

namespace tinfer::app {

namespace {

/// Pages that were not resident, or not mapped, when an event began.
struct ColdPages {
    std::uint64_t minor = 0, major = 0, missing_bytes = 0;
    bool known = false;  ///< residency of some tensor was recorded

    [[nodiscard]] bool cold() const { return minor + major + missing_bytes > 0; }
    [[nodiscard]] bool waited_for_storage() const { return major + missing_bytes > 0; }
};

std::map<std::uint64_t, ColdPages> pages_by_event(const tinfer::TraceReader& trace) {
    std::map<std::uint64_t, ColdPages> events;
    for (const auto& record : trace.pages()) {
        ColdPages& pages = events[record.event];
        pages.minor += record.minor_faults;
        pages.major += record.major_faults;
        if ((record.flags & tinfer::trace_format::unknown_residency) != 0) continue;
        pages.known = true;
        pages.missing_bytes +=
            std::uint64_t{record.n_pages - std::min(record.n_pages, record.resident_before)} * record.page_bytes;
    }
    return events;
}

/// Median times of warm events: of the same step in other runs, or else of steps of the same kernel with the same
/// amount of work, in other layers or plans.
class WarmTimes : public Visitor {
public:
    WarmTimes(const tinfer::TraceReader& of, const std::map<std::uint64_t, ColdPages>& pages)
        : Visitor(of, {}), pages_(pages) {}
    void see(const tinfer::KernelEvent& event) override {
        if (const auto found = pages_.find(event.index); found != pages_.end() && found->second.cold()) return;
        const double ms = double(event.end - event.begin) / 1e6;
        by_step_[step_of(event)].push_back(ms);
        by_work_[work_of(event)].push_back(ms);
    }
    void finish() {
        for (auto& [key, list] : by_step_) std::ranges::sort(list);
        for (auto& [key, list] : by_work_) std::ranges::sort(list);
    }
    [[nodiscard]] std::optional<double> operator()(const tinfer::KernelEvent& event) const {
        const auto median = [](const std::vector<double>& list) { return list[list.size() / 2]; };
        if (const auto found = by_step_.find(step_of(event)); found != by_step_.end()) return median(found->second);
        if (const auto found = by_work_.find(work_of(event)); found != by_work_.end()) return median(found->second);
        return {};
    }

private:
    using Step = std::pair<std::uint32_t, std::uint32_t>;
    using Work = std::tuple<std::string, std::uint64_t, std::uint64_t, std::uint64_t>;
    static Step step_of(const tinfer::KernelEvent& event) { return {event.run->plan->id, event.step->number}; }
    static Work work_of(const tinfer::KernelEvent& event) {
        return {std::string(event.step->kernel), event.bytes_read, event.bytes_written, event.macs};
    }
    const std::map<std::uint64_t, ColdPages>& pages_;
    std::map<Step, std::vector<double>> by_step_;
    std::map<Work, std::vector<double>> by_work_;
};

struct ColdRun {
    std::string phase;
    std::uint64_t run = 0, first_bytes = 0;
    ColdPages pages;
    double wall_ms = 0, kernel_ms = 0;     // kernel: sum over all events
    double storage_ms = 0, faults_ms = 0;  // parts of it: beyond the warm time
    double unknown_ms = 0;                 // of cold events without a comparable warm one
    /// Events with both storage reads and minor faults: time beyond the warm time, number of faults.
    std::vector<std::pair<double, std::uint64_t>> mixed;
};

class ColdRuns : public Visitor {
public:
    ColdRuns(const tinfer::TraceReader& of, const Selection& chosen, const std::map<std::uint64_t, ColdPages>& pages,
             const WarmTimes& warm)
        : Visitor(of, chosen), pages_(pages), warm_(warm) {}
    void begin(const tinfer::RunInfo& run) override {
        runs.emplace_back();
        runs.back().run = run.run;
        runs.back().phase = to_string(run.phase);
    }
    void see(const tinfer::KernelEvent& event) override {
        ColdRun& run = runs.back();
        const double ms = double(event.end - event.begin) / 1e6;
        run.kernel_ms += ms;
        for (const auto& access : event.accesses) {
            if (!is_weight(access)) continue;
            for (const auto& range : ranges_of(access)) {
                check_touches(seen_.size() + range.count);
                for (std::uint32_t i = 0; i < range.count; ++i)
                    if (seen_.emplace(access.tensor->id, range.offset + i * range.stride, range.length).second)
                        run.first_bytes += range.length;
            }
        }
        const auto found = pages_.find(event.index);
        if (found == pages_.end()) return;
        const ColdPages& pages = found->second;
        run.pages.minor += pages.minor;
        run.pages.major += pages.major;
        run.pages.missing_bytes += pages.missing_bytes;
        run.pages.known = run.pages.known || pages.known;
        if (!pages.cold()) return;
        const auto warm = warm_(event);
        if (!warm) {
            run.unknown_ms += ms;
            return;
        }
        const double beyond = std::max(0.0, ms - *warm);
        if (!pages.waited_for_storage()) {
            run.faults_ms += beyond;
            fault_ms_ += beyond;
            n_faults_ += pages.minor;
        } else if (pages.minor > 0) {
            run.mixed.emplace_back(beyond, pages.minor);
        } else {
            run.storage_ms += beyond;
        }
    }
    void end(const tinfer::RunResult& result) override {
        runs.back().wall_ms = double(result.end - result.run->begin) / 1e6;
    }
    /// Splits the time of mixed events: faults cost as much as in events without storage reads.
    void finish() {
        const double ms_per_fault = n_faults_ > 0 ? fault_ms_ / static_cast<double>(n_faults_) : 0;
        for (ColdRun& run : runs)
            for (const auto& [beyond, n] : run.mixed) {
                const double faults = std::min(beyond, static_cast<double>(n) * ms_per_fault);
                run.faults_ms += faults;
                run.storage_ms += beyond - faults;
            }
    }
    std::vector<ColdRun> runs;

private:
    const std::map<std::uint64_t, ColdPages>& pages_;
    const WarmTimes& warm_;
    double fault_ms_ = 0;
    std::uint64_t n_faults_ = 0;
    std::set<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>> seen_;
};

int show_cold(const TraceArgs& args) {
    const auto trace = args.open();
    args.check_model(trace);
    const auto pages = pages_by_event(trace);
    WarmTimes warm(trace, pages);
    warm.visit();
    warm.finish();
    ColdRuns cold(trace, args.selection(), pages, warm);
    cold.visit();
    cold.finish();
    const bool has_pages = !trace.pages().empty();
    // Three times add up to the wall time: storage, page faults, and the rest, which is warm kernels and gaps between
    // them.
    std::vector<Column> columns{{"run", Unit::count},
                                {"phase"},
                                {"wall", Unit::ms},
                                {"storage", Unit::ms},
                                {"page_faults", Unit::ms},
                                {"kernels", Unit::ms},
                                {"of_them_between", Unit::ms},
                                {"of_them_unknown", Unit::ms},
                                {"first_touched", Unit::bytes},
                                {"not_resident", Unit::bytes},
                                {"minor_faults", Unit::count},
                                {"major_faults", Unit::count}};
    // Of a model under a memory limit: what was read, and how long steps waited for it.
    auto reads = storage_reads(trace, args.selection());
    const bool has_reads = !reads.empty();
    if (has_reads)
        columns.insert(columns.end(), {{"read", Unit::bytes}, {"read_ahead", Unit::bytes}, {"waited", Unit::ms}});
    Table table(std::move(columns));
    double unknown_ms = 0;
    for (const auto& run : cold.runs) {
        if (args.is_full(table.size())) break;
        std::vector<Cell> row{run.run,
                              run.phase,
                              run.wall_ms,
                              has_pages ? Cell(run.storage_ms) : Cell(),
                              has_pages ? Cell(run.faults_ms) : Cell(),
                              run.wall_ms - run.storage_ms - run.faults_ms,
                              run.wall_ms - run.kernel_ms,
                              has_pages ? Cell(run.unknown_ms) : Cell(),
                              run.first_bytes,
                              run.pages.known ? Cell(run.pages.missing_bytes) : Cell(),
                              has_pages ? Cell(run.pages.minor) : Cell(),
                              has_pages ? Cell(run.pages.major) : Cell()};
        if (has_reads) {
            const StorageReads& of_run = reads[run.run];
            row.insert(row.end(), {of_run.bytes, of_run.bytes_ahead, double(of_run.waited) / 1e6});
        }
        table.add(std::move(row));
        unknown_ms += run.unknown_ms;
    }
    print_result(args.style, {{"pages_recorded", has_pages}}, "runs", table);
    if (!has_pages && !args.style.as_json && !args.style.as_csv)
        note("residency and faults are not in the trace: record with --extras pages", Look::dim);
    if (unknown_ms > 0 && !args.style.as_json && !args.style.as_csv)
        note("some cold steps have no warm run to compare with, and count as kernels: record with --repeat 2",
             Look::dim);
    return 0;
}

}  // namespace

Verb add_cold(CLI::App& trace) {
    auto args = std::make_shared<TraceArgs>();
    auto* verb = trace.add_subcommand("cold", "Shows which runs paid for pages that were not in memory.");
    args->add_file(*verb);
    args->add_model(*verb);
    args->add_selection(*verb);
    args->add_output(*verb);
    args->add_limit(*verb, 0);
    verb->footer("\nExamples:\n  tinfer trace record model.gguf -p Hello -n 4 --drop-cache --extras pages -o "
                 "cold.tntrace\n  tinfer trace cold cold.tntrace");
    return [args] { return show_cold(*args); };
}

}  // namespace tinfer::app
