// SPDX-License-Identifier: MIT
// tinfer trace disk: measures read rates of a file's storage, as input for `io`, `experts` and `forecast`.
#include "../output_file.hpp"
#include "../storage.hpp"
#include "trace.hpp"

namespace tinfer::app {

namespace {

struct DiskArgs {
    std::string file, output;
    double seconds = 6;
    TableStyle style;
};

int measure_disk(const DiskArgs& args) {
    if (args.file.empty()) throw UsageError("a file to read is missing");
    check_output(args.output, "--output", std::span(&args.file, 1));
    const auto [curve, past_page_cache] = measure_storage(args.file, args.seconds);
    if (!past_page_cache)
        note("the system does not read past its page cache here: what is cached counts too", Look::warning);
    if (!args.output.empty()) write_file(args.output, storage_curve_csv(curve));
    Table table({{"request", Unit::bytes}, {"idle", Unit::gbps}, {"saturated", Unit::gbps}});
    for (const auto& point : curve.points()) table.add({point.request_bytes, point.idle / 1e9, point.saturated / 1e9});
    print_result(args.style, {{"past_page_cache", past_page_cache}}, "points", table);
    return 0;
}

}  // namespace

Verb add_disk(CLI::App& trace) {
    auto args = std::make_shared<DiskArgs>();
    auto* verb = trace.add_subcommand("disk", "Measures a storage: bytes per second against the size of requests.");
    const std::string group = "Measurement";
    verb->add_option("file", args->file, "any large file on it, such as the model")->type_name("FILE")->group(group);
    verb->add_option("-o,--output", args->output, "the curve as CSV, for --disk of io, experts and forecast")
        ->type_name("FILE")
        ->group(group);
    verb->add_option("--seconds", args->seconds, "how long")->check(number(0.1, 3600))->type_name("S")->group(group);
    verb->add_flag("--json", args->style.as_json, "one JSON document")->group(group);
    verb->footer(
        "\nidle: one request at a time; saturated: sixteen at once. Requests are at random places.\n"
        "\nExamples:\n  tinfer trace disk model.gguf -o disk.csv\n  tinfer trace io t.tntrace --disk disk.csv");
    return [args] { return measure_disk(*args); };
}

}  // namespace tinfer::app
