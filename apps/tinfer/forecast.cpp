// SPDX-License-Identifier: MIT
// tinfer forecast: estimates tokens per second of a model before it is loaded. The file's directory gives the bytes and
// multiply-accumulates of a token. Their time on this machine is measured with samples: a few layers of the same sizes
// and types, run by the same kernels. If options give the roofs of another machine, times are fractions of these, as
// known from benchmarks. With --ram it tells what the same option of other commands gives (docs/paging.md): experts
// that are chosen and not in memory are read for a token, and of a dense model what does not fit. Which experts are
// chosen is the text's: a profile says it, or a hit rate, and without them it is assumed that all are chosen alike.
#include "common.hpp"
#include "expert_forecast.hpp"
#include "expert_profile.hpp"
#include "roof.hpp"
#include "sample_model.hpp"
#include "storage.hpp"
#include "trace/trace.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>
#include <vector>

namespace tinfer::app {

namespace {

// Fractions of the roofs that kernels reach (docs/performance.md): reading weights for one token; int8 products of
// prompts, less in narrow models, where quantization and norms weigh more; float products. AMX tiles exceed the
// instruction with which the peak is measured.
constexpr double kReadShare = 0.86, kInt8Share = 0.66, kNarrowColumns = 240, kFloatShare = 0.80, kAmxGain = 2.4;
// Bytes of the samples. Those for single tokens must be much larger than the caches.
constexpr std::uint64_t kTokenSample = std::uint64_t{1} << 30, kPromptSample = 256u << 20;
constexpr int kPromptLayers = 4, kSampleTokens = 16;
constexpr int kPromptTokens = 512;  // a micro-batch; longer prompts are several
constexpr std::size_t kRounds = 5, kFewRounds = 3;
constexpr double kSampleSeconds = 4;                // after this time a few rounds are enough
constexpr std::uint64_t kFaultRequest = 256 << 10;  // request size of page faults with the system's read-ahead
constexpr std::uint64_t kPagerRequest = 1 << 20;    // largest request of the pager
// Of the shorter of computing and reading experts, the part that goes on during the other: a layer's missing experts
// are known when its router has spoken, but what is read ahead keeps the storage busy (docs/paging.md).
constexpr double kExpertOverlap = 0.9;

struct ForecastArgs {
    ModelArgs model;
    ContextArgs context;
    std::string ram, disk, profile;
    double hit_rate = -1;  ///< negative: not given
    int depth = 0, prompt = 512;
    double stream_gbps = 0, int8_gmacs = 0, f32_gmacs = 0, disk_gbps = 0;
    bool as_json = false;
};

/// Work per generated token and per prompt token, computed from the directory.
struct Demand {
    std::uint64_t weight_bytes = 0;          ///< all weights of the file
    std::uint64_t token_bytes = 0;           ///< weights read per token
    std::uint64_t expert_bytes = 0;          ///< of these, weights of experts, which vary from token to token
    std::uint64_t all_experts = 0;           ///< bytes of all experts
    double token_int8 = 0, token_f32 = 0;    ///< multiply-accumulates per token, including the output head
    double prompt_int8 = 0, prompt_f32 = 0;  ///< per prompt token, without the output head
    std::int64_t n_embd = 0;
    std::size_t n_expert_used = 0;
};

bool is_f32_product(tinfer::DType type) {
    return type == tinfer::DType::f32 || type == tinfer::DType::f16 || type == tinfer::DType::bf16;
}

std::string architecture_of(const tinfer::ModelFile& file) {
    return file.metadata_value("general.architecture").value_or("");
}
/// 0 if the file does not say.
std::int64_t number_of(const tinfer::ModelFile& file, const std::string& key) {
    const auto text = file.metadata_value(key);
    std::int64_t value = 0;
    if (text) std::from_chars(text->data(), text->data() + text->size(), value);
    return value;
}

Demand demand_of(const tinfer::ModelFile& file) {
    const std::string arch = architecture_of(file);
    const std::int64_t n_expert = number_of(file, arch + ".expert_count"),
                       n_used = number_of(file, arch + ".expert_used_count");
    const bool tied = file.find("output.weight") == nullptr;
    Demand demand;
    demand.n_embd = number_of(file, arch + ".embedding_length");
    demand.n_expert_used = std::size_t(std::max<std::int64_t>(n_used, 0));
    for (const auto& tensor : file.tensors()) {
        demand.weight_bytes += tensor.bytes;
        const bool stacked = tensor.slice_bytes > 0 && n_expert > 0 && n_used > 0;
        const bool embedding = tensor.role == "token_embd" || tensor.role == "per_layer_token_embd";
        const bool head = tensor.role == "output" || (tensor.role == "token_embd" && tied);
        if (embedding && !head) {
            demand.token_bytes += tensor.row_bytes;
            continue;
        }
        const double share = stacked ? double(n_used) / double(n_expert) : 1;
        const auto bytes = std::uint64_t(double(tensor.bytes) * share);
        demand.token_bytes += bytes;
        if (stacked) demand.expert_bytes += bytes, demand.all_experts += tensor.bytes;
        if (tensor.n_dims < 2) continue;
        const double macs = share * double(tensor.ne[0]) * double(tensor.ne[1]) * double(tensor.ne[2]);
        const bool floats = is_f32_product(tensor.type);
        (floats ? demand.token_f32 : demand.token_int8) += macs;
        if (!head) (floats ? demand.prompt_f32 : demand.prompt_int8) += macs;
    }
    return demand;
}

struct Machine {
    int n_threads = 1;
    std::string isa;
    double stream = 0, int8 = 0, f32 = 0;  ///< per second
};

Machine this_machine(const ForecastArgs& args) {
    Machine machine;
    const auto tables = tinfer::available_isas();
    machine.isa = args.context.isa == "auto" ? std::string(to_string(tables.front())) : args.context.isa;
    machine.n_threads = args.context.n_threads > 0 ? args.context.n_threads
                                                   : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    return machine;
}

/// Measures the roofs that the options do not give.
void add_roofs(Machine& machine, const ForecastArgs& args, const Demand& demand) {
    machine.stream = 1e9 * args.stream_gbps;
    machine.int8 = 1e9 * args.int8_gmacs;
    machine.f32 = 1e9 * args.f32_gmacs;
    if (machine.stream > 0 && machine.int8 > 0 && machine.f32 > 0) return;
    roof::Team team(machine.n_threads);
    // A small model is read from caches, so the stream read uses as many bytes as a token, up to 1 GiB.
    const std::uint64_t bytes = std::clamp<std::uint64_t>(demand.token_bytes, 1 << 20, std::uint64_t{1} << 30);
    const auto roofs = roof::peaks(team, roof::level_of(machine.isa), bytes, 0.5);
    if (machine.stream <= 0) machine.stream = roofs.bytes;
    if (machine.int8 <= 0) machine.int8 = roofs.int8_macs;
    if (machine.f32 <= 0) machine.f32 = roofs.f32_macs;
}

/// Kernel seconds per token and per prompt token, with all weights in memory.
struct KernelTimes {
    double token_s = 0, prompt_s = 0;
    std::string bound = "kernels";
    Json samples;                    ///< null if computed from roofs
    std::int64_t sample_layers = 0;  ///< layers of the token samples
};

KernelTimes times_from_roofs(const Demand& demand, const Machine& machine, std::uint64_t cache_bytes, int n_prompt) {
    KernelTimes out;
    const double int8_share = kInt8Share * double(demand.n_embd) / (double(demand.n_embd) + kNarrowColumns) *
                              (machine.isa == "amx" ? kAmxGain : 1);
    const double int8_rate = machine.int8 * int8_share, f32_rate = machine.f32 * kFloatShare;
    const double read_s = double(demand.token_bytes + cache_bytes) / (kReadShare * machine.stream);
    const double compute_s = demand.token_int8 / int8_rate + demand.token_f32 / f32_rate;
    out.token_s = std::max(read_s, compute_s);
    out.bound = read_s >= compute_s ? "memory" : "compute";
    const double prompt_kernels = demand.prompt_int8 / int8_rate + demand.prompt_f32 / f32_rate;
    const double passes_s = double(demand.weight_bytes) / (kReadShare * machine.stream);  // once per micro-batch
    out.prompt_s =
        std::max(prompt_kernels * n_prompt, passes_s * std::ceil(n_prompt / double(kPromptTokens))) / n_prompt;
    return out;
}

double median(std::vector<double> list) {
    std::ranges::nth_element(list, list.begin() + std::ptrdiff_t(list.size() / 2));
    return list[list.size() / 2];
}

/// Time of a sample, and its amount of work: bytes for a token, products for a prompt.
struct SampleTime {
    std::int64_t n_layer = 0;
    double work = 0;
    std::vector<double> runs{};
    [[nodiscard]] double seconds() const { return median(runs); }
    [[nodiscard]] Json document() const { return {{"layers", n_layer}, {"work", work}, {"seconds", seconds()}}; }
};

/// Extrapolates to the whole model from samples with one and with several layers; the difference is the cost of layers,
/// the rest occurs once.
double seconds_of_whole(double work, const SampleTime& one, const SampleTime& several) {
    if (several.work <= one.work) return several.seconds() * work / several.work;
    const double of_work = std::max(several.seconds() - one.seconds(), 0.0) / (several.work - one.work);
    return several.seconds() + of_work * (work - several.work);
}

double prompt_work(const Demand& demand) { return demand.prompt_int8 + demand.prompt_f32; }

/// Samples alternate, so that noise affects them equally.
KernelTimes times_from_samples(const tinfer::ModelFile& file, const Demand& demand,
                               const tinfer::ContextOptions& options, std::uint64_t cache_bytes, int n_prompt) {
    const LayerSizes sizes = layer_sizes(file);
    const auto layers_in = [&](std::uint64_t bytes) {
        return std::clamp<std::int64_t>(std::int64_t(bytes / sizes.bytes), std::min<std::int64_t>(2, sizes.n_layer),
                                        sizes.n_layer);
    };
    const int n = std::min(n_prompt, kPromptTokens);
    const std::int64_t n_deep = layers_in(kTokenSample),
                       n_few = std::min<std::int64_t>(layers_in(kPromptSample), kPromptLayers);
    SampleModel one(file, 1, options, n), few(file, n_few, options, n), deep(file, n_deep, options, n);
    const Demand of_one = demand_of(one.model().file()), of_few = demand_of(few.model().file()),
                 of_deep = demand_of(deep.model().file());
    SampleTime token_of_one{1, double(of_one.token_bytes)}, token_of_several{n_deep, double(of_deep.token_bytes)},
        prompt_of_one{1, prompt_work(of_one)}, prompt_of_several{n_few, prompt_work(of_few)};
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t round = 0; round <= kRounds; ++round) {
        token_of_one.runs.push_back(one.token_seconds(kSampleTokens));
        token_of_several.runs.push_back(deep.token_seconds(kSampleTokens));
        prompt_of_one.runs.push_back(one.prompt_seconds(n));
        prompt_of_several.runs.push_back(few.prompt_seconds(n));
        if (round == 0)  // warm-up: makes plans
            for (SampleTime* each : {&token_of_one, &token_of_several, &prompt_of_one, &prompt_of_several})
                each->runs.clear();
        const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        if (spent > kSampleSeconds && round >= kFewRounds) break;
    }
    KernelTimes out;
    out.token_s = seconds_of_whole(double(demand.token_bytes), token_of_one, token_of_several) *
                  double(demand.token_bytes + cache_bytes) / double(demand.token_bytes);
    out.prompt_s = seconds_of_whole(prompt_work(demand), prompt_of_one, prompt_of_several);
    out.samples = {{"token", {token_of_one.document(), token_of_several.document()}},
                   {"prompt", {prompt_of_one.document(), prompt_of_several.document()}}};
    out.sample_layers = n_deep;
    return out;
}

struct Forecast {
    double prompt_s = 0, token_s = 0, token_best_s = 0;
    double resident = 1;              ///< fraction of the weights that stays in memory
    double hit_rate = 1;              ///< of experts
    std::string choices;              ///< what the hit rate is from; empty: no experts are read
    std::uint64_t storage_bytes = 0;  ///< per token
    std::string bound;
    bool fits = true, pages = false;  ///< pages: by the program (--ram), not by the system
};

/// What a model under a memory limit has where (docs/paging.md).
struct Places {
    std::uint64_t room = 0;      ///< for experts, or for tensors that are streamed
    std::uint64_t paged = 0;     ///< bytes of all experts
    std::uint64_t streamed = 0;  ///< of tensors that every pass reads
};

/// Nullopt where the limit is less than the least that works: the system has to choose then.
std::optional<Places> places_of(const ForecastArgs& args, const tinfer::ContextOptions& context, std::uint64_t limit) {
    auto options = args.model.options();
    options.memory_limit = limit;
    try {
        Places out;
        for (const auto& weight : tinfer::weight_placement(args.model.paths(), options)) {
            if (weight.place == tinfer::WeightPlace::paged) out.paged += weight.bytes;
            if (weight.place == tinfer::WeightPlace::streamed) out.streamed += weight.bytes;
        }
        out.room = tinfer::plan(args.model.paths().front(), options, context).weights_paged;
        return out;
    } catch (const tinfer::Error& error) {
        if (error.code() != tinfer::ErrorCode::limit_exceeded) throw;
        return std::nullopt;
    }
}

/// Of a model that the program pages.
Forecast forecast_paged(const ForecastArgs& args, const Demand& demand, const KernelTimes& kernels,
                        const Places& places, double disk_rate) {
    Forecast out;
    out.fits = false;
    out.pages = true;
    out.resident = 1 - double(places.paged + places.streamed - std::min(places.room, places.paged + places.streamed)) /
                           double(demand.weight_bytes);
    double pass_bytes = double(places.streamed), overlap = 1;  // the room of a stream keeps none of it
    double token_bytes = pass_bytes;
    if (places.paged > 0) {
        const double kept = std::min(1.0, double(places.room) / double(places.paged));
        out.choices = args.hit_rate >= 0 ? "stated" : args.profile.empty() ? "uniform" : "profile";
        out.hit_rate = args.hit_rate >= 0 ? args.hit_rate
                       : args.profile.empty()
                           ? kept
                           : expected_hit_rate(read_expert_profile(args.profile), demand.n_expert_used, kept);
        token_bytes = double(demand.expert_bytes) * (1 - out.hit_rate);
        pass_bytes = double(places.paged) * (1 - kept);  // a prompt chooses nearly all of them
        overlap = kExpertOverlap;
    }
    const double read_s = disk_rate > 0 ? token_bytes / disk_rate : 0;
    out.storage_bytes = std::uint64_t(token_bytes);
    out.bound = read_s > kernels.token_s ? "storage" : kernels.bound;
    out.token_best_s = std::max(read_s, kernels.token_s);
    out.token_s = out.token_best_s + (1 - overlap) * std::min(read_s, kernels.token_s);
    const double n_passes = std::ceil(args.prompt / double(kPromptTokens));
    out.prompt_s = std::max(kernels.prompt_s, disk_rate > 0 ? n_passes * pass_bytes / disk_rate / args.prompt : 0);
    return out;
}

/// Kernel and storage time of one token. `available`: bytes of memory for weights.
Forecast forecast_of(const Demand& demand, const KernelTimes& kernels, std::uint64_t available, double disk_rate,
                     int n_prompt) {
    Forecast out;
    out.bound = kernels.bound;
    out.fits = demand.weight_bytes <= available;
    // Storage: weights that every token reads are a loop, so they hit the cache all or not at all; experts vary, so the
    // fraction that fits hits.
    double best_bytes = 0;
    if (!out.fits) {
        const std::uint64_t steady = demand.token_bytes - demand.expert_bytes;
        const std::uint64_t dense = demand.weight_bytes - demand.all_experts;
        const bool keeps_steady = demand.all_experts > 0 && dense < available;
        out.resident = double(available) / double(demand.weight_bytes);
        if (keeps_steady) {
            const double hit = double(available - dense) / double(demand.all_experts);
            out.storage_bytes = std::uint64_t(double(demand.expert_bytes) * (1 - hit));
            best_bytes = double(out.storage_bytes);
        } else {
            out.storage_bytes = steady + demand.expert_bytes;
            best_bytes = double(demand.token_bytes) * (1 - out.resident);
        }
        out.bound = "storage";
    }
    const auto from_storage = [&](double bytes) { return out.fits || disk_rate <= 0 ? 0.0 : bytes / disk_rate; };
    // Reading and computing do not overlap, since page faults are synchronous.
    out.token_s = kernels.token_s + from_storage(double(out.storage_bytes));
    out.token_best_s = kernels.token_s + from_storage(best_bytes);
    const double n_passes = std::ceil(n_prompt / double(kPromptTokens));
    out.prompt_s = kernels.prompt_s + n_passes * from_storage(double(demand.weight_bytes)) / n_prompt;
    return out;
}

int forecast(const ForecastArgs& args) {
    args.model.require();
    const auto paths = args.model.paths();
    const auto file = args.model.open();
    const Demand demand = demand_of(file);
    auto options = args.context.options(args.model, {}, args.depth + args.prompt);
    if (options.n_ctx == 0)  // the trained length
        options.n_ctx = static_cast<int>(number_of(file, architecture_of(file) + ".context_length"));
    const auto plan = tinfer::plan(paths.front(), args.model.options(), options);
    const std::uint64_t ram = args.ram.empty() ? 0 : parse_size(args.ram, "--ram");
    const std::uint64_t taken = plan.context_total();
    if (ram > 0 && ram <= taken)
        throw tinfer::Error(tinfer::ErrorCode::no_room,
                            "the context alone takes " + size_text(taken) + ", --ram is " + size_text(ram));
    const std::uint64_t available = ram == 0 ? ~std::uint64_t{0} : ram - taken;
    const auto cache_bytes =
        std::uint64_t(double(plan.cache) * args.depth / std::max(options.n_ctx, 1)) + plan.recurrent;
    const bool by_roofs = args.stream_gbps > 0 || args.int8_gmacs > 0 || args.f32_gmacs > 0;
    Machine machine = this_machine(args);
    KernelTimes kernels;
    if (by_roofs) {
        add_roofs(machine, args, demand);
        kernels = times_from_roofs(demand, machine, cache_bytes, args.prompt);
    } else {
        kernels = times_from_samples(file, demand, options, cache_bytes, args.prompt);
    }
    const bool fits = demand.weight_bytes <= available;
    const auto places = fits ? std::nullopt : places_of(args, options, available);
    double disk_rate = 1e9 * args.disk_gbps;
    if (!fits && disk_rate <= 0)
        disk_rate = (args.disk.empty() ? measure_storage(paths.front(), 2.0).curve : read_storage_curve(args.disk))
                        .saturated_rate(places ? kPagerRequest : kFaultRequest);
    const Forecast out = places ? forecast_paged(args, demand, kernels, *places, disk_rate)
                                : forecast_of(demand, kernels, available, disk_rate, args.prompt);
    const Json document = {{"prompt_tps", 1 / out.prompt_s},
                           {"generation_tps", 1 / out.token_s},
                           {"generation_best_tps", 1 / out.token_best_s},
                           {"bound", out.bound},
                           {"fits", out.fits},
                           {"pages", out.pages},
                           {"hit_rate", out.hit_rate},
                           {"choices", out.choices},
                           {"weight_bytes", demand.weight_bytes},
                           {"bytes_per_token", demand.token_bytes + cache_bytes},
                           {"storage_bytes_per_token", out.storage_bytes},
                           {"macs_per_token", demand.token_int8 + demand.token_f32},
                           {"context_bytes", taken},
                           {"threads", machine.n_threads},
                           {"isa", machine.isa},
                           {"samples", kernels.samples},
                           {"stream_gbps", machine.stream / 1e9},
                           {"int8_gmacs", machine.int8 / 1e9},
                           {"f32_gmacs", machine.f32 / 1e9},
                           {"disk_gbps", disk_rate / 1e9}};
    if (args.as_json) {
        print_line(document);
        return 0;
    }
    print("prompt      " + fixed(1 / out.prompt_s, 1) + " t/s\n");
    print("generation  " + fixed(1 / out.token_s, 1) + " t/s, bound by " + out.bound + "\n");
    if (!out.choices.empty())
        print("            " + fixed(100 * out.hit_rate, 1) + " % of the chosen experts are in memory" +
              (out.choices == "profile"  ? ", by " + args.profile
               : out.choices == "stated" ? " (--hit-rate)"
                                         : " if all are chosen alike, which is the worst case: --expert-profile, "
                                           "--hit-rate") +
              "\n");
    if (!out.fits)
        print("            " + fixed(1 / out.token_best_s, 1) +
              (out.pages ? " t/s if all reading went on while something is computed\n"
                         : " t/s if the system kept the part that fits\n"));
    print("a token     reads " + size_text(demand.token_bytes) + " of " + size_text(demand.weight_bytes) +
          " of weights and " + size_text(cache_bytes) + " of the cache" +
          (out.fits ? std::string() : ", " + size_text(out.storage_bytes) + " from storage") + "\n");
    print("memory      " + size_text(taken) + " for the context" +
          (ram > 0 ? ", " + size_text(available) + " left for weights: they " + (out.fits ? "fit" : "do not fit")
                   : std::string()) +
          "\n");
    const std::string speed =
        by_roofs ? "reads " + fixed(machine.stream / 1e9, 1) + " GB/s, multiplies " + fixed(machine.int8 / 1e9, 1) +
                       " (int8) and " + fixed(machine.f32 / 1e9, 1) + " (f32) GMAC/s"
                 : "reads " + fixed(double(demand.token_bytes + cache_bytes) / kernels.token_s / 1e9, 1) +
                       " GB/s for a token, multiplies " + fixed(prompt_work(demand) / kernels.prompt_s / 1e9, 1) +
                       " GMAC/s for a prompt, by " + std::to_string(kernels.sample_layers) + " layers of zeros";
    print("machine     " + std::to_string(machine.n_threads) + " threads, " + machine.isa + ": " + speed +
          (out.fits ? std::string() : ", storage " + fixed(disk_rate / 1e9, 2) + " GB/s") + "\n");
    return 0;
}

}  // namespace

Action add_forecast(CLI::App& app) {
    auto args = std::make_shared<ForecastArgs>();
    auto* command = app.add_subcommand("forecast", "Tells tokens per second of a model before it is loaded.");
    args->model.takes_ram = false;  // this one counts the context, too
    args->model.add_to(*command);
    const std::string group = "Forecast";
    command->add_option("--ram", args->ram, "memory for weights and context, such as 16G; without it all fits")
        ->type_name("SIZE")
        ->group(group);
    command
        ->add_option("--expert-profile", args->profile,
                     "how often experts are chosen, by run --write-expert-profile: those chosen most often stay")
        ->type_name("FILE")
        ->group(group);
    command->add_option("--hit-rate", args->hit_rate, "share of the chosen experts that need no reading, 0 to 1")
        ->check(number(0, 1))
        ->type_name("N")
        ->default_str("")
        ->group(group);
    command->add_option("--prompt-tokens", args->prompt, "length of the prompt")
        ->check(whole(1))
        ->type_name("N")
        ->group(group);
    command->add_option("-d,--depth", args->depth, "tokens in the cache")->check(whole())->type_name("N")->group(group);
    command->add_flag("--json", args->as_json, "one JSON document")->group(group);
    const std::string roofs = "Roofs of another machine; this one is measured with layers of the model's sizes";
    const auto add_rate = [&](const std::string& name, double& value, const std::string& help) {
        command->add_option(name, value, help)
            ->check(number(1e-6, 1e9))
            ->type_name("N")
            ->default_str("measured")
            ->group(roofs);
    };
    add_rate("--stream-gbps", args->stream_gbps, "reading memory, GB/s of all threads");
    add_rate("--int8-gmacs", args->int8_gmacs, "products of 8-bit integers, 10^9 a second");
    add_rate("--f32-gmacs", args->f32_gmacs, "products of floats, 10^9 a second");
    add_rate("--disk-gbps", args->disk_gbps, "reading storage, GB/s");
    command->add_option("--disk", args->disk, "a curve by `tinfer trace disk`")->type_name("FILE")->group(roofs);
    args->context.add_to(*command);
    args->context.add_threads_to(*command);
    command->footer(
        "\nWhat does not fit into --ram is read when it is needed (docs/paging.md); where --ram is too small\n"
        "for that, everything is read for every token. Nothing of the file but its directory is read, unless\n"
        "storage is measured: layers of zeros of the same sizes and types are timed, up to a GiB, by way of\n"
        "the folder for temporary files.\n"
        "\nExamples:\n  tinfer forecast model.gguf\n  tinfer forecast model.gguf --ram 16G -d 8000 --json");
    return [args] { return forecast(*args); };
}

}  // namespace tinfer::app
