// SPDX-License-Identifier: MIT
// tinfer quantize: a model file in other types. Which tensor gets which is a mix that people know by name, changed by
// --tensor-type; the bytes depend on the file and the options alone.
#include "common.hpp"

#include <algorithm>

#include "output_file.hpp"
#include "quant_mix.hpp"
#include "quantize_run.hpp"

namespace tinfer::app {

namespace {

struct QuantizeArgs {
    std::string in, out, type, importance, search = "standard";
    std::vector<std::string> rules;
    int n_threads = 0;
    bool pure = false, dry_run = false, requantizes = false, as_json = false;
};

/// What becomes of one tensor.
struct Step {
    const tinfer::TensorInfo* from;
    tinfer::DType type;
    std::uint64_t bytes;
    [[nodiscard]] bool is_copy() const { return type == from->type; }
};

std::uint64_t bytes_as(const tinfer::TensorInfo& tensor, tinfer::DType type) {
    return tinfer::quantized_bytes(type, tensor.ne[0]) *
           static_cast<std::uint64_t>(tensor.ne[1] * tensor.ne[2] * tensor.ne[3]);
}

std::vector<Step> plan_steps(const QuantizeArgs& args, const tinfer::ModelFile& file, const MixRequest& request,
                             bool has_importance) {
    const auto tensors = mix_tensors_of(file);
    MixModel model = mix_model_of(file);
    model.has_importance = has_importance;
    const auto types = choose_types(tensors, model, request);
    std::vector<Step> steps;
    for (const auto& tensor : file.tensors()) {
        const Step step{&tensor, types[tensor.id], 0};
        const bool is_float = tensor.type == tinfer::DType::f32 || tensor.type == tinfer::DType::f16 ||
                              tensor.type == tinfer::DType::bf16;
        if (!step.is_copy() && !is_float && !args.requantizes)
            throw tinfer::Error(tinfer::ErrorCode::bad_parameter,
                                args.in + ": tensor '" + std::string(tensor.name) + "' is " +
                                    std::string(tinfer::to_string(tensor.type)) +
                                    " already: quantizing again adds to its loss (see --allow-requantize)");
        steps.push_back(step);
        steps.back().bytes = step.is_copy() ? tensor.bytes : bytes_as(tensor, step.type);
    }
    return steps;
}

std::string padded_name(std::string text, std::size_t width) {
    text.resize(std::max(text.size() + 1, width), ' ');
    return text;
}

void print_steps(std::span<const Step> steps) {
    for (const Step& step : steps) {
        std::string shape;
        for (int d = 0; d < step.from->n_dims; ++d)
            shape += (d > 0 ? " x " : "") + std::to_string(step.from->ne[static_cast<std::size_t>(d)]);
        print(padded_name(std::string(step.from->name), 32) + padded_name(shape, 20) +
              padded_name(std::string(tinfer::to_string(step.from->type)), 8) + "-> " +
              padded_name(std::string(tinfer::to_string(step.type)), 8) + size_text(step.bytes) + "\n");
    }
}

struct StepSizes {
    std::uint64_t source = 0, target = 0, elements = 0;
    [[nodiscard]] double bpw() const { return elements == 0 ? 0 : 8.0 * double(target) / double(elements); }
};

StepSizes sizes_of(std::span<const Step> steps) {
    StepSizes sizes;
    for (const Step& step : steps) {
        sizes.source += step.from->bytes;
        sizes.target += step.bytes;
        const auto& ne = step.from->ne;
        sizes.elements += static_cast<std::uint64_t>(ne[0] * ne[1] * ne[2] * ne[3]);
    }
    return sizes;
}

void write_tensors(const QuantizeArgs& args, const tinfer::ModelFile& file, std::span<const Step> steps,
                   std::uint32_t file_type_number, const TensorEncoder& encoder, tinfer::ModelWriter& writer) {
    const StepSizes sizes = sizes_of(steps);
    writer.copy_metadata(file);
    writer.set("general.quantization_version", std::uint32_t{2});
    writer.set("general.file_type", file_type_number);
    for (const Step& step : steps) writer.add_tensor(*step.from, step.type);
    Progress progress("MiB");
    std::uint64_t done = 0;
    const auto advance = [&](std::uint64_t bytes) {
        done += bytes;
        progress.update(static_cast<std::size_t>(done >> 20), static_cast<std::size_t>(sizes.source >> 20));
    };
    for (const Step& step : steps) {
        if (interrupted()) throw tinfer::Error(tinfer::ErrorCode::cancelled, args.in + ": interrupted");
        encoder.encode(
            file, *step.from, step.type, [&](std::span<const std::byte> bytes) { writer.write(step.from->id, bytes); },
            advance);
    }
}

void report_quantized(const QuantizeArgs& args, std::span<const Step> steps, std::uint64_t file_bytes,
                      const std::string& hash) {
    const StepSizes sizes = sizes_of(steps);
    if (!args.as_json) {
        print(size_text(file_bytes) + ", " + fixed(sizes.bpw(), 2) + " bits per weight (from " +
              size_text(sizes.source) + ")" + (hash.empty() ? "" : ", sha256 " + hash) + "\n");
        return;
    }
    tinfer::Json types;
    for (const Step& step : steps)
        types.append(std::string(step.from->name), std::string(tinfer::to_string(step.type)));
    tinfer::Json document{{"bytes", file_bytes}, {"bpw", sizes.bpw()}};
    if (!hash.empty()) document.append("sha256", hash);
    document.append("types", std::move(types));
    print(document.dump() + "\n");
}

int quantize(const QuantizeArgs& args) {
    MixRequest request{.type = &file_type(args.type), .pure = args.pure};
    for (const auto& text : args.rules) request.rules.push_back(parse_tensor_rule(text));
    if (!args.dry_run) check_output(args.out, "OUT", std::vector{args.in});
    const auto file = tinfer::ModelFile::open(args.in);
    Importance importance;
    if (!args.importance.empty()) importance = importance_by_name(tinfer::read_importance(args.importance));
    const auto steps = plan_steps(args, file, request, !args.importance.empty());

    tinfer::ModelWriter writer(args.out.empty() ? args.in : args.out);
    if (args.dry_run) {
        if (!args.as_json) print_steps(steps);
        writer.copy_metadata(file);
        writer.set("general.quantization_version", std::uint32_t{2});
        writer.set("general.file_type", request.type->number);
        for (const Step& step : steps) writer.add_tensor(*step.from, step.type);
        report_quantized(args, steps, writer.total_bytes(), {});
        return 0;
    }
    const auto search = args.search == "thorough" ? tinfer::QuantizeSearch::thorough : tinfer::QuantizeSearch::standard;
    const TensorEncoder encoder(args.n_threads > 0 ? args.n_threads : default_threads(), search,
                                args.importance.empty() ? nullptr : &importance);
    write_tensors(args, file, steps, request.type->number, encoder, writer);
    const std::uint64_t bytes = writer.total_bytes();
    const auto path = writer.finish().front();
    report_quantized(args, steps, bytes, tinfer::to_hex(tinfer::sha256_file(path)));
    return 0;
}

std::string type_names() {
    std::string names;
    for (const FileType& type : file_types()) names += (names.empty() ? "" : ", ") + std::string(type.name);
    return names;
}

}  // namespace

Action add_quantize(CLI::App& app) {
    auto args = std::make_shared<QuantizeArgs>();
    auto* command = app.add_subcommand("quantize", "Writes a model file in smaller types.");
    command->add_option("in", args->in, "the model, in f32, f16 or bf16")->required()->type_name("IN")->group("Files");
    command->add_option("out", args->out, "the file to write")->required()->type_name("OUT")->group("Files");
    command->add_option("type", args->type, type_names())->required()->type_name("TYPE")->group("Types");
    command
        ->add_option(
            "--tensor-type", args->rules,
            "GLOB=TYPE: the type of tensors whose names match, as 'blk.0.*=q8_0'; the last that matches counts")
        ->type_name("RULE")
        ->group("Types");
    command->add_flag("--pure", args->pure, "the type itself for all matrices, without the mix of its name")
        ->group("Types");
    command->add_flag("--allow-requantize", args->requantizes, "from types that are quantized already, at a loss")
        ->group("Types");
    command->add_option("--imatrix", args->importance, "importance of columns, of either public form")
        ->type_name("FILE")
        ->group("Search");
    command
        ->add_option("--search", args->search,
                     "standard: the bytes that others' quantizers write; thorough: smaller errors, many times the work")
        ->check(one_of({"standard", "thorough"}))
        ->type_name("HOW")
        ->group("Search");
    command->add_option("-t,--threads", args->n_threads, "threads; the file does not depend on them")
        ->check(whole(0, 512))
        ->type_name("N")
        ->group("Threads");
    command->add_flag("--dry-run", args->dry_run, "a line for each tensor, and the size; writes nothing")
        ->group("Output");
    command->add_flag("--json", args->as_json, "one JSON document")->group("Output");
    command->footer("\nExamples:\n  tinfer quantize model-f16.gguf model-q4_k_m.gguf Q4_K_M\n"
                    "  tinfer quantize model-f16.gguf small.gguf Q3_K_M --imatrix i.gguf --tensor-type 'blk.0.*=q6_k'");
    return [args] { return quantize(*args); };
}

}  // namespace tinfer::app
