// SPDX-License-Identifier: MIT
// tinfer quantize: a model file in other types. Which tensor gets which is a mix that people know by name, changed by
// --tensor-type, or a recipe, or what is found by measuring for a budget of divergence or of bytes; the bytes depend on
// the file and the options alone.
#include "common.hpp"
#include "model_names.hpp"

#include <algorithm>

#include "output_file.hpp"
#include "quant_mix.hpp"
#include "quantize_steps.hpp"
#include "recipe.hpp"
#include "recipe_search.hpp"
#include "trace/trace.hpp"
#include "type_costs.hpp"

namespace tinfer::app {

namespace {

using tinfer::QuantizeSearch;

struct QuantizeArgs {
    std::string in, out, type, importance, search = "standard";
    std::string recipe, size, costs, types;
    double kl = -1;  ///< below 0: not given
    TextArgs text;
    std::vector<std::string> rules, groups;
    int n_threads = 0, n_ctx = 512, n_chunks = 4;
    bool pure = false, dry_run = false, requantizes = false, as_json = false;
};

std::vector<Step> plan_steps(const QuantizeArgs& args, const tinfer::ModelFile& file, bool has_importance) {
    MixRequest request{.type = &file_type(args.type), .pure = args.pure};
    for (const auto& text : args.rules) request.rules.push_back(parse_tensor_rule(text));
    MixModel model = mix_model_of(file);
    model.has_importance = has_importance;
    return steps_of(args.in, file, choose_types(mix_tensors_of(file), model, request), args.requantizes);
}

std::vector<Step> recipe_steps(const QuantizeArgs& args, const tinfer::ModelFile& file) {
    const auto recipe = parse_recipe(read_document(args.recipe, "--recipe"), args.recipe);
    return steps_of(args.in, file, types_by_recipe(file, recipe, args.recipe), args.requantizes);
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

/// What was found by measuring, beside the file.
struct Finding {
    FoundRecipe recipe;
    std::size_t n_windows = 0;  ///< that were held out
};

std::string summary_of(std::span<const Step> steps, std::uint64_t file_bytes, const std::string& hash) {
    const StepSizes sizes = sizes_of(steps);
    return size_text(file_bytes) + ", " + fixed(sizes.bpw(), 2) + " bits per weight (from " + size_text(sizes.source) +
           ")" + (hash.empty() ? "" : ", sha256 " + hash) + "\n";
}

tinfer::Json document_of(std::span<const Step> steps, std::uint64_t file_bytes, const std::string& hash,
                         const Finding* finding) {
    tinfer::Json types;
    for (const Step& step : steps)
        types.append(std::string(step.from->name), std::string(tinfer::to_string(step.type)));
    tinfer::Json document{{"bytes", file_bytes}, {"bpw", sizes_of(steps).bpw()}};
    if (!hash.empty()) document.append("sha256", hash);
    if (finding != nullptr) {
        const auto [kl, error] = finding->recipe.held_out.mean();
        document.append("kl", {{"mean", kl},
                               {"error", error},
                               {"windows", finding->n_windows},
                               {"expected", finding->recipe.expected_kl},
                               {"gap", finding->recipe.gap}});
    }
    document.append("types", std::move(types));
    return document;
}

/// The recipe as --recipe reads it, with what is known of it in comments.
std::string recipe_of(std::span<const Step> steps, const std::string& summary, const Finding& finding) {
    const auto [kl, error] = finding.recipe.held_out.mean();
    const double gap = finding.recipe.gap;
    return "# " + summary + "# mean KL " + fixed(kl, 6) + " ± " + fixed(error, 6) + " over " +
           counted(finding.n_windows, "window") + " that were held out, " + fixed(finding.recipe.expected_kl, 6) +
           " by the costs; " +
           (gap > 0 ? "no choice is better by more than " + fixed(100 * gap, 3) + " %" : "no choice is better") + "\n" +
           recipe_text(steps);
}

QuantizeSearch search_of(const QuantizeArgs& args) {
    return args.search == "thorough" ? QuantizeSearch::thorough : QuantizeSearch::standard;
}

int n_threads_of(const QuantizeArgs& args) { return args.n_threads > 0 ? args.n_threads : default_threads(); }

void write_quantized(const QuantizeArgs& args, const tinfer::ModelFile& file, std::span<const Step> steps,
                     std::uint32_t file_type_number, const TensorEncoder& encoder, const Finding* finding) {
    tinfer::ModelWriter writer(args.out);
    declare_steps(file, steps, file_type_number, writer);
    write_steps(file, steps, encoder, writer);
    const std::uint64_t bytes = writer.total_bytes();
    const auto hash = tinfer::to_hex(tinfer::sha256_file(writer.finish().front()));
    if (args.as_json) print_line(document_of(steps, bytes, hash, finding));
    else if (finding == nullptr) print(summary_of(steps, bytes, hash));
    else print(recipe_of(steps, summary_of(steps, bytes, hash), *finding));
}

// ---- By a budget ----------------------------------------------------------------------------------------------------

std::string hash_of_files(std::span<const std::string> paths) {
    std::string hashes;
    for (const auto& path : paths) hashes += tinfer::to_hex(tinfer::sha256_file(path));
    return paths.size() == 1 ? hashes : tinfer::to_hex(tinfer::sha256(std::as_bytes(std::span(hashes))));
}

CostConditions conditions_of(const QuantizeArgs& args, const tinfer::ModelFile& file, const TextWindows& measuring) {
    std::vector<std::string> paths;
    for (const auto& path : file.paths()) paths.push_back(path.string());
    return {hash_of_files(paths), tinfer::to_hex(tinfer::sha256(std::as_bytes(std::span(measuring.tokens)))),
            args.search,          args.importance.empty() ? "" : hash_of_files(std::span(&args.importance, 1)),
            measuring.length,     measuring.count};
}

/// What the file takes beside the tensors of the groups, and what padding may add.
std::uint64_t fixed_bytes(const QuantizeArgs& args, const tinfer::ModelFile& file,
                          std::span<const TensorGroup> groups) {
    std::vector<tinfer::DType> types;
    for (const auto& tensor : file.tensors()) types.push_back(tensor.type);
    const auto steps = steps_of(args.in, file, types, true);
    tinfer::ModelWriter writer(args.out);
    declare_steps(file, steps, 0, writer);
    std::uint64_t bytes = writer.total_bytes() + file.alignment();
    for (const auto& group : groups) bytes -= std::min(bytes, group.types.front().bytes);
    return bytes;
}

FoundRecipe find_recipe(const QuantizeArgs& args, const RecipeFinder& finder, std::uint64_t beside) {
    if (args.size.empty()) return finder.by_kl(args.kl);
    const std::uint64_t size = parse_size(args.size, "--size");
    if (size <= beside)
        throw tinfer::Error(tinfer::ErrorCode::limit_exceeded,
                            "--size " + args.size + ": what no type changes takes " + size_text(beside) + " already");
    return finder.by_size(size - beside);
}

int quantize_by_budget(const QuantizeArgs& args, const Importance* importance) {
    const auto text = args.text.read();
    std::vector<tinfer::DType> types;
    for (const auto& name : parse_words(args.types)) types.push_back(tensor_type(name, "--types"));
    const auto base = tinfer::Model::load(args.in);
    const auto length = static_cast<std::size_t>(args.n_ctx);
    const auto split = split_text(cut_text(base.vocab(), text, length, 2, 0), static_cast<std::size_t>(args.n_chunks));
    const TensorEncoder encoder(n_threads_of(args), search_of(args), importance);
    const MakeContextOptions context = [&](const tinfer::Model& model) {
        ContextArgs options;
        options.n_threads = args.n_threads;
        return options.options({}, model.info(), args.n_ctx);
    };
    auto groups = tensor_groups(base.file(), args.groups, types, args.requantizes);
    if (std::ranges::all_of(groups, [](const auto& group) { return group.types.size() < 2; }))
        throw UsageError(args.in + ": no tensor can have one of the types and be smaller (see --allow-requantize)");
    const std::uint64_t beside = fixed_bytes(args, base.file(), groups);
    CostFile costs(args.costs, conditions_of(args, base.file(), split.measuring));
    measure_costs({args.in, base, split.measuring, encoder, context, args.out + ".measured"}, groups, costs);
    const RecipeFinder finder({base, groups, split.held_out, encoder, context, args.out + ".trial"});
    const Finding finding{find_recipe(args, finder, beside), split.held_out.count};
    const auto steps = steps_of(args.in, base.file(), finding.recipe.types, args.requantizes);
    write_quantized(args, base.file(), steps, main_file_type(steps).number, encoder, &finding);
    return 0;
}

void check_usage(const QuantizeArgs& args) {
    const bool by_budget = args.kl >= 0 || !args.size.empty();
    const int given = (args.type.empty() ? 0 : 1) + (args.kl >= 0 ? 1 : 0) + (args.size.empty() ? 0 : 1) +
                      (args.recipe.empty() ? 0 : 1);
    if (given != 1) throw UsageError("one of TYPE, --recipe, --kl and --size is needed");
    if (args.type.empty() && (args.pure || !args.rules.empty()))
        throw UsageError("--pure and --tensor-type change what TYPE says: they go with no recipe");
    if (by_budget && args.dry_run) throw UsageError("--dry-run measures nothing: a budget needs a run");
    if (!by_budget && (args.text.given() || !args.costs.empty() || !args.types.empty() || !args.groups.empty()))
        throw UsageError("--prompt, --file, --costs, --types and --group go with --kl or --size");
    if (by_budget) args.text.require();
    if (!args.type.empty()) static_cast<void>(file_type(args.type));
    if (!args.size.empty()) static_cast<void>(parse_size(args.size, "--size"));
}

int quantize(const QuantizeArgs& args) {
    check_usage(args);
    std::vector<std::string> inputs{args.in};
    for (const auto* path : {&args.recipe, &args.importance, &args.text.file})
        if (!path->empty()) inputs.push_back(*path);
    if (!args.dry_run) check_output(args.out, "OUT", inputs);
    inputs.push_back(args.out);
    check_output(args.costs, "--costs", inputs);
    Importance importance;
    if (!args.importance.empty()) importance = importance_by_name(tinfer::read_importance(args.importance));
    const Importance* known = args.importance.empty() ? nullptr : &importance;
    if (args.type.empty() && args.recipe.empty()) return quantize_by_budget(args, known);

    const auto file = tinfer::ModelFile::open(args.in);
    const auto steps = args.recipe.empty() ? plan_steps(args, file, known != nullptr) : recipe_steps(args, file);
    const std::uint32_t number = args.recipe.empty() ? file_type(args.type).number : main_file_type(steps).number;
    if (!args.dry_run) {
        write_quantized(args, file, steps, number, {n_threads_of(args), search_of(args), known}, nullptr);
        return 0;
    }
    tinfer::ModelWriter writer(args.out.empty() ? args.in : args.out);
    declare_steps(file, steps, number, writer);
    if (args.as_json) print_line(document_of(steps, writer.total_bytes(), {}, nullptr));
    else print_steps(steps), print(summary_of(steps, writer.total_bytes(), {}));
    return 0;
}

std::string type_names() {
    std::string names;
    for (const FileType& type : file_types()) names += (names.empty() ? "" : ", ") + std::string(type.name);
    return names;
}

void add_budget(CLI::App& command, QuantizeArgs& args) {
    command.add_option("--kl", args.kl, "in place of TYPE: the smallest file that diverges by X nats at most")
        ->check(number(0, 1e6))
        ->type_name("X")
        ->group("Budget");
    command.add_option("--size", args.size, "in place of TYPE: the file of so many bytes at most that diverges least")
        ->type_name("S")
        ->group("Budget");
    command.add_option("--types", args.types, "types to choose from, as 'q4_k,q6_k'; usual ones without")
        ->type_name("LIST")
        ->group("Budget");
    command
        .add_option("--group", args.groups,
                    "tensors of a layer whose names match one of GLOBS, with commas, get one type: fewer to measure")
        ->allow_extra_args(false)
        ->type_name("GLOBS")
        ->group("Budget");
    command.add_option("--costs", args.costs, "keeps what is measured, and measures nothing again that it has")
        ->type_name("FILE")
        ->group("Budget");
    command.add_option("--chunks", args.n_chunks, "windows of the text that measure; others judge, four times as many")
        ->check(whole(1))
        ->type_name("N")
        ->group("Text");
}

}  // namespace

Action add_quantize(CLI::App& app) {
    auto args = std::make_shared<QuantizeArgs>();
    auto* command = app.add_subcommand("quantize", "Writes a model file in smaller types.");
    takes_model(command->add_option("in", args->in, "the model, in f32, f16 or bf16"), args->in)
        ->required()
        ->type_name("IN")
        ->group("Files");
    command->add_option("out", args->out, "the file to write")->required()->type_name("OUT")->group("Files");
    command->add_option("type", args->type, type_names())->type_name("TYPE")->group("Types");
    command->add_option("--recipe", args->recipe, "in place of TYPE: lines NAME=TYPE, as --kl and --size print them")
        ->type_name("FILE")
        ->group("Types");
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
    add_budget(*command, *args);
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
    command->add_option("-c,--ctx", args->n_ctx, "tokens of a window of the text")
        ->check(whole(4, 1 << 20))
        ->type_name("N")
        ->group("Text");
    args->text.add_to(*command);
    command->footer(
        "\nExamples:\n  tinfer quantize model-f16.gguf model-q4_k_m.gguf Q4_K_M\n"
        "  tinfer quantize model-f16.gguf small.gguf --size 0.8G --imatrix i.gguf -f text.txt > recipe.txt");
    return [args] { return quantize(*args); };
}

}  // namespace tinfer::app
