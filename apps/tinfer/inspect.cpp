// SPDX-License-Identifier: MIT
// tinfer inspect: the contents of a file and the memory to run it. The CSV has one row per tensor; its index is the
// tensor's id in trace events, so the two can be joined.
#include <tinfer/placement.hpp>

#include "adapters.hpp"
#include "common.hpp"
#include "json_input.hpp"
#include "manifest.hpp"
#include "model_names.hpp"

#include <algorithm>

namespace tinfer::app {

namespace {

struct InspectArgs {
    ModelArgs model;
    ContextArgs context;
    std::string other, expected;
    bool as_json = false, as_csv = false, data_check = false, architectures = false, placement = false;
    bool manifest = false;
};

Json to_json(const tinfer::ModelInfo& info) {
    return {{"architecture", info.architecture},
            {"name", info.name},
            {"n_layer", info.n_layer},
            {"n_embd", info.n_embd},
            {"n_head", info.n_head},
            {"n_head_kv", info.n_head_kv},
            {"head_dim_k", info.head_dim_k},
            {"head_dim_v", info.head_dim_v},
            {"n_ff", info.n_ff},
            {"n_vocab", info.n_vocab},
            {"n_ctx_train", info.n_ctx_train},
            {"n_rot", info.n_rot},
            {"n_expert", info.n_expert},
            {"n_expert_used", info.n_expert_used},
            {"rope_freq_base", info.rope_freq_base},
            {"rope_freq_scale", info.rope_freq_scale},
            {"rms_eps", info.rms_eps},
            {"n_params", info.n_params},
            {"weight_bytes", info.weight_bytes}};
}

Json to_json(const tinfer::MemoryPlan& plan, int n_ctx) {
    return {{"n_ctx", n_ctx},
            {"weights_mapped", plan.weights_mapped},
            {"weights_copied", plan.weights_copied},
            {"weights_paged", plan.weights_paged},
            {"cache", plan.cache},
            {"recurrent", plan.recurrent},
            {"compute", plan.compute},
            {"outputs", plan.outputs},
            {"adapters", plan.adapters},
            {"fixed", plan.fixed},
            {"context_total", plan.context_total()},
            {"total", plan.total()}};
}

/// Hyper-parameters and memory plan; for files that are not a supported model, the reason.
Json describe_model(const InspectArgs& args, const tinfer::ModelFile& file) {
    if (Json adapter = describe_adapter(file); !adapter.is_null()) return {{"adapter", std::move(adapter)}};
    try {
        Json unused = Json::array();  // the loader's messages about unused tensors
        auto model_options = args.model.options();
        model_options.log = [&, log = model_options.log](tinfer::LogLevel level, std::string_view text) {
            constexpr std::string_view kBegin = "tensor '", kMiddle = "' is unused: ";
            if (const auto at = text.find(kMiddle); text.starts_with(kBegin) && at != std::string_view::npos)
                unused.push_back({{"name", std::string(text.substr(kBegin.size(), at - kBegin.size()))},
                                  {"why", std::string(text.substr(at + kMiddle.size()))}});
            if (log) log(level, text);
        };
        const auto model = tinfer::Model::load(args.model.paths(), model_options);
        const auto options = args.context.options(args.model, model.info(), 0);
        return {{"hyperparameters", to_json(model.info())},
                {"unused", unused},
                {"memory", to_json(tinfer::plan(model, options), options.n_ctx)}};
    } catch (const tinfer::Error& error) {
        using tinfer::ErrorCode;
        const auto of_the_moment = {ErrorCode::io_error, ErrorCode::truncated,
                                    ErrorCode::cancelled};  // the file was fine
        if (std::ranges::find(of_the_moment, error.code()) != of_the_moment.end()) throw;
        return {{"not_runnable", {{"code", tinfer::to_string(error.code())}, {"message", error.what()}}}};
    }
}

std::string column(std::string_view text, std::size_t width) {
    return std::string(text) + std::string(text.size() < width ? width - text.size() : 1, ' ');
}

std::string shape(const tinfer::TensorInfo& tensor) {
    std::string text = "{";
    for (int i = 0; i < tensor.n_dims; ++i)
        text += (i > 0 ? ", " : "") + std::to_string(tensor.ne[static_cast<std::size_t>(i)]);
    return text + "}";
}

/// Keys and texts come from the file, so control characters are removed for the terminal.
std::string harmless(std::string_view text, std::size_t limit) {
    std::string result;
    for (const char c : text) result += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '.' : c;
    if (result.size() > limit) {
        while (limit > 0 && (static_cast<unsigned char>(result[limit]) & 0xC0) == 0x80) --limit;
        result.resize(limit);
        result += "…";
    }
    return result;
}

void print_fields(std::string_view title, const Json& fields, bool sizes) {
    std::string text = std::string(title) + "\n";
    for (const auto& [name, value] : fields.items()) {
        const bool is_size = sizes && name != "n_ctx";
        const std::string shown = value.is_string() ? harmless(value.get<std::string>(), 80)
                                  : is_size         ? size_text(value.get<std::uint64_t>())
                                                    : value.dump();
        text += "  " + column(name, 18) + shown + "\n";
    }
    print(text + "\n");
}

void print_summary(const tinfer::ModelFile& file, const Json& model) {
    std::string text = "GGUF version " + std::to_string(file.version()) + ", alignment " +
                       std::to_string(file.alignment()) + "\n\nmetadata\n";
    for (const auto& entry : file.metadata())
        text += "  " + column(harmless(entry.key, 48), 44) +
                column(entry.count == 1 ? entry.type : entry.type + " × " + std::to_string(entry.count), 26) +
                harmless(entry.value, 72) + "\n";
    print(text + "\n");

    if (model.contains("adapter")) print_fields("adapter", model["adapter"], false);
    else if (model.contains("not_runnable"))
        print("not runnable: " + model["not_runnable"]["message"].get<std::string>() + "\n\n");
    else {
        print_fields("hyper-parameters", model["hyperparameters"], false);
        print_fields("memory", model["memory"], true);
        text = model["unused"].empty() ? "" : "unused\n";
        for (const Json& tensor : model["unused"])
            text += "  " + column(harmless(tensor["name"].get<std::string>(), 64), 44) +
                    tensor["why"].get<std::string>() + "\n";
        if (!text.empty()) print(text + "\n");
    }

    text = "types\n";
    for (const auto& [type, tensors, bytes] : file.type_mix())
        text +=
            "  " + column(tinfer::to_string(type), 10) + column(std::to_string(tensors), 6) + size_text(bytes) + "\n";
    text += "\ntensors\n";
    for (const auto& tensor : file.tensors())
        text += "  " + column(std::to_string(tensor.id), 5) + column(harmless(tensor.name, 64), 36) +
                column(tinfer::to_string(tensor.type), 9) + column(shape(tensor), 24) + size_text(tensor.bytes) + "\n";
    print(text);
}

/// Prints where each weight would be placed, without loading.
int print_placement(const InspectArgs& args) {
    const auto weights = tinfer::weight_placement(args.model.paths(), args.model.options());
    const auto name = [](tinfer::WeightPlace place) { return std::string(tinfer::to_string(place)); };
    Json rows = Json::array();
    std::string text = column("place", 10) + column("file", 6) + column("offset", 14) + column("bytes", 12) +
                       column("type", 9) + "tensor\n";
    for (const auto& weight : weights) {
        rows.push_back({{"tensor", weight.tensor},
                        {"type", tinfer::to_string(weight.type)},
                        {"bytes", weight.bytes},
                        {"place", name(weight.place)},
                        {"file", weight.file_index},
                        {"offset", weight.offset},
                        {"file_offset", weight.file_offset}});
        text += column(name(weight.place), 10) + column(std::to_string(weight.file_index), 6) +
                column(std::to_string(weight.offset), 14) + column(std::to_string(weight.bytes), 12) +
                column(tinfer::to_string(weight.type), 9) + harmless(weight.tensor, 64) + "\n";
    }
    if (args.as_json) print_line(rows);
    else print(text);
    return 0;
}

int inspect(const InspectArgs& args) {
    if (args.placement && args.as_csv) throw UsageError("--placement or --csv, not both");
    if (args.placement) return print_placement(args);
    if (args.as_json && args.as_csv) throw UsageError("--json or --csv, not both");
    if (args.architectures) {
        Json rows = Json::array();
        for (const auto& [name, memory, rope, tested_by] : tinfer::architectures())
            rows.push_back({{"name", name}, {"memory", memory}, {"rope", rope}, {"tested_by", tested_by}});
        if (args.as_json) print_line(rows);
        else
            for (const auto& row : rows)
                print(column(row["name"].get<std::string>(), 14) + column(row["memory"].get<std::string>(), 12) +
                      column(row["rope"].get<std::string>(), 12) + row["tested_by"].get<std::string>() + "\n");
        return 0;
    }

    const auto file = args.model.open();
    if (!args.other.empty()) return compare_files(file, tinfer::ModelFile::open(args.other), args.as_json);
    if (!args.expected.empty()) return check_expectation(file, args.expected, args.as_json);
    if (args.manifest) {
        print(manifest_of(file).dump({.indent = 1}) + "\n");
        return 0;
    }
    if (args.data_check) {
        file.check_data();
        note("data check: every block of " + std::to_string(file.tensors().size()) + " tensors is finite");
    }
    if (args.as_csv) {
        print(file.csv());
    } else if (args.as_json) {
        Json document = parse_json(file.json(), "metadata");
        document.update(describe_model(args, file));
        print_line(document);
    } else {
        print_summary(file, describe_model(args, file));
    }
    return 0;
}

}  // namespace

Action add_inspect(CLI::App& app) {
    auto args = std::make_shared<InspectArgs>();
    auto* command =
        app.add_subcommand("inspect", "Shows metadata, hyper-parameters, tensors, types and memory of a model file.");
    args->model.add_to(*command);
    takes_model(
        command->add_option("other", args->other, "another file: what differs, exit code 1 where anything does"),
        args->other)
        ->type_name("OTHER")
        ->group("Model");
    command->add_flag("--json", args->as_json, "one JSON document")->group("Output");
    command->add_flag("--manifest", args->manifest, "SHA-256 of each file, its metadata and each tensor, as JSON")
        ->group("Output");
    command
        ->add_option("--expect", args->expected,
                     "a SHA-256 of the file, or a manifest: what is otherwise is named, exit code 1")
        ->type_name("HASH|FILE")
        ->group("Output");
    command->add_flag("--csv", args->as_csv, "the tensor directory, one row per tensor")->group("Output");
    command
        ->add_flag("--data-check", args->data_check, "scan every block of every tensor for values that are not finite")
        ->group("Output");
    command->add_flag("--placement", args->placement, "where each weight would lie: mapped, or read (--no-mmap)")
        ->group("Output");
    command->add_flag("--architectures", args->architectures, "the architectures that this build runs; needs no file")
        ->group("Output");
    args->context.add_to(*command);
    args->context.add_threads_to(*command);
    command->footer("\nExamples:\n  tinfer inspect model.gguf --manifest > model.json\n"
                    "  tinfer inspect copy.gguf --expect model.json");
    return [args] { return inspect(*args); };
}

}  // namespace tinfer::app
