// SPDX-License-Identifier: MIT
// tinfer trace roofline: performance of groups of steps relative to the machine's roofs.
#include <algorithm>
#include <fstream>

#include "../json_input.hpp"
#include "trace.hpp"

namespace tinfer::app {

namespace {

struct RooflineArgs : TraceArgs {
    std::string by = "role", peaks_file;
};

struct Point {
    std::uint64_t calls = 0, bytes = 0, macs = 0;
    double seconds = 0;
};

class Points : public Visitor {
public:
    Points(const tinfer::TraceReader& of, const RooflineArgs& args) : Visitor(of, args.selection()), by_(args.by) {}
    void see(const tinfer::KernelEvent& event) override {
        Point& point = points[name_of(event)];
        ++point.calls;
        point.seconds += double(event.end - event.begin) / 1e9;
        point.macs += event.macs;
        for (const auto& access : event.accesses)
            if (!access.scratch && access.kind != tinfer::AccessKind::elided) point.bytes += streamed_bytes(access);
    }
    void end(const tinfer::RunResult& result) override { run_seconds += double(result.end - result.run->begin) / 1e9; }
    std::map<std::string, Point> points;
    double run_seconds = 0;

private:
    [[nodiscard]] std::string name_of(const tinfer::KernelEvent& event) const {
        const auto& step = *event.step;
        if (by_ == "op") return std::string(to_string(step.op));
        if (by_ == "kernel") return std::string(step.kernel);
        if (by_ == "part") return std::string(to_string(step.part));
        if (by_ == "layer") return layer_text(step.layer);
        if (by_ == "phase") return std::string(to_string(event.run->phase));
        std::string name;
        for (const auto& access : event.accesses) {
            if (!is_weight(access)) continue;
            const std::string one(by_ == "tensor" ? access.tensor->name : access.tensor->role);
            if (("+" + name + "+").find("+" + one + "+") == std::string::npos) name += (name.empty() ? "" : "+") + one;
        }
        return name.empty() ? "(" + std::string(to_string(step.op)) + ")" : name;
    }
    std::string by_;
};

/// Peak rates from a JSON file {"gbps":…,"gmacs":…}, or from the session; 0 if unknown.
std::pair<double, double> peaks_of(const tinfer::TraceReader& trace, const RooflineArgs& args) {
    const auto number = [&](std::string_view key) {
        const std::string text(trace.session_value(key));
        return text.empty() ? 0.0 : std::strtod(text.c_str(), nullptr) * 1e9;
    };
    if (args.peaks_file.empty()) return {number("read_gbps"), number("gmacs")};
    const Json peaks = parse_json(read_file(args.peaks_file), args.peaks_file);
    const auto rate = [&](std::string_view key) {
        const Json* const given = peaks.find(key);
        if (!peaks.is_object() || (given != nullptr && !given->is_number()))
            throw tinfer::Error(tinfer::ErrorCode::bad_parameter,
                                args.peaks_file + ": no JSON object with numbers gbps and gmacs");
        return given != nullptr ? given->get<double>() * 1e9 : 0.0;
    };
    return {rate("gbps"), rate("gmacs")};
}

int show_roofline(const RooflineArgs& args) {
    const auto trace = args.open();
    args.check_model(trace);
    const auto [bytes_peak, macs_peak] = peaks_of(trace, args);
    Points points(trace, args);
    points.visit();
    std::vector<std::pair<std::string, Point>> rows(points.points.begin(), points.points.end());
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
        const double memory = bytes_peak > 0 ? double(p.bytes) / bytes_peak : 0,
                     compute = macs_peak > 0 ? double(p.macs) / macs_peak : 0;
        const bool known = memory > 0 || compute > 0;
        table.add({name, p.calls, 1e3 * p.seconds, points.run_seconds > 0 ? p.seconds / points.run_seconds : 0, p.bytes,
                   p.macs, p.bytes > 0 ? double(p.macs) / double(p.bytes) : 0,
                   p.seconds > 0 ? double(p.bytes) / p.seconds / 1e9 : 0,
                   p.seconds > 0 ? double(p.macs) / p.seconds / 1e9 : 0,
                   known && p.seconds > 0 ? Cell(std::max(memory, compute) / p.seconds) : Cell(),
                   std::string(!known              ? "unknown"
                               : memory >= compute ? "memory"
                                                   : "compute")});
    }
    const double covered = points.run_seconds > 0 ? step_seconds / points.run_seconds : 0;
    print_result(args.style,
                 {{"run_ms", 1e3 * points.run_seconds},
                  {"step_ms", 1e3 * step_seconds},
                  {"covered", covered},
                  {"peak_gbps", bytes_peak / 1e9},
                  {"peak_gmacs", macs_peak / 1e9}},
                 "groups", table);
    if (!args.style.as_json && !args.style.as_csv)
        print("steps are " + fixed(100 * covered, 1) + " % of " + fixed(1e3 * points.run_seconds, 3) + " ms\n");
    if (!args.style.as_json && !args.style.as_csv && bytes_peak <= 0 && macs_peak <= 0)
        note("the trace does not say what the machine can do, so no roof is known (see --peaks)", Look::dim);
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
    verb->add_option("--peaks", args->peaks_file, "JSON with what the machine can do: {\"gbps\": 20, \"gmacs\": 300}")
        ->type_name("FILE")
        ->group("Output");
    args->add_output(*verb);
    verb->footer("\nBytes are streamed bytes: unique bytes times the times a kernel walks them.\n\nExamples:\n"
                 "  tinfer trace roofline t.tntrace --by part --phase decode\n  tinfer trace roofline t.tntrace "
                 "--peaks peaks.json --json");
    return [args] { return show_roofline(*args); };
}

}  // namespace tinfer::app
