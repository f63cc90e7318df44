// SPDX-License-Identifier: MIT
// tinfer split, tinfer merge: one model file as several, and several as one. What is split and merged again has the
// bytes of before, where those lay as writers put them.
#include "common.hpp"
#include "model_names.hpp"

#include <algorithm>

#include "output_file.hpp"
#include "trace/trace.hpp"

namespace tinfer::app {

namespace {

struct SplitArgs {
    std::string in, out, max_size;
    std::uint64_t max_tensors = 0;
    bool as_json = false;
};

/// Copies metadata and tensors as they are and reports the files that came of it.
int copy_model(const SplitArgs& args, const tinfer::ModelFile& file, tinfer::ModelWriter& writer) {
    writer.copy_metadata(file);
    std::uint64_t total = 0, done = 0;
    for (const auto& tensor : file.tensors()) {
        writer.add_tensor(tensor);
        total += tensor.bytes;
    }
    Progress progress("MiB");
    for (const auto& tensor : file.tensors()) {
        if (interrupted()) throw tinfer::Error(tinfer::ErrorCode::cancelled, args.in + ": interrupted");
        writer.copy(tensor.id, file, tensor);
        done += tensor.bytes;
        progress.update(static_cast<std::size_t>(done >> 20), static_cast<std::size_t>(total >> 20));
    }
    const auto paths = writer.finish();
    progress.clear();
    tinfer::Json files = tinfer::Json::array();
    for (const auto& path : paths) {
        if (args.as_json) files.push_back(path.string());
        else print(path.string() + "  " + size_text(std::filesystem::file_size(path)) + "\n");
    }
    if (args.as_json) print(tinfer::Json{{"files", std::move(files)}}.dump() + "\n");
    return 0;
}

int split(const SplitArgs& args) {
    const std::uint64_t most = args.max_size.empty() ? 0 : parse_size(args.max_size, "--max-size");
    if (most == 0 && args.max_tensors == 0) throw UsageError("--max-size S or --max-tensors N is needed");
    const auto file = tinfer::ModelFile::open(args.in);
    tinfer::ModelWriter writer(args.out, {.max_file_bytes = most, .max_file_tensors = args.max_tensors});
    return copy_model(args, file, writer);
}

int merge(const SplitArgs& args) {
    const auto file = tinfer::ModelFile::open(args.in);
    std::vector<std::string> inputs;
    for (const auto& path : file.paths()) inputs.push_back(path.string());
    check_output(args.out, "OUT", inputs);
    tinfer::ModelWriter writer(args.out);
    return copy_model(args, file, writer);
}

}  // namespace

Action add_split(CLI::App& app) {
    auto args = std::make_shared<SplitArgs>();
    auto* command = app.add_subcommand("split", "Cuts a model file into several, which load as one.");
    takes_model(command->add_option("in", args->in, "the model file, or the first of several"), args->in)
        ->required()
        ->type_name("IN")
        ->group("Files");
    command->add_option("prefix", args->out, "writes PREFIX-00001-of-0000N.gguf and so on")
        ->required()
        ->type_name("PREFIX")
        ->group("Files");
    command->add_option("--max-size", args->max_size, "most bytes of a file, as 2G; a larger tensor has its own file")
        ->type_name("SIZE")
        ->group("Size");
    command->add_option("--max-tensors", args->max_tensors, "most tensors of a file")
        ->check(whole(1))
        ->type_name("N")
        ->group("Size");
    command->add_flag("--json", args->as_json, "one JSON document")->group("Output");
    command->footer("\nExamples:\n  tinfer split model.gguf model --max-size 2G\n"
                    "  tinfer run model-00001-of-00003.gguf -p 'Once upon a time'");
    return [args] { return split(*args); };
}

Action add_merge(CLI::App& app) {
    auto args = std::make_shared<SplitArgs>();
    auto* command = app.add_subcommand("merge", "Makes one model file of several.");
    takes_model(command->add_option("first", args->in, "the first of them, …-00001-of-0000N.gguf"), args->in)
        ->required()
        ->type_name("FIRST")
        ->group("Files");
    command->add_option("out", args->out, "the file to write")->required()->type_name("OUT")->group("Files");
    command->add_flag("--json", args->as_json, "one JSON document")->group("Output");
    command->footer("\nExamples:\n  tinfer merge model-00001-of-00003.gguf model.gguf\n"
                    "  tinfer merge model-00001-of-00003.gguf model.gguf --json");
    return [args] { return merge(*args); };
}

}  // namespace tinfer::app
