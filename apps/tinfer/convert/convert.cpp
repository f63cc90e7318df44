// SPDX-License-Identifier: MIT
// tinfer convert: a published checkpoint to a GGUF file.
#include <tinfer/hash.hpp>
#include <tinfer/json.hpp>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "common.hpp"
#include "convert/planner.hpp"
#include "convert/text.hpp"
#include "convert/write_model.hpp"
#include "output_file.hpp"
#include "quant_mix.hpp"
#include "quantize_run.hpp"
#include "trace/trace.hpp"

namespace tinfer::app {

namespace {

namespace fs = std::filesystem;

struct ConvertArgs {
    std::string folder, out, type = "auto", name, pretokenizer, split_size;
    std::vector<std::string> rules;
    int n_threads = 0;
    bool dry_run = false, pure = false, as_json = false;
};

/// The type of `auto`: that of the first matrix of the checkpoint.
std::string type_of_checkpoint(const convert::WeightFiles& files) {
    for (const auto& tensor : files.tensors())
        if (tensor.shape.size() > 1 && convert::is_real(tensor.type))
            return tensor.type == convert::StoredType::f16    ? "F16"
                   : tensor.type == convert::StoredType::bf16 ? "BF16"
                                                              : "F32";
    return "F32";
}

/// What mixes ask of the model, from the keys that are written.
MixModel mix_model_of(const convert::Plan& plan) {
    MixModel model{.architecture = plan.architecture};
    const auto number = [&](std::string_view key) -> std::int64_t {
        const auto entry = std::ranges::find(plan.metadata, convert::cat(plan.architecture, ".", key),
                                             &convert::Metadata::value_type::first);
        if (entry == plan.metadata.end()) return 0;
        const auto* value = std::get_if<std::uint32_t>(&entry->second);
        return value == nullptr ? 0 : static_cast<std::int64_t>(*value);
    };
    model.n_layer = number("block_count");
    model.n_head = number("attention.head_count");
    model.n_head_kv = number("attention.head_count_kv");
    if (model.n_head_kv == 0) model.n_head_kv = model.n_head;
    model.n_expert = number("expert_count");
    return model;
}

/// Gives each tensor its type, and says where it is not the one that was asked for.
void choose_types(const ConvertArgs& args, const convert::WeightFiles& files, convert::Plan& plan) {
    MixRequest request{.type = &file_type(args.type == "auto" ? type_of_checkpoint(files) : args.type),
                       .pure = args.pure};
    for (const std::string& rule : args.rules) request.rules.push_back(parse_tensor_rule(rule));
    std::vector<MixTensor> tensors;
    for (const auto& tensor : plan.tensors) {
        MixTensor mixed{.name = tensor.name, .n_dims = static_cast<int>(tensor.ne.size())};
        std::ranges::copy(tensor.ne, mixed.ne.begin());
        tensors.push_back(mixed);
    }
    const auto types = app::choose_types(tensors, mix_model_of(plan), request);
    std::size_t n_other = 0;
    for (std::size_t i = 0; i < types.size(); ++i) {
        plan.tensors[i].type = types[i];
        n_other +=
            is_quantizable(tensors[i]) && type_for_rows(request.type->base, tensors[i].ne[0]) != request.type->base;
    }
    if (n_other > 0)
        plan.notes.push_back(counted(n_other, "tensor") + " with rows that are no whole blocks of " +
                             std::string(tinfer::to_string(request.type->base)) + ": another type");
    for (auto& [key, value] : plan.metadata)
        if (key == "general.file_type") value = request.type->number;
}

std::string column(std::string text, std::size_t width) {
    text.resize(std::max(text.size() + 1, width), ' ');
    return text;
}

void print_plan(const convert::Plan& plan) {
    for (const auto& tensor : plan.tensors) {
        std::string shape = "{", source;
        for (std::size_t d = 0; d < tensor.ne.size(); ++d) shape += (d > 0 ? ", " : "") + std::to_string(tensor.ne[d]);
        if (!tensor.parts.empty()) source = convert::shown(tensor.parts[0].source->name);
        if (!tensor.how.empty()) source += (source.empty() ? "" : ": ") + tensor.how;
        print(column(tensor.name, 32) + column(std::string(tinfer::to_string(tensor.type)), 8) +
              column(shape + "}", 20) + "<- " + source + "\n");
    }
}

/// Work that is not cut into pieces, as making room for a file and flushing it to storage: meanwhile Ctrl-C is heard,
/// and takes effect after it.
template <class Work>
auto uninterrupted(const Work& work) {
    const std::jthread listener([](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            (void)interrupted();
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
    });
    return work();
}

std::string hash_of(const std::vector<fs::path>& paths) {
    tinfer::Sha256 hash;
    std::vector<char> block(std::size_t{1} << 20);
    for (const fs::path& path : paths) {
        std::ifstream file(path, std::ios::binary);
        while (file.read(block.data(), static_cast<std::streamsize>(block.size())), file.gcount() > 0)
            hash.update(std::string_view(block.data(), static_cast<std::size_t>(file.gcount())));
    }
    return tinfer::to_hex(hash.finish());
}

void report(const ConvertArgs& args, std::size_t n_tensors, std::uint64_t bytes, const std::vector<fs::path>& paths) {
    if (!args.as_json) {
        print(counted(n_tensors, "tensor") + ", " + size_text(bytes) +
              (paths.empty() ? "" : " in " + paths[0].string()) +
              (paths.size() > 1 ? " and " + counted(paths.size() - 1, "more file") : "") + "\n");
        return;
    }
    tinfer::Json document{{"tensors", n_tensors}, {"bytes", bytes}};
    if (!paths.empty()) {
        document.append("sha256", hash_of(paths));
        tinfer::Json files = tinfer::Json::array();
        for (const fs::path& path : paths) files.push_back(path.string());
        document.append("files", std::move(files));
    }
    print(document.dump() + "\n");
}

int convert_checkpoint(const ConvertArgs& args) {
    if (args.out.empty() && !args.dry_run) throw UsageError("-o OUT is needed, or --dry-run");
    const tinfer::ModelWriterOptions options{
        .max_file_bytes = args.split_size.empty() ? 0 : parse_size(args.split_size, "--split-max-size")};
    if (!args.dry_run) check_output(args.out, "--output", std::vector{args.folder});
    const fs::path folder(args.folder);
    if (std::error_code error; !fs::is_directory(folder, error))
        throw tinfer::Error(tinfer::ErrorCode::io_error, args.folder + ": is no folder");
    const convert::WeightFiles files(folder);
    if (!args.dry_run) {
        std::vector<std::string> inputs;
        for (const fs::path& path : files.paths()) inputs.push_back(path.string());
        check_output(args.out, "--output", inputs);
    }
    auto plan = convert::make_plan(folder, files, {.name = args.name, .pretokenizer = args.pretokenizer});
    choose_types(args, files, plan);
    for (const std::string& text : plan.notes) note("convert: " + text, Look::warning);

    tinfer::ModelWriter writer(args.out.empty() ? "model.gguf" : args.out, options);
    if (args.dry_run) {
        convert::declare(plan, writer);
        if (!args.as_json) print_plan(plan);
        report(args, plan.tensors.size(), writer.total_bytes(), {});
        return 0;
    }
    watch_interrupts(true);
    Progress progress("M values");
    const auto go_on = [&](std::uint64_t done, std::uint64_t total) {
        progress.update(static_cast<std::size_t>(done / 1'000'000), static_cast<std::size_t>(total / 1'000'000));
        return !interrupted();
    };
    const int n_threads = args.n_threads > 0 ? args.n_threads : default_threads();
    const auto paths = uninterrupted([&] {
        convert::write_model(plan, files, writer, {.n_threads = n_threads, .progress = go_on});
        progress.clear();
        return writer.finish();
    });
    std::uint64_t bytes = 0;
    for (const fs::path& path : paths) bytes += fs::file_size(path);
    report(args, plan.tensors.size(), bytes, paths);
    return 0;
}

}  // namespace

Action add_convert(CLI::App& app) {
    auto args = std::make_shared<ConvertArgs>();
    auto* command =
        app.add_subcommand("convert", "Makes a GGUF file of a published checkpoint: config.json, safetensors.");
    command->add_option("folder", args->folder, "the folder of the checkpoint")
        ->required()
        ->type_name("DIR")
        ->group("Files");
    command->add_option("-o,--output", args->out, "the file to write")->type_name("FILE")->group("Output");
    command
        ->add_option(
            "--type", args->type,
            "auto: f32, f16 or bf16 as the checkpoint is; or any type that `tinfer quantize` writes, as Q8_0, Q4_K_M")
        ->type_name("TYPE")
        ->group("Types");
    command
        ->add_option(
            "--tensor-type", args->rules,
            "GLOB=TYPE: the type of tensors whose names match, as 'blk.0.*=q8_0'; the last that matches counts")
        ->type_name("RULE")
        ->group("Types");
    command->add_flag("--pure", args->pure, "the type itself for all matrices, without the mix of its name")
        ->group("Types");
    command->add_option("--name", args->name, "general.name; the folder's name where it is not given")
        ->type_name("TEXT")
        ->group("Model");
    command
        ->add_option("--pretokenizer", args->pretokenizer,
                     "the name of a pre-tokenizer, where that of the checkpoint is not known by its expressions")
        ->check(not_empty())
        ->type_name("NAME")
        ->group("Model");
    command->add_option("--split-max-size", args->split_size, "several files of at most this size, as 2G")
        ->type_name("SIZE")
        ->group("Output");
    command->add_option("-t,--threads", args->n_threads, "threads; the file does not depend on them")
        ->check(whole(0, 512))
        ->type_name("N")
        ->group("Threads");
    command->add_flag("--dry-run", args->dry_run, "a line for each tensor, and all checks; writes nothing")
        ->group("Output");
    command->add_flag("--json", args->as_json, "one JSON document")->group("Output");
    command->footer("\nExamples:\n  tinfer convert SmolLM2-135M-Instruct -o smollm2.gguf\n"
                    "  tinfer convert Llama-3.2-1B -o llama.gguf --type Q4_K_M");
    return [args] { return convert_checkpoint(*args); };
}

}  // namespace tinfer::app
