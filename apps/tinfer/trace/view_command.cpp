// SPDX-License-Identifier: MIT
// tinfer trace view: a self-contained HTML page that shows a trace, without network.

#include "../output_file.hpp"
#include "trace.hpp"
#include "view.hpp"

namespace tinfer::app {

namespace {

struct ViewArgs {
    std::string in, other, out, detail;
    std::uint64_t max_events = ViewOptions{}.max_events;
    bool allow_damage = false;
};

std::pair<std::uint64_t, std::uint64_t> parse_runs(const std::string& text) {
    std::size_t used = 0;
    try {
        const std::uint64_t first = std::stoull(text, &used);
        if (used == text.size()) return {first, first};
        if (text[used] == '-') {
            const std::string rest = text.substr(used + 1);
            const std::uint64_t last = std::stoull(rest, &used);
            if (used == rest.size() && last >= first) return {first, last};
        }
    } catch (const std::logic_error&) {  // not a number, or too large: refused below
    }
    throw UsageError("--detail " + text + ": give a run or runs, as in 3-10");
}

int view(const ViewArgs& args) {
    if (args.out.empty()) throw UsageError("a file to write is needed: -o FILE.html");
    ViewOptions options;
    options.max_events = args.max_events;
    if (!args.detail.empty()) options.detail = parse_runs(args.detail);
    const std::vector<std::string> inputs{args.in, args.other};
    check_output(args.out, "--output", inputs);
    std::vector<tinfer::TraceReader> traces;
    std::vector<ViewedTrace> viewed;
    try {
        for (const auto& in : inputs) {
            if (in.empty()) break;
            traces.push_back(tinfer::TraceReader::open(in));
            options.file_name = in.substr(in.find_last_of('/') + 1);
            viewed.push_back({options.file_name, pack_trace(traces.back(), options)});
        }
    } catch (const tinfer::Error& error) {
        throw ExitError(2, error.what());
    }
    OutputFile file(args.out);
    write_view(viewed, [&](std::string_view text) { file.write(text); });
    file.finish();
    for (std::size_t i = 0; i < traces.size(); ++i) report_damage(inputs[i], damage_of(traces[i]), args.allow_damage);
    return 0;
}

}  // namespace

Verb add_view(CLI::App& trace) {
    auto args = std::make_shared<ViewArgs>();
    auto* command = trace.add_subcommand("view", "Writes one page that shows a trace in any browser, without network.");
    const std::string group = "Page";
    command->add_option("trace", args->in, "a .tntrace file; without one, a page to drop files on")
        ->type_name("FILE")
        ->group(group);
    command->add_option("other", args->other, "a second one, shown beside it as `trace diff` tells it")
        ->type_name("OTHER")
        ->group(group);
    command->add_option("-o,--output", args->out, "the page")->type_name("FILE")->group(group);
    command->add_option("--max-events", args->max_events, "more are thinned: some runs keep theirs, totals of all stay")
        ->type_name("N")
        ->group(group);
    command
        ->add_option("--detail", args->detail,
                     "runs that keep theirs then, as in 3-10; default: the first and last ones")
        ->type_name("RUNS")
        ->group(group);
    add_allow_damage(*command, args->allow_damage);
    command->footer("\nExamples:\n  tinfer trace view t.tntrace -o t.html\n  tinfer trace view before.tntrace "
                    "after.tntrace -o both.html");
    return [args] { return view(*args); };
}

}  // namespace tinfer::app
