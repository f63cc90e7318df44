// SPDX-License-Identifier: MIT
// tinfer imatrix: what the columns of each weight are multiplied with over a text, for `tinfer quantize --imatrix`.
#include "common.hpp"

#include <algorithm>

#include "output_file.hpp"
#include "windows.hpp"

namespace tinfer::app {

namespace {

struct ImatrixArgs {
    ModelArgs model;
    ContextArgs context;
    TextArgs text;
    std::string out, format = "gguf";
    std::vector<std::string> merged;
    int n_chunks = 0, save_every = 0;
    bool resumes = false, has_output = false, as_json = false;
};

/// What one window has shown. Its sums are rounded to float32, so that those of windows add up without rounding in
/// double, in any order: runs that are resumed or merged end in the bytes of one run.
tinfer::ImportanceFile window_importance(const ImatrixArgs& args, const tinfer::ImportanceMatrix& matrix,
                                         std::size_t length) {
    tinfer::ImportanceFile file;
    file.weights = matrix.weights();
    // The head sees the few rows that have outputs, which would be a poor sample.
    if (!args.has_output)
        std::erase_if(file.weights, [](const tinfer::ImportanceColumns& columns) {
            return columns.name == "output.weight" || columns.name == "token_embd.weight";
        });
    for (auto& columns : file.weights)
        for (double& sum : columns.sum_squares) sum = double{static_cast<float>(sum)};
    file.datasets = {args.text.file.empty() ? "-" : std::filesystem::path(args.text.file).filename().string()};
    file.n_chunks = 1;
    file.chunk_tokens = static_cast<std::uint32_t>(length);
    return file;
}

void save_importance(const ImatrixArgs& args, const tinfer::ImportanceFile& file) {
    const bool is_binary = args.format == "binary";
    tinfer::write_importance(args.out, file,
                             is_binary ? tinfer::ImportanceFormat::binary : tinfer::ImportanceFormat::gguf);
}

int report_importance(const ImatrixArgs& args, std::size_t tensors, std::size_t tokens) {
    if (args.as_json) print(tinfer::Json{{"tensors", tensors}, {"tokens", tokens}}.dump() + "\n");
    else print(args.out + ": " + counted(tensors, "tensor") + ", " + counted(tokens, "token") + "\n");
    return 0;
}

/// Files alone, without a model.
int merge_only(const ImatrixArgs& args) {
    tinfer::ImportanceFile sum;
    for (const auto& path : args.merged) tinfer::merge_importance(sum, tinfer::read_importance(path));
    save_importance(args, sum);
    return report_importance(args, sum.weights.size(), std::size_t{sum.n_chunks} * sum.chunk_tokens);
}

int imatrix(const ImatrixArgs& args) {
    std::vector<std::string> inputs = args.model.files;
    for (const auto& file : args.merged) inputs.push_back(file);
    if (!args.text.file.empty()) inputs.push_back(args.text.file);
    check_output(args.out, "--output", inputs);
    if (args.format == "binary" && args.resumes)
        throw UsageError("--resume needs --format gguf: the binary form keeps no counts");
    if (!args.text.given() && !args.merged.empty() && args.model.files.empty()) return merge_only(args);
    args.model.require();
    const auto text = args.text.read();
    const auto model = args.model.load();
    const auto length = static_cast<std::size_t>(args.context.n_ctx > 0 ? args.context.n_ctx : 512);
    const auto windows = cut_text(model.vocab(), text, length, 1, static_cast<std::size_t>(std::max(0, args.n_chunks)));

    tinfer::ImportanceFile sum;
    for (const auto& path : args.merged) tinfer::merge_importance(sum, tinfer::read_importance(path));
    std::size_t first = 0;
    if (args.resumes && std::filesystem::exists(args.out)) {
        const auto found = tinfer::read_importance(args.out);
        if (found.chunk_tokens != length)
            throw tinfer::Error(tinfer::ErrorCode::bad_parameter,
                                args.out + ": windows of " + std::to_string(found.chunk_tokens) + " tokens, here of " +
                                    std::to_string(length) + " (see --ctx)");
        first = std::min<std::size_t>(found.n_chunks, windows.count);
        sum = found;
        note(args.out + " has " + counted(first, "window") + " already");
    }

    const auto outputs = args.has_output ? WindowOutputs::all : WindowOutputs::last;
    ContextArgs context_args = args.context;
    context_args.n_ctx = -1;
    auto options = context_args.options(args.model, model.info(), static_cast<int>(length));
    options.n_ctx = options.n_batch = static_cast<int>(length);
    options.n_outputs = static_cast<int>(windows.n_outputs(outputs));
    tinfer::Context context(model, options);
    Progress progress("window");
    for (std::size_t i = first; i < windows.count; ++i) {
        const auto matrix = std::make_shared<tinfer::ImportanceMatrix>();
        const auto attached = context.attach(matrix);
        if (!windows.decode(context, i, outputs)) {
            if (args.resumes && i > first) {
                save_importance(args, sum);
                note(args.out + " has " + counted(i, "window") + ", --resume goes on from there");
            }
            return kInterrupted;
        }
        tinfer::merge_importance(sum, window_importance(args, *matrix, length));
        progress.update(i + 1 - first, windows.count - first);
        if (args.save_every > 0 && (i + 1 - first) % static_cast<std::size_t>(args.save_every) == 0)
            save_importance(args, sum);
    }
    progress.clear();
    save_importance(args, sum);
    return report_importance(args, sum.weights.size(), (windows.count - first) * length);
}

}  // namespace

Action add_imatrix(CLI::App& app) {
    auto args = std::make_shared<ImatrixArgs>();
    auto* command = app.add_subcommand("imatrix", "Collects the importance of columns over a text, for quantize.");
    args->text.add_to(*command);
    args->model.add_to(*command);
    command->add_option("-o,--output", args->out, "the file to write")->required()->type_name("FILE")->group("Output");
    command->add_option("--format", args->format, "gguf, or binary: the older form")
        ->check(one_of({"gguf", "binary"}))
        ->type_name("FORM")
        ->group("Output");
    command->add_option("--merge", args->merged, "add what this file has, of either form; without a model these alone")
        ->allow_extra_args(false)
        ->type_name("FILE")
        ->group("Input");
    command->add_flag("--resume", args->resumes, "go on from what -o has already; an interrupt saves what there is")
        ->group("Input");
    command->add_option("--save-every", args->save_every, "write -o after so many windows, too; 0 = at the end")
        ->check(whole())
        ->type_name("N")
        ->group("Output");
    command->add_flag("--process-output", args->has_output, "the head, too: every token has an output")->group("Input");
    command->add_option("--chunks", args->n_chunks, "stop after so many windows; 0 = all")
        ->check(whole())
        ->type_name("N")
        ->group("Text");
    command->add_flag("--json", args->as_json, "one JSON document")->group("Output");
    args->context.add_to(*command, "512");
    args->context.add_threads_to(*command);
    command->footer("\nExamples:\n  tinfer imatrix model-f16.gguf -f calibration.txt -o importance.gguf\n"
                    "  tinfer imatrix --merge a.gguf --merge b.dat -o both.gguf");
    return [args] { return imatrix(*args); };
}

}  // namespace tinfer::app
