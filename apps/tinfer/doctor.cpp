// SPDX-License-Identifier: MIT
// tinfer doctor: names what limits speed here, with the figure that shows it, what helps, and what that gives; first
// what gives most.
#include "common.hpp"
#include "doctor_facts.hpp"
#include "roof.hpp"
#include "sample_model.hpp"
#include "storage.hpp"
#include "trace/trace.hpp"

#include <algorithm>
#include <map>
#include <thread>
#include <vector>

namespace tinfer::app {

namespace {

constexpr int kFound = 3;                         // exit code
constexpr double kLookSeconds = 0.5;              // at the load of the machine
constexpr double kFewBusy = 0.25;                 // processors that others may use without being named
constexpr double kCold = 0.02;                    // of a file outside the page cache
constexpr double kSlow = 0.8;                     // of memory's rate, below which a file's pages are named
constexpr double kSlowFormat = 0.5;               // the same of a format's kernels
constexpr std::uint64_t kRateBytes = 256u << 20;  // of layers that kernels are measured with
constexpr std::uint64_t kMemoryBytes = 1u << 30;  // of memory: more than caches hold
constexpr double kBitsOfFast = 4.5;               // of a weight in q4_k, whose kernels keep up with memory

struct DoctorArgs {
    ModelArgs model;
    std::string isa = "auto", system = "/";
    int n_threads = 0;
    bool as_json = false;
};

struct Finding {
    std::string name, figure, cure;
    double gain = 1;      ///< how many times as fast, at most; 1: it is not known how much
    std::string of = "";  ///< what gets faster, where it is not everything
};

std::string processors(double n) { return fixed(n, n == std::int64_t(n) ? 0 : 1); }

void judge_processors(const MachineFacts& machine, const DoctorArgs& args, std::vector<Finding>& out) {
    const int n_wanted = std::min(machine.n_cores, machine.n_allowed);
    if (machine.quota > 0 && machine.quota < n_wanted - 0.01)
        out.push_back(
            {"quota",
             "the control group allows " + processors(machine.quota) + " of " + processors(n_wanted) + " processors",
             "raise its cpu.max, or the container's --cpus", n_wanted / machine.quota});
    if (machine.n_allowed < machine.n_processors)
        out.push_back({"affinity",
                       "this process may use " + processors(machine.n_allowed) + " of " +
                           processors(machine.n_processors) + " processors",
                       "start it without taskset, or widen the mask",
                       double(machine.n_processors) / machine.n_allowed});
    if (machine.busy_by_others > kFewBusy)
        out.push_back({"load",
                       "other programs use " + fixed(machine.busy_by_others, 1) + " of " +
                           processors(machine.n_processors) + " processors",
                       "end them, or give tinfer fewer threads (-t)",
                       machine.n_processors / std::max(machine.n_processors - machine.busy_by_others, 0.5)});
    if (machine.clock_share < 0.95)
        out.push_back({"frequency",
                       "clocks are limited to " + fixed(100 * machine.clock_share, 0) + " % of what the processor has",
                       "choose the governor performance, or raise scaling_max_freq", 1 / machine.clock_share});
    if (machine.n_channels_used > 0 && machine.n_channels_used < machine.n_channels)
        out.push_back({"memory",
                       std::to_string(machine.n_channels_used) + " of " + std::to_string(machine.n_channels) +
                           " memory channels have modules",
                       "put a module into each channel", double(machine.n_channels) / machine.n_channels_used,
                       "generation"});
    if (machine.memory_speed > 0 && machine.memory_speed < 0.95 * machine.memory_possible)
        out.push_back({"memory",
                       "memory runs at " + std::to_string(machine.memory_speed) + " of the " +
                           std::to_string(machine.memory_possible) + " MT/s that its modules can",
                       "choose their profile in the firmware (XMP, EXPO)",
                       double(machine.memory_possible) / machine.memory_speed, "generation"});
    if (args.n_threads > machine.usable())
        out.push_back(
            {"threads",
             std::to_string(args.n_threads) + " threads on " + counted(std::uint64_t(machine.usable()), "core"),
             "-t " + std::to_string(machine.usable()) + ", or no -t"});
    else if (args.n_threads > 0 && args.n_threads < machine.usable())
        out.push_back({"threads",
                       counted(std::uint64_t(args.n_threads), "thread") + " on " +
                           counted(std::uint64_t(machine.usable()), "core"),
                       "-t " + std::to_string(machine.usable()) + ", or no -t",
                       double(machine.usable()) / args.n_threads});
    if (machine.swapped_per_second > (1 << 20))
        out.push_back({"swap",
                       size_text(std::uint64_t(machine.swapped_per_second)) +
                           " a second come back from swap, which has " + size_text(machine.swap_used),
                       "use less memory: a smaller context, fewer programs, --ram", 2});
}

// A table that is not the best: the rates of its instructions are measured on one thread.
void judge_table(const DoctorArgs& args, std::vector<Finding>& out) {
    const std::string best(to_string(tinfer::available_isas().front()));
    if (args.isa == "auto" || args.isa == best) return;
    roof::Team team(1);
    const double chosen = roof::int8_dot_rate(team, roof::level_of(args.isa)),
                 possible = roof::int8_dot_rate(team, roof::level_of(best));
    out.push_back({"table",
                   "--isa " + args.isa + " multiplies " + fixed(chosen / 1e9, 1) + " GMAC/s on a thread, " + best +
                       " " + fixed(possible / 1e9, 1),
                   "leave --isa out", std::max(possible / std::max(chosen, 1.0), 1.0), "prompts"});
}

void judge_memory(const MachineFacts& machine, const ModelFacts& model, const DoctorArgs& args,
                  std::vector<Finding>& out) {
    const std::uint64_t ram = args.model.ram.empty() ? 0 : parse_size(args.model.ram, "--ram");
    const bool fits = machine.memory == 0 || model.weight_bytes <= machine.memory;
    const auto path = args.model.paths().front();
    const bool can_measure = model.file_bytes >= (4u << 20);
    if (!fits && ram == 0 && model.n_expert > 0)
        out.push_back({"ram",
                       "the weights take " + size_text(model.weight_bytes) + ", and " + size_text(machine.memory) +
                           " of memory are free: the page cache chooses what stays",
                       "--ram " + std::to_string(machine.memory * 8 / 10 >> 20) + "M (docs/paging.md)",
                       double(model.weight_bytes) / double(machine.memory), "generation"});
    else if (!fits && ram == 0)
        out.push_back({"ram",
                       "the weights take " + size_text(model.weight_bytes) + ", and " + size_text(machine.memory) +
                           " of memory are free: every token reads storage",
                       "a smaller quantization, or more memory", double(model.weight_bytes) / double(machine.memory)});
    if (ram > 0)
        static_cast<void>(tinfer::plan(path, args.model.options(), {.n_ctx = 64}));  // it throws where nothing runs
    if (ram > 0 && ram < model.weight_bytes && fits)
        out.push_back({"ram",
                       "--ram gives " + size_text(ram) + " to weights of " + size_text(model.weight_bytes) + ", and " +
                           size_text(machine.memory) + " of memory are free",
                       "leave --ram out, or give it more", double(model.weight_bytes) / double(ram), "generation"});
    if (ram > 0 && ram < model.weight_bytes && !model.unbuffered)
        out.push_back({"file system",
                       "it has no reads past the page cache, so experts are in memory twice for a moment",
                       "keep the file on a local disk (ext4, xfs, btrfs)", 1.1, "generation"});
    const std::uint64_t cold = model.file_bytes - std::min(model.cached_bytes, model.file_bytes);
    if (ram == 0 && fits && double(cold) > kCold * double(model.file_bytes)) {
        double seconds = 0;
        if (can_measure) {
            const double rate = measure_storage(path, 0.3).curve.saturated_rate(256 << 10);
            seconds = double(cold) / std::max(rate, 1.0);
        }
        out.push_back({"page cache",
                       size_text(cold) + " of " + size_text(model.file_bytes) + " are not in memory yet" +
                           (seconds > 0 ? ": " + fixed(seconds, 2) + " s of reading at the rate of this storage" : ""),
                       "--populate, or a first run", 1, "the first tokens"});
    }
}

/// The type of most of a file's bytes.
tinfer::DType main_type(const tinfer::ModelFile& file) {
    std::map<tinfer::DType, std::uint64_t> bytes;
    for (const auto& tensor : file.tensors()) bytes[tensor.type] += tensor.bytes;
    return std::ranges::max_element(bytes, {}, [](const auto& one) { return one.second; })->first;
}

/// Bytes of weights that kernels read in a second for single tokens, by a few layers of the model's sizes and types.
double kernel_rate(const tinfer::ModelFile& file, int n_threads) {
    const LayerSizes sizes = layer_sizes(file);
    const auto n_layers =
        std::clamp<std::int64_t>(std::int64_t(kRateBytes / std::max<std::uint64_t>(sizes.bytes, 1)), 1, sizes.n_layer);
    const tinfer::ContextOptions options{.n_ctx = 128, .n_threads = n_threads};
    SampleModel sample(file, n_layers, options, 1);
    std::uint64_t bytes = 0;
    for (const auto& tensor : sample.model().file().tensors())
        bytes += tensor.role == "token_embd" ? tensor.row_bytes : tensor.bytes;
    double best = 0;
    for (int i = 0; i < 3; ++i) best = std::max(best, double(bytes) / sample.token_seconds(8));
    return best;
}

// Generation reads all weights for a token: as fast as memory gives large pages, or as the processors multiply, if
// that is slower, where neither the file's pages nor its format are in the way. Models that caches hold, and mixtures,
// of which a token reads little, are left out.
void judge_rates(const MachineFacts& machine, const ModelFacts& model, const DoctorArgs& args,
                 std::vector<Finding>& out) {
    const bool fits = machine.memory == 0 || model.weight_bytes + kMemoryBytes <= machine.memory;
    const std::string best(to_string(tinfer::available_isas().front()));
    if (args.isa != "auto" && args.isa != best) return;  // which is what to begin with
    if (args.system != "/" || model.weight_bytes < kRateBytes || model.n_expert > 0 || !fits || !args.model.ram.empty())
        return;
    const tinfer::ModelFile file = args.model.open();
    const int n_threads = args.n_threads > 0 ? args.n_threads : machine.usable();
    roof::Team team(n_threads);
    const double memory = roof::read_rate(team, roof::LargePages(kMemoryBytes).bytes());
    const auto gbps = [](double rate) { return fixed(rate / 1e9, 1) + " GB/s"; };
    const double kernels = kernel_rate(file, n_threads);  // from memory that is not mapped
    if (model.cached_bytes >= model.file_bytes * 98 / 100)
        if (const double mapped = roof::file_read_rate(team, file), possible = std::min(memory, kernels);
            mapped > 0 && mapped < kSlow * possible)
            out.push_back({"pages",
                           "the file is read at " + gbps(mapped) + " from the page cache, where it lies in small " +
                               "pages, memory gives " + gbps(memory),
                           "--no-mmap, or let it be read anew (a file just written)", possible / mapped, "generation"});
    double n_weights = 0;
    for (const auto& tensor : file.tensors()) n_weights += double(tensor.ne[0] * tensor.ne[1] * tensor.ne[2]);
    const double bits = 8 * double(model.weight_bytes) / std::max(n_weights, 1.0);
    // The other type has more bytes, or fewer, and cannot be multiplied faster than the processors multiply.
    const double macs = roof::int8_dot_rate(team, roof::level_of(best));
    const double possible = std::min(memory / kBitsOfFast, macs / 8);  // weights a second, by 8
    if (const double gain = possible * bits / kernels; kernels < kSlowFormat * memory && gain > 1.2)
        out.push_back({"format",
                       std::string(tinfer::to_string(main_type(file))) + " weights are multiplied at " + gbps(kernels) +
                           " for a token, memory gives " + gbps(memory),
                       "a type whose kernels keep up, such as q4_k (tinfer quantize)", gain, "generation"});
}

int doctor(const DoctorArgs& args) {
    const MachineFacts machine = machine_facts(args.system, kLookSeconds);
    std::vector<Finding> findings;
    judge_processors(machine, args, findings);
    judge_table(args, findings);
    if (!args.model.files.empty()) {
        const ModelFacts model = model_facts(args.model);
        judge_memory(machine, model, args, findings);
        judge_rates(machine, model, args, findings);
    }
    std::ranges::stable_sort(findings, std::greater{}, &Finding::gain);
    Json rows = Json::array();
    std::string text;
    for (const Finding& finding : findings) {
        rows.push_back({{"name", finding.name},
                        {"figure", finding.figure},
                        {"cure", finding.cure},
                        {"gain", finding.gain},
                        {"of", finding.of}});
        const std::string of = finding.of.empty() ? "" : " (" + finding.of + ")";
        text += finding.name + std::string(finding.name.size() < 13 ? 13 - finding.name.size() : 1, ' ') +
                finding.figure + "; " + finding.cure + ": " +
                (finding.gain >= 1.05 ? "up to " + fixed(finding.gain, 1) + " × as fast" : "faster") + of + "\n";
    }
    if (args.as_json) print_line(rows);
    else print(findings.empty() ? "nothing found that limits speed\n" : text);
    return findings.empty() ? 0 : kFound;
}

}  // namespace

Action add_doctor(CLI::App& app) {
    auto args = std::make_shared<DoctorArgs>();
    auto* command = app.add_subcommand("doctor", "Names what limits speed on this machine, and what helps.");
    args->model.add_to(*command);
    const std::string group = "Doctor";
    command->add_option("-t,--threads", args->n_threads, "as you give it to other commands; 0 = their choice")
        ->check(whole(0))
        ->type_name("N")
        ->group(group);
    command->add_option("--isa", args->isa, "as you give it to other commands")->type_name("NAME")->group(group);
    command->add_flag("--json", args->as_json, "one JSON document")->group(group);
    command->add_option("--system", args->system, "folder with the proc and sys of another machine")
        ->type_name("FOLDER")
        ->group(rare(group));
    command->footer(
        "\nEach line: what was found, with its figure; what helps; how many times as fast that makes it at most.\n"
        "First what gives most. Exit code 0 where nothing is found, 3 where something is.\n"
        "\nExamples:\n  tinfer doctor\n  tinfer doctor model.gguf -t 4 --ram 16G");
    return [args] { return doctor(*args); };
}

}  // namespace tinfer::app
