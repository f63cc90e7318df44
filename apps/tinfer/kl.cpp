// SPDX-License-Identifier: MIT
// tinfer kl: how far a model file is from another over a text; with --swap what single tensors cost, without writing a
// file.
#include "common.hpp"
#include "model_names.hpp"

#include <algorithm>
#include <cmath>

#include "kl_runs.hpp"
#include "kl_svg.hpp"
#include "output_file.hpp"
#include "trace/trace.hpp"

namespace tinfer::app {

namespace {

struct KlArgs {
    std::string a, b, svg;
    ModelArgs model;  ///< options of loading
    ContextArgs context;
    TextArgs text;
    std::vector<std::string> swaps;
    int n_chunks = 0;
    bool each = false, as_json = false;
};

/// One comparison: b as a whole, or a with some tensors of b.
struct Comparison {
    std::string name;  ///< of the glob; empty: the whole file
    std::vector<std::string> tensors;
    std::uint64_t bytes_a = 0, bytes_b = 0;  ///< of the tensors that change, or of all
    [[nodiscard]] std::int64_t saved() const {
        return static_cast<std::int64_t>(bytes_a) - static_cast<std::int64_t>(bytes_b);
    }
};

std::uint64_t all_bytes(const tinfer::ModelFile& file) {
    std::uint64_t sum = 0;
    for (const auto& tensor : file.tensors()) sum += tensor.bytes;
    return sum;
}

Comparison swap_of(const std::string& glob, const tinfer::ModelFile& a, const tinfer::ModelFile& b) {
    Comparison out{glob, {}, 0, 0};
    for (const auto& tensor : a.tensors()) {
        const auto* other = matches_glob(glob, tensor.name) ? b.find(tensor.name) : nullptr;
        if (other == nullptr) continue;
        out.tensors.emplace_back(tensor.name);
        out.bytes_a += tensor.bytes;
        out.bytes_b += other->bytes;
    }
    if (out.tensors.empty()) throw UsageError("--swap '" + glob + "': no tensor of both files has such a name");
    return out;
}

std::vector<Comparison> comparisons_of(const KlArgs& args, const tinfer::ModelFile& a, const tinfer::ModelFile& b) {
    std::vector<Comparison> out;
    for (const auto& glob : args.swaps) {
        if (!args.each) {
            out.push_back(swap_of(glob, a, b));
            continue;
        }
        for (const auto& name : swap_of(glob, a, b).tensors)
            if (a.find(name)->type != b.find(name)->type) out.push_back(swap_of(name, a, b));
    }
    if (args.swaps.empty()) out.push_back({"", {}, all_bytes(a), all_bytes(b)});
    return out;
}

LoadModel loader_of(const KlArgs& args, const Comparison& comparison) {
    const auto options = args.model.options();
    if (comparison.tensors.empty()) return [b = args.b, options] { return tinfer::Model::load(b, options); };
    return [a = args.a, b = args.b, names = comparison.tensors, options] {
        const auto is_swapped = [&](std::string_view name) { return std::ranges::find(names, name) != names.end(); };
        return tinfer::load_swapped(a, b, is_swapped, options);
    };
}

/// The fields of the contract, in its order, then the others.
tinfer::Json document_of(const Comparison& comparison, const KlReport& report) {
    const auto all = tinfer::Json::parse(report.to_json().dump());
    const double ppl_a = all["ppl_base"].get<double>();
    tinfer::Json document;
    if (!comparison.name.empty()) document.append("swap", comparison.name);
    for (const char* name : {"mean_kl", "error", "median", "p99", "max", "top1"}) document.append(name, all[name]);
    document.append("ppl_a", ppl_a);
    document.append("ppl_b", ppl_a * all["ppl_ratio"].get<double>());
    document.append("bytes_a", comparison.bytes_a);
    document.append("bytes_b", comparison.bytes_b);
    if (!comparison.name.empty()) {
        document.append("tensors", comparison.tensors.size());
        document.append("saved", comparison.saved());
    }
    for (const auto& [name, value] : all.items())
        if (!document.contains(name)) document.append(name, value);
    return document;
}

/// What each saved byte costs, the cheapest first.
std::vector<std::size_t> by_cost(std::span<const Comparison> comparisons, std::span<const KlReport> reports) {
    std::vector<std::size_t> order(comparisons.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto cost = [&](std::size_t i) {
        const auto saved = static_cast<double>(comparisons[i].saved());
        return saved > 0 ? reports[i].mean().mean / saved : std::numeric_limits<double>::infinity();
    };
    std::ranges::stable_sort(order, {}, cost);
    return order;
}

std::string cost_column(std::string text, std::size_t width) {
    text.resize(std::max(text.size() + 1, width), ' ');
    return text;
}

void print_costs(std::span<const Comparison> comparisons, std::span<const KlReport> reports) {
    print(cost_column("mean KL", 22) + cost_column("saved", 12) + cost_column("KL per MiB", 14) + "tensors\n");
    for (const std::size_t i : by_cost(comparisons, reports)) {
        const auto [kl, error] = reports[i].mean();
        const double mib = static_cast<double>(comparisons[i].saved()) / 1048576;
        print(cost_column(fixed(kl, 6) + " ± " + fixed(error, 6), 23) + cost_column(fixed(mib, 2) + " MiB", 12) +
              cost_column(mib > 0 ? fixed(kl / mib, 6) : "-", 14) + comparisons[i].name + "\n");
    }
}

int kl(const KlArgs& args) {
    std::vector<std::string> inputs{args.a, args.b};
    if (!args.text.file.empty()) inputs.push_back(args.text.file);
    check_output(args.svg, "--svg", inputs);
    if (args.each && args.swaps.empty()) throw UsageError("--each needs --swap GLOB");
    const auto text = args.text.read();
    const auto base = tinfer::Model::load(args.a, args.model.options());
    const auto other = tinfer::ModelFile::open(args.b);
    const auto length = static_cast<std::size_t>(args.context.n_ctx > 0 ? args.context.n_ctx : 512);
    const auto windows = cut_text(base.vocab(), text, length, 1, static_cast<std::size_t>(std::max(0, args.n_chunks)));
    const auto comparisons = comparisons_of(args, base.file(), other);
    if (comparisons.empty()) throw UsageError("--swap: no tensor that matches has another type in " + args.b);
    std::vector<LoadModel> loaders;
    for (const auto& comparison : comparisons) loaders.push_back(loader_of(args, comparison));
    ContextArgs context = args.context;
    context.n_ctx = -1;
    const auto reports = compare_with_base(windows, base, loaders, [&](const tinfer::Model& model) {
        return context.options(args.model, model.info(), static_cast<int>(length));
    });
    if (!reports) return kInterrupted;
    for (std::size_t i = 0; args.as_json && i < reports->size(); ++i)
        print(document_of(comparisons[i], (*reports)[i]).dump() + "\n");
    if (!args.as_json && args.swaps.empty()) print((*reports)[0].text());
    else if (!args.as_json) print_costs(comparisons, *reports);
    if (args.svg.empty()) return 0;
    std::vector<KlPoint> points;
    for (std::size_t i = 0; i < reports->size(); ++i)
        points.push_back({comparisons[i].name.empty() ? args.b : comparisons[i].name,
                          static_cast<double>(comparisons[i].saved()) / 1048576, (*reports)[i].mean().mean});
    write_file(args.svg, kl_svg(points));
    return 0;
}

}  // namespace

Action add_kl(CLI::App& app) {
    auto args = std::make_shared<KlArgs>();
    auto* command = app.add_subcommand("kl", "Measures how far a model file is from another over a text.");
    takes_model(command->add_option("a", args->a, "the base, as the unquantized model"), args->a)
        ->required()
        ->type_name("A")
        ->group("Files");
    takes_model(command->add_option("b", args->b, "the file that is judged"), args->b)
        ->required()
        ->type_name("B")
        ->group("Files");
    args->text.add_to(*command);
    command
        ->add_option("--swap", args->swaps,
                     "A with the tensors of B whose names match, in place of B; a line for each of several")
        ->allow_extra_args(false)
        ->type_name("GLOB")
        ->group("Tensors");
    command->add_flag("--each", args->each, "a line for each single tensor that matches and has another type in B")
        ->group("Tensors");
    command->add_option("--chunks", args->n_chunks, "stop after so many windows; 0 = all")
        ->check(whole())
        ->type_name("N")
        ->group("Text");
    command->add_flag("--json", args->as_json, "one JSON document, or one for each --swap")->group("Output");
    command->add_option("--svg", args->svg, "divergence over bytes saved, as a picture")
        ->type_name("FILE")
        ->group("Output");
    args->context.add_to(*command, "512");
    args->context.add_threads_to(*command);
    command->footer("\nExamples:\n  tinfer kl model-f16.gguf model-q4_k_m.gguf -f text.txt\n"
                    "  tinfer kl model-f16.gguf model-q4_k_m.gguf -f text.txt --swap '*ffn_down*' --each --svg kl.svg");
    return [args] { return kl(*args); };
}

}  // namespace tinfer::app
