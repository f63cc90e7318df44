// SPDX-License-Identifier: MIT
// tinfer trace export: converts a trace to another format.
#include "export.hpp"

#include <cstdio>
#include <filesystem>

#include "../output_file.hpp"

namespace tinfer::app {

namespace {

struct Format {
    const char* name;
    void (*write)(const tinfer::TraceReader&, const ExportArgs&, Out&);
};
constexpr Format kFormats[] = {
    {"csv", export_csv},         {"chrome", export_chrome},     {"perfetto", export_perfetto},
    {"flat128", export_flat128}, {"dot", export_dot},           {"io", export_io},
    {"fio", export_fio},         {"cachesim", export_cachesim}, {"matrix", export_matrix},
    {"experts", export_experts}, {"routes", export_routes},     {"npz", export_npz}};

int export_trace(const ExportArgs& args) {
    for (const Format& format : kFormats) {
        if (args.format != format.name) continue;
        check_output(args.output, "--output", std::array{args.file, args.model});
        const auto trace = args.open();
        args.check_model(trace);
        Out out(args.output);
        format.write(trace, args, out);
        out.finish();
        return 0;
    }
    std::string known;
    for (const Format& format : kFormats) known += std::string(known.empty() ? "" : ", ") + format.name;
    if (args.format.empty()) throw UsageError("--format is needed: " + known);
    throw UsageError("--format: '" + args.format + "' is none of " + known);
}

}  // namespace

Out::Out(const std::string& path) {
    if (!path.empty()) file_.emplace(path);
}
void Out::flush() {
    if (file_) file_->write(pending_);
    else if (std::fwrite(pending_.data(), 1, pending_.size(), stdout) != pending_.size())
        throw tinfer::Error(tinfer::ErrorCode::io_error, "stdout: cannot be written");
    pending_.clear();
}
void Out::write(std::string_view bytes) {
    pending_ += bytes;
    if (pending_.size() >= (1u << 20)) flush();
}
void Out::finish() {
    flush();
    if (file_) file_->finish();
    else if (std::fflush(stdout) != 0) throw tinfer::Error(tinfer::ErrorCode::io_error, "stdout: cannot be written");
}

Verb add_export(CLI::App& trace) {
    auto args = std::make_shared<ExportArgs>();
    auto* verb = trace.add_subcommand(
        "export", "Writes a trace as CSV, for numpy, Chrome, Perfetto, Graphviz, fio and other tools.");
    args->add_file(*verb);
    args->add_model(*verb);
    args->add_selection(*verb);
    const std::string group = "Output";
    verb->add_option("--format", args->format,
                     "csv, chrome, perfetto, flat128, dot, io, fio, cachesim, matrix, experts, routes, npz")
        ->type_name("NAME")
        ->group(group);
    verb->add_option("-o,--output", args->output, "else to stdout")->type_name("FILE")->group(group);
    verb->add_flag("--events", args->events, "csv: one row per event, not per range")->group(group);
    verb->add_flag("--force", args->force, "chrome: more than two million slices, too")->group(group);
    verb->add_option("--page", args->page, "io, fio, cachesim --unit page: size of a page")
        ->type_name("SIZE")
        ->group(group);
    verb->add_option("--unit", args->unit, "cachesim: slice or page")
        ->check(one_of({"slice", "page"}))
        ->type_name("UNIT")
        ->group(group);
    verb->add_flag("--full", args->full, "dot: every layer, equal ones too")->group(group);
    verb->add_flag("--no-weights", args->no_weights, "dot: operations alone")->group(group);
    verb->add_flag("--steps", args->steps, "dot: kernels in place of operations")->group(group);
    verb->add_option("--dot-dir", args->dot_dir, "dot: every different plan as a file in this folder, with index.csv")
        ->type_name("DIR")
        ->group(group);
    verb->footer("\nExamples:\n  tinfer trace export t.tntrace --format chrome -o t.json\n  tinfer trace export "
                 "t.tntrace --format csv --phase decode > accesses.csv");
    return [args] { return export_trace(*args); };
}

}  // namespace tinfer::app
