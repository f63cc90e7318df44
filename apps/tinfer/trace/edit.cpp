// SPDX-License-Identifier: MIT
// tinfer trace cut, recover, hash: new traces from old ones, and a 32-byte hash of what a trace recorded.
#include <filesystem>

#include "../output_file.hpp"
#include "trace.hpp"

namespace tinfer::app {

namespace {

/// Checks the output file before the work starts.
void check_target(const std::string& path, const std::string& trace, bool overwrite) {
    if (path.empty()) throw UsageError("a file to write is needed: -o FILE.tntrace");
    check_output(path, "--output", std::span(&trace, 1), overwrite);
}

void write_trace(const std::string& path, const std::vector<std::byte>& bytes) {
    write_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

struct EditArgs : TraceArgs {
    std::string output;
    bool overwrite = false, per_run = false;
    void add_target(CLI::App& verb) {
        verb.add_option("-o,--output", output, "the new trace")->type_name("FILE")->group("Trace");
        verb.add_flag("--overwrite", overwrite, "replace a file that is there")->group("Trace");
    }
};

int cut_trace(const EditArgs& args) {
    check_target(args.output, args.file, args.overwrite);
    const auto trace = args.open();
    const Selection selection = args.selection();
    tinfer::TraceCut what;
    what.layers.assign(selection.layers.begin(), selection.layers.end());
    for (const auto& run : trace.runs()) {
        const auto inside = [](const Selection::Ranges& ranges, std::uint64_t value) {
            return ranges.empty() ||
                   std::ranges::any_of(ranges, [&](const auto& r) { return value >= r.first && value <= r.second; });
        };
        const std::string phase(trace.session_value("phase." + std::to_string(run.record.phase)));
        if (inside(selection.runs, run.record.run) && inside(selection.tokens, run.record.decode) &&
            (selection.phases.empty() || selection.phases.contains(phase)))
            what.runs.emplace_back(run.record.run, run.record.run);
    }
    if (what.runs.empty()) throw tinfer::Error(tinfer::ErrorCode::bad_parameter, args.file + ": no run is left");
    const auto bytes = tinfer::cut(trace, what);
    write_trace(args.output, bytes);
    const auto part = tinfer::TraceReader::from_bytes(bytes, args.output);
    if (args.style.as_json)
        print_line({{"file", args.output},
                    {"runs", part.runs().size()},
                    {"events", part.header().n_events},
                    {"bytes", bytes.size()}});
    else
        note(args.output + ": " + counted(part.runs().size(), "run") + ", " + counted(part.header().n_events, "event") +
             ", " + size_text(bytes.size()));
    return 0;
}

std::uint64_t events_of(const tinfer::RecordedRun& run) {
    std::uint64_t n = 0;
    for (const auto& events : run.events) n += events.events.size();
    return n;
}

/// Lists what a recovered trace has lost, one line each.
std::vector<std::string> lost_parts(const tinfer::TraceReader& trace, const tinfer::TraceReader& whole) {
    std::vector<std::string> lost;
    if (whole.tensors().empty())
        lost.emplace_back("the list of tensors or their names are lost, and with them what events are about");
    if (whole.session().empty()) lost.emplace_back("the names of operations are lost, and with them all plans");
    if (whole.files().empty()) lost.emplace_back("the list of the model's files is lost");
    std::map<std::uint64_t, const tinfer::RecordedRun*> kept;
    for (const auto& run : whole.runs()) kept[run.record.run] = &run;
    for (const auto& run : trace.runs()) {
        const std::string name = "run " + std::to_string(run.record.run);
        const std::uint64_t before = events_of(run);
        const auto found = kept.find(run.record.run);
        if (!run.found || found == kept.end()) {
            lost.push_back(name + ": its beginning is lost, " + counted(before, "event") + " left out");
            continue;
        }
        const auto& now = *found->second;
        const std::uint64_t after = events_of(now);
        if (after < before)
            lost.push_back(name + ": " +
                           (whole.plan(run.record.plan) == nullptr ? "its plan is lost, " : "its steps are unknown, ") +
                           counted(before - after, "event") + " left out");
        else if (run.end && now.end && now.end->n_dropped > run.end->n_dropped)
            lost.push_back(name + ": " + std::to_string(now.end->n_dropped - run.end->n_dropped) + " of " +
                           counted(run.end->n_events, "event") + " lost");
        if (!run.end) lost.push_back(name + ": its end is lost");
        else if (!now.end) lost.push_back(name + ": records of its router are lost, so it counts as not ended");
    }
    return lost;
}

int recover_trace(const EditArgs& args) {
    check_target(args.output, args.file, args.overwrite);
    const auto trace = args.open_silently();
    const auto bytes = tinfer::recover(trace);
    write_trace(args.output, bytes);
    const auto whole = tinfer::TraceReader::from_bytes(bytes, args.output);
    std::uint64_t complete = 0, lost_bytes = 0;
    for (const auto& run : whole.runs()) complete += run.end && run.end->n_dropped == 0 ? 1 : 0;
    for (const auto& damage : trace.damage()) lost_bytes += damage.bytes;
    const auto lost = lost_parts(trace, whole);
    if (args.style.as_json) {
        print_line({{"file", args.output},
                    {"runs", whole.runs().size()},
                    {"complete_runs", complete},
                    {"events", whole.header().n_events},
                    {"dropped_events", whole.header().n_dropped},
                    {"lost_bytes", lost_bytes},
                    {"lost", lost},
                    {"bytes", bytes.size()}});
        return 0;
    }
    for (const auto& damage : trace.damage())
        note(counted(damage.bytes, "byte") + " at " + std::to_string(damage.offset) +
             " left out: " + harmless_text(damage.what));
    for (const auto& text : lost) note(text, Look::warning);
    note(args.output + ": " + counted(whole.runs().size(), "run") + ", " + std::to_string(complete) + " complete, " +
         counted(whole.header().n_events, "event") + ", " + counted(whole.header().n_dropped, "event") + " dropped, " +
         counted(lost_bytes, "byte") + " lost");
    return 0;
}

int hash_trace(const EditArgs& args) {
    const auto trace = args.open();
    const auto hash = tinfer::content_hash(trace);
    Table table({{"run", Unit::count}, {"hash"}});
    for (std::size_t i = 0; i < hash.runs.size(); ++i)
        table.add({trace.runs()[i].record.run, tinfer::to_hex(hash.runs[i])});
    if (args.style.as_json) {
        Json document = {{"hash", tinfer::to_hex(hash.all)}, {"file", args.file}};
        if (args.per_run) document["runs"] = table.to_json();
        print_line(document);
    } else if (args.style.as_csv) {
        print(args.per_run ? table.csv() : "hash\n" + tinfer::to_hex(hash.all) + "\n");
    } else {
        print(tinfer::to_hex(hash.all) + "  " + args.file + "\n");
        for (std::size_t i = 0; args.per_run && i < hash.runs.size(); ++i)
            print(tinfer::to_hex(hash.runs[i]) + "  run " + std::to_string(trace.runs()[i].record.run) + "\n");
    }
    return 0;
}

}  // namespace

Verb add_cut(CLI::App& trace) {
    auto args = std::make_shared<EditArgs>();
    auto* verb = trace.add_subcommand("cut", "Writes some runs or layers of a trace as a smaller one.");
    args->add_file(*verb);
    args->add_target(*verb);
    args->add_selection(*verb);
    args->add_output(*verb, false);
    verb->footer("\nExamples:\n  tinfer trace cut t.tntrace --run 3-10 -o part.tntrace\n"
                 "  tinfer trace cut t.tntrace --layer 5 --phase decode -o layer5.tntrace");
    return [args] { return cut_trace(*args); };
}

Verb add_recover(CLI::App& trace) {
    auto args = std::make_shared<EditArgs>();
    auto* verb =
        trace.add_subcommand("recover", "Writes what can be read of a damaged or unfinished trace, whole again.");
    args->add_file(*verb);
    args->add_target(*verb);
    args->add_output(*verb, false);
    verb->footer("\nExamples:\n  tinfer trace recover broken.tntrace -o whole.tntrace\n"
                 "  tinfer trace recover broken.tntrace -o whole.tntrace --overwrite --json");
    return [args] { return recover_trace(*args); };
}

Verb add_hash(CLI::App& trace) {
    auto args = std::make_shared<EditArgs>();
    auto* verb = trace.add_subcommand("hash", "Prints a hash of what was done: tokens, steps and ranges, no times.");
    args->add_file(*verb);
    verb->add_flag("--per-run", args->per_run, "also the hash of each run alone")->group("Output");
    args->add_output(*verb);
    verb->footer("\nExamples:\n  tinfer trace hash a.tntrace\n  tinfer trace hash a.tntrace --per-run --csv");
    return [args] { return hash_trace(*args); };
}

}  // namespace tinfer::app
