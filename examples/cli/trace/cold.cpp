// SPDX-License-Identifier: MIT
// tinfer trace cold: which runs paid for pages that were not in memory, and whether the storage or the page faults took
// the time.
#include <algorithm>

#include "file_reads.hpp"

namespace cli {

namespace {

struct ColdRun {
    std::string phase;
    std::uint64_t run = 0, first_bytes = 0, non_resident = 0, minor = 0, major = 0;
    double wall_ms = 0, kernel_ms = 0;     // kernel: of all events
    double storage_ms = 0, faults_ms = 0;  // of them: beyond the step's median
    bool known = false;
};

/// The median time of a step over the runs of its plan, and what each event took beyond it.
class StepTimes : public Visitor {
public:
    using Visitor::Visitor;
    void see(const tinfer::KernelEvent& event) override {
        times[{event.run->plan->id, event.step->number}].push_back(double(event.end - event.begin) / 1e6);
    }
    void finish() {
        for (auto& [step, list] : times) {
            std::ranges::sort(list);
            medians[step] = list[list.size() / 2];
        }
    }
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<double>> times;
    std::map<std::pair<std::uint32_t, std::uint32_t>, double> medians;
};

class ColdRuns : public Visitor {
public:
    ColdRuns(const tinfer::TraceReader& of, const Selection& chosen, const StepTimes& times)
        : Visitor(of, chosen), times_(times) {
        for (const auto& record : trace.pages()) pages_[record.event].push_back(&record);
    }
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
            for (const auto& range : ranges_of(access))
                for (std::uint32_t i = 0; i < range.count; ++i)
                    if (seen_.emplace(access.tensor->id, range.offset + i * range.stride, range.length).second)
                        run.first_bytes += range.length;
        }
        std::uint64_t faults = 0, major = 0, missing = 0;
        if (const auto found = pages_.find(event.index); found != pages_.end())
            for (const auto* record : found->second) {
                run.minor += record->minor_faults;
                run.major += record->major_faults;
                faults += record->minor_faults + record->major_faults;
                major += record->major_faults;
                if ((record->flags & tinfer::trace_format::unknown_residency) != 0) continue;
                run.known = true;
                missing += std::uint64_t{record->n_pages - std::min(record->n_pages, record->resident_before)} *
                           record->page_bytes;
            }
        run.non_resident += missing;
        // A step that pages were read for waited for the storage; one whose pages were there, but not mapped, for
        // faults.
        if (faults > 0 || missing > 0)
            (major > 0 || missing > 0 ? run.storage_ms : run.faults_ms) +=
                std::max(0.0, ms - times_.medians.at({event.run->plan->id, event.step->number}));
    }
    void end(const tinfer::RunResult& result) override {
        runs.back().wall_ms = double(result.end - result.run->begin) / 1e6;
    }
    std::vector<ColdRun> runs;

private:
    const StepTimes& times_;
    std::map<std::uint64_t, std::vector<const tinfer::trace_format::Pages*>> pages_;
    std::set<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>> seen_;
};

int show_cold(const TraceArgs& args) {
    const auto trace = args.open();
    args.check_model(trace);
    StepTimes times(trace, args.selection());
    times.visit();
    times.finish();
    ColdRuns cold(trace, args.selection(), times);
    cold.visit();
    const bool has_pages = !trace.pages().empty();
    // Three times that add up to the wall time: waiting for storage, page faults, and all else, which is kernels as
    // they are when warm and what lies between them.
    Table table({{"run", Unit::count},
                 {"phase"},
                 {"wall", Unit::ms},
                 {"storage", Unit::ms},
                 {"page_faults", Unit::ms},
                 {"kernels", Unit::ms},
                 {"of_them_between", Unit::ms},
                 {"first_touched", Unit::bytes},
                 {"not_resident", Unit::bytes},
                 {"minor_faults", Unit::count},
                 {"major_faults", Unit::count}});
    for (const auto& run : cold.runs) {
        if (args.limit > 0 && table.size() >= args.limit) break;
        table.add({run.run, run.phase, run.wall_ms, has_pages ? Cell(run.storage_ms) : Cell(),
                   has_pages ? Cell(run.faults_ms) : Cell(), run.wall_ms - run.storage_ms - run.faults_ms,
                   run.wall_ms - run.kernel_ms, run.first_bytes, run.known ? Cell(run.non_resident) : Cell(),
                   has_pages ? Cell(run.minor) : Cell(), has_pages ? Cell(run.major) : Cell()});
    }
    print_result(args.style, {{"pages_recorded", has_pages}}, "runs", table);
    if (!has_pages && !args.style.as_json && !args.style.as_csv)
        note("residency and faults are not in the trace: record with --extras pages", Look::dim);
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

}  // namespace cli
