// SPDX-License-Identifier: MIT
// tinfer trace roofline: performance of groups of steps relative to the machine's roofs.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "../machine_roofs.hpp"
#include "trace.hpp"

namespace tinfer::app {

namespace {

struct RooflineArgs : TraceArgs {
    std::string by = "role", peaks_file;
};

class Points : public Visitor {
public:
    Points(const tinfer::TraceReader& of, const RooflineArgs& args, const tinfer::RooflinePeaks& peaks)
        : Visitor(of, args.selection()), by_(args.by), peaks_(peaks) {}
    void see(const tinfer::KernelEvent& event) override {
        points[name_of(event)].add(event, peaks_);
        // What limits a prompt is not what limits a token; and it does not depend on the groups that are shown.
        const std::string product = std::string(to_string(event.step->op)) + " " + weights_of(event, false);
        of_phases[event.run->phase][product].add(event, peaks_);
    }
    void end(const tinfer::RunResult& result) override { run_seconds += double(result.end - result.run->begin) / 1e9; }
    std::map<std::string, tinfer::RooflineRow> points;
    std::map<tinfer::Phase, std::map<std::string, tinfer::RooflineRow>> of_phases;
    double run_seconds = 0;

private:
    [[nodiscard]] std::string name_of(const tinfer::KernelEvent& event) const {
        const auto& step = *event.step;
        if (by_ == "op") return std::string(to_string(step.op));
        if (by_ == "kernel") return std::string(step.kernel);
        if (by_ == "part") return std::string(to_string(step.part));
        if (by_ == "layer") return layer_text(step.layer);
        if (by_ == "phase") return std::string(to_string(event.run->phase));
        const std::string name = weights_of(event, by_ == "tensor");
        return name.empty() ? "(" + std::string(to_string(step.op)) + ")" : name;
    }
    /// Roles of the weights that it reads, or their names, each once: "ffn_gate+ffn_up".
    [[nodiscard]] static std::string weights_of(const tinfer::KernelEvent& event, bool by_name) {
        std::string name;
        for (const auto& access : event.accesses) {
            if (!is_weight(access)) continue;
            const std::string one(by_name ? access.tensor->name : access.tensor->role);
            if (("+" + name + "+").find("+" + one + "+") == std::string::npos) name += (name.empty() ? "" : "+") + one;
        }
        return name;
    }
    std::string by_;
    tinfer::RooflinePeaks peaks_;
};

/// From a file or text, else from the session; 0 if unknown.
tinfer::RooflinePeaks peaks_of(const tinfer::TraceReader& trace, const RooflineArgs& args) {
    const auto number = [&](std::string_view key) {
        const double value = std::strtod(std::string(trace.session_value(key)).c_str(), nullptr);
        return std::isfinite(value) && value > 0 ? value : 0.0;
    };
    if (!args.peaks_file.empty()) return parse_roofs(args.peaks_file, "--peaks", static_cast<int>(number("threads")));
    const double both = number("gmacs");  // of traces that tell one rate
    const auto rate = [&](std::string_view key) { return number(key) > 0 ? number(key) : both; };
    return {1e9 * number(kReadKey), 1e9 * rate(kInt8Key), 1e9 * rate(kF32Key)};
}

/// What limits a phase: its milliseconds, and shares of them.
Json bounds_of(tinfer::Phase phase, const std::map<std::string, tinfer::RooflineRow>& rows) {
    using Bound = tinfer::RooflineRow::Bound;
    std::array<double, 4> seconds{};
    for (const auto& [name, row] : rows) seconds[static_cast<std::size_t>(row.bound())] += row.seconds;
    const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    Json answer{{"phase", to_string(phase)}, {"ms", 1e3 * all}};
    for (const Bound bound : {Bound::memory, Bound::compute, Bound::overhead, Bound::unknown})
        answer[to_string(bound)] = all > 0 ? seconds[static_cast<std::size_t>(bound)] / all : 0;
    return answer;
}

void print_bounds(const Json& phases, const tinfer::RooflinePeaks& peaks, std::ptrdiff_t n_above) {
    const auto percent = [](const Json& share) { return fixed(100 * share.get<double>(), 1) + " %"; };
    if (peaks.bytes <= 0 && peaks.int8_macs <= 0 && peaks.f32_macs <= 0)
        return note("the trace does not say what the machine can do, so no roof is known (see --peaks)", Look::dim);
    for (std::size_t i = 0; i < phases.size(); ++i) {
        const Json& of = phases[i];
        print(of["phase"].get<std::string>() + ": " + percent(of["memory"]) +
              " of its steps' time is bound by memory, " + percent(of["compute"]) + " by arithmetic, " +
              percent(of["overhead"]) + " is overhead\n");
    }
    if (n_above > 0)
        print(std::to_string(n_above) + (n_above == 1 ? " group is" : " groups are") +
              " above a roof: what was read came from a cache, or a neighbouring step's time holds the work\n");
    print("overhead is what reaches less than " + fixed(100 * tinfer::RooflineRow::kOverhead, 0) +
          " % of both roofs; roofs: " + roofs_text(peaks) + "\n");
}

int show_roofline(const RooflineArgs& args) {
    const auto trace = args.open();
    args.check_model(trace);
    const auto peaks = peaks_of(trace, args);
    Points points(trace, args, peaks);
    points.visit();
    std::vector<std::pair<std::string, tinfer::RooflineRow>> rows(points.points.begin(), points.points.end());
    std::ranges::stable_sort(rows, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    Table table({{args.by},
                 {"calls", Unit::count},
                 {"time", Unit::ms},
                 {"share", Unit::percent},
                 {"bytes", Unit::bytes},
                 {"macs", Unit::count},
                 {"mac_per_byte", Unit::real},
                 {"gbps", Unit::gbps},
                 {"gmacs", Unit::gbps},
                 {"of_peak", Unit::percent},
                 {"bound"}});
    double step_seconds = 0;
    for (const auto& [name, p] : rows) {
        step_seconds += p.seconds;
        const bool known = p.bound() != tinfer::RooflineRow::Bound::unknown;
        const std::uint64_t macs = p.int8_macs + p.f32_macs;
        table.add({name, p.calls, 1e3 * p.seconds, points.run_seconds > 0 ? p.seconds / points.run_seconds : 0, p.bytes,
                   macs, p.bytes > 0 ? double(macs) / double(p.bytes) : 0, p.gbps(), p.gmacs(),
                   known && p.seconds > 0 ? Cell(p.of_peak()) : Cell(), std::string(to_string(p.bound()))});
    }
    Json phases = Json::array();
    for (const auto& [phase, of] : points.of_phases) phases.push_back(bounds_of(phase, of));
    const double covered = points.run_seconds > 0 ? step_seconds / points.run_seconds : 0;
    print_result(args.style,
                 {{"run_ms", 1e3 * points.run_seconds},
                  {"step_ms", 1e3 * step_seconds},
                  {"covered", covered},
                  {"peak_gbps", peaks.bytes / 1e9},
                  {"peak_gmacs", peaks.int8_macs / 1e9},
                  {"peak_f32_gmacs", peaks.f32_macs / 1e9},
                  {"phases", phases}},
                 "groups", table);
    if (args.style.as_json || args.style.as_csv) return 0;
    print("steps are " + fixed(100 * covered, 1) + " % of " + fixed(1e3 * points.run_seconds, 3) + " ms\n");
    constexpr double kAbove = 1.1;  // roofs are measured
    print_bounds(phases, peaks, std::ranges::count_if(rows, [](const auto& row) {
                     return row.second.seconds > 0 && row.second.of_peak() > kAbove;
                 }));
    return 0;
}

}  // namespace

Verb add_roofline(CLI::App& trace) {
    auto args = std::make_shared<RooflineArgs>();
    auto* verb = trace.add_subcommand("roofline", "Shows GB/s, GMAC/s and the nearer roof of each group of steps.");
    args->add_file(*verb);
    args->add_model(*verb);
    args->add_selection(*verb);
    verb->add_option("--by", args->by, "role (of the weights read), tensor, op, kernel, part, layer, phase")
        ->check(one_of({"role", "tensor", "op", "kernel", "part", "layer", "phase"}))
        ->type_name("WHAT")
        ->group("Output");
    verb->add_option("--peaks", args->peaks_file,
                     "what the machine can do, in place of what the trace says: what `bench --json` printed, or "
                     "{\"gbps\": 20, \"gmacs\": 300}")
        ->type_name("FILE")
        ->group("Output");
    args->add_output(*verb);
    verb->footer("\nBytes are streamed bytes: unique bytes times the times a kernel walks them.\n\nExamples:\n"
                 "  tinfer trace roofline t.tntrace --by part --phase decode\n  tinfer trace roofline t.tntrace "
                 "--peaks peaks.json --json");
    return [args] { return show_roofline(*args); };
}

}  // namespace tinfer::app
