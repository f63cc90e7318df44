// SPDX-License-Identifier: MIT
// tinfer bench: tokens per second of a prompt (pp), a generation (tg), one with drafts (dg) and a batch whose tokens
// are all outputs (b), compared with the machine's roofs, because tokens per second alone explain nothing: bytes of
// weights and cache against the stream read rate, multiply-accumulates against the peak rate of their instructions.
#include "adapters.hpp"
#include "common.hpp"
#include "long_run.hpp"
#include "roof.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

namespace tinfer::app {

namespace {

struct BenchArgs {
    ModelArgs model;
    ContextArgs context;
    AdapterArgs adapters;
    SpeculateArgs speculate;
    std::vector<int> prompts{512}, generations{128}, batches{}, depths{0}, threads{0};
    int repeats = 5;
    bool as_json = false, roofline = false;
};

struct Test {
    enum class Kind { prompt, generation, drafted, batch } kind;
    int n, depth;
    const tinfer::SpeculationOptions* speculation = nullptr;  ///< of `drafted`

    [[nodiscard]] std::string name() const {
        constexpr const char* kPrefixes[] = {"pp", "tg", "dg", "b"};
        return kPrefixes[static_cast<std::size_t>(kind)] + std::to_string(n) +
               (depth > 0 ? "@d" + std::to_string(depth) : "");
    }
};

/// Speed does not depend on the tokens. A linear congruential sequence, so that every run has the same.
std::vector<tinfer::Token> some_tokens(int count, int n_vocab) {
    std::vector<tinfer::Token> tokens;
    std::uint32_t state = 1;
    for (int i = 0; i < count; ++i) {
        state = state * 1664525 + 1013904223;
        tokens.push_back(tinfer::Token{static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(n_vocab))});
    }
    return tokens;
}

void require(tinfer::DecodeStatus status) {
    if (status == tinfer::DecodeStatus::cancelled) throw tinfer::Error(tinfer::ErrorCode::cancelled, "interrupted");
    if (status == tinfer::DecodeStatus::no_room)
        throw tinfer::Error(tinfer::ErrorCode::no_room, "the test does not fit the cache; give a larger -c");
}

/// The most probable text behind the first token, with drafts, as long as the test says.
tinfer::Timings generate_drafted(tinfer::Context& context, tinfer::Token first, int n,
                                 const tinfer::SpeculationOptions& speculation) {
    const tinfer::Vocab& vocab = context.model().vocab();
    tinfer::SamplerOptions greedy{.temp = 0};
    for (const tinfer::Token end : vocab.eog_tokens())
        greedy.logit_bias.push_back({end, -std::numeric_limits<float>::infinity()});
    tinfer::Sampler sampler(vocab, greedy);
    tinfer::Generation generation(vocab, {first}, {.n_predict = n, .speculation = speculation});
    if (generation.run(context, sampler) != tinfer::StopReason::limit) require(tinfer::DecodeStatus::no_room);
    return generation.timings();
}

struct BenchRun {
    double seconds = 0;
    tinfer::Timings timings{};  ///< of one with drafts
};

/// One run of a test on a cache that holds `depth` tokens before and after.
BenchRun run_once(tinfer::Context& context, const Test& test, std::span<const tinfer::Token> tokens) {
    const auto start = std::chrono::steady_clock::now();
    BenchRun run;
    switch (test.kind) {
        case Test::Kind::prompt: require(context.decode(tokens)); break;
        case Test::Kind::generation:
            for (const auto& token : tokens) require(context.decode(std::span(&token, 1)));
            break;
        case Test::Kind::drafted: run.timings = generate_drafted(context, tokens[0], test.n, *test.speculation); break;
        case Test::Kind::batch: {
            tinfer::Batch batch;
            for (const auto& token : tokens) batch.add(token, std::nullopt, {}, true);
            require(context.decode(batch));
            break;
        }
    }
    run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (test.depth == 0) context.clear();
    else if (context.seq_rm(tinfer::SeqId{0}, {tinfer::Pos{test.depth}}) != tinfer::RemoveStatus::ok)
        throw tinfer::Error(tinfer::ErrorCode::unsupported_operation,
                            "the cache of this model cannot be cut back; use -d 0");
    return run;
}

/// Peaks of the machine for one number of threads: the best so far, measured again before a test after ten seconds,
/// because the speed of a machine varies over time.
class Roofs {
public:
    Roofs(int n_threads, std::string_view isa, std::optional<tinfer::ModelFile> file)
        : team_(n_threads), level_(roof::level_of(isa)), file_(std::move(file)) {}
    const tinfer::RooflinePeaks& measure() {
        const auto now = std::chrono::steady_clock::now();
        if (best_.bytes > 0 && now - measured_at_ < std::chrono::seconds(10)) return best_;
        measured_at_ = now;
        const auto now_peaks = roof::peaks(team_, level_);
        best_.bytes = std::max(best_.bytes, now_peaks.bytes);
        if (file_) file_bytes_ = std::max(file_bytes_, roof::file_read_rate(team_, *file_));
        best_.int8_macs = std::max(best_.int8_macs, now_peaks.int8_macs);
        best_.f32_macs = std::max(best_.f32_macs, now_peaks.f32_macs);
        return best_;
    }
    [[nodiscard]] const tinfer::RooflinePeaks& best() const noexcept { return best_; }
    /// Bytes per second of reading the mapped file by the same loops; 0 if weights are not read from it.
    [[nodiscard]] double file_bytes() const noexcept { return file_bytes_; }

private:
    roof::Team team_;
    roof::Level level_;
    std::optional<tinfer::ModelFile> file_;
    double file_bytes_ = 0;
    tinfer::RooflinePeaks best_;
    std::chrono::steady_clock::time_point measured_at_{};
};

/// One run with an observer; null in builds without tracing.
std::shared_ptr<tinfer::Roofline> observe(tinfer::Context& context, const Test& test,
                                          std::span<const tinfer::Token> tokens, const tinfer::RooflinePeaks& peaks) {
    auto roofline = std::make_shared<tinfer::Roofline>(peaks);
    try {
        const auto attached = context.attach(roofline);
        run_once(context, test, tokens);
    } catch (const tinfer::Error& error) {
        if (error.code() != tinfer::ErrorCode::not_available) throw;
        run_once(context, test, tokens);
    }
    return roofline;
}

/// The work of a run: bytes of weights and cache, multiply-accumulates of weights.
struct Work {
    std::uint64_t weight_bytes = 0, cache_bytes = 0, macs = 0;
    double compute_seconds = 0;  ///< of the multiply-accumulates at peak rates

    explicit Work(const tinfer::Roofline& roofline) {
        for (const auto& row : roofline.rows()) {
            weight_bytes += row.weight_bytes;
            cache_bytes += row.cache_bytes;
            if (row.role.empty()) continue;
            macs += row.int8_macs + row.f32_macs;
            compute_seconds += row.compute_seconds;
        }
    }
};

Json row_line(const tinfer::RooflineRow& row, const tinfer::Roofline& roofline) {
    return {{"role", row.role},
            {"op", tinfer::to_string(row.op)},
            {"calls", row.calls},
            {"ms", 1e3 * row.seconds},
            {"share", 100 * row.seconds / roofline.run_seconds()},
            {"bytes", row.bytes},
            {"weight_bytes", row.weight_bytes},
            {"cache_bytes", row.cache_bytes},
            {"gbps", row.gbps()},
            {"gmacs", row.gmacs()},
            {"of_peak", 100 * row.of_peak()},
            {"bound", tinfer::to_string(row.bound())}};
}

struct Result {
    Json line;
    std::shared_ptr<tinfer::Roofline> roofline;  ///< of a run between the measured ones, with warm caches
};

Result measure(tinfer::Context& context, const Test& test, int repeats, Roofs& roofs) {
    const int n_vocab = context.model().info().n_vocab;
    context.clear();
    if (test.depth > 0) require(context.decode(some_tokens(test.depth, n_vocab)));
    const auto tokens = some_tokens(test.n, n_vocab);

    const auto& peaks = roofs.measure();
    run_once(context, test, tokens);  // warm-up: caches, pages and plans, after the roof measurement
    const auto roofline = observe(context, test, tokens, peaks);
    const Work work(*roofline);
    std::vector<double> seconds;
    tinfer::Timings timings;
    for (int i = 0; i < repeats; ++i) {
        const BenchRun run = run_once(context, test, tokens);
        seconds.push_back(run.seconds);
        timings = run.timings;
    }
    std::sort(seconds.begin(), seconds.end());
    const auto middle = seconds.size() / 2;
    const double median = seconds.size() % 2 == 1 ? seconds[middle] : (seconds[middle - 1] + seconds[middle]) / 2;
    const double bytes_rate = double(work.weight_bytes + work.cache_bytes) / median;
    Json line{{"test", test.name()},
              {"threads", context.options().n_threads},
              {"median", test.n / median},
              {"min", test.n / seconds.back()},
              {"max", test.n / seconds.front()},
              {"gbps", bytes_rate / 1e9},
              {"roof", 100 * bytes_rate / peaks.bytes},
              {"gmacs", double(work.macs) / median / 1e9},
              {"peak", 100 * work.compute_seconds / median},
              {"stream_gbps", peaks.bytes / 1e9},
              {"file_gbps", roofs.file_bytes() / 1e9},
              {"dot_gmacs", peaks.int8_macs / 1e9},
              {"fma_gmacs", peaks.f32_macs / 1e9},
              {"weight_bytes", work.weight_bytes},
              {"cache_bytes", work.cache_bytes}};
    if (test.kind == Test::Kind::drafted)
        line.update(
            Json{{"drafted_n", timings.drafted_n}, {"accepted_n", timings.accepted_n}, {"gain", timings.gain()}});
    return {std::move(line), roofline};
}

std::string join(std::span<const int> values) {
    std::string text;
    for (const int value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
    return text;
}

std::string padded(std::string text, std::size_t width) {
    return std::string(width - std::min(width, text.size()), ' ') + text;
}

void print_row(const Json& line) {
    std::string row = line.at("test").get<std::string>();
    row += std::string(row.size() < 14 ? 14 - row.size() : 1, ' ') +
           padded(std::to_string(line.at("threads").get<int>()), 3);
    for (const char* key : {"median", "min", "max"}) row += padded(fixed(line.at(key).get<double>(), 1), 10);
    row +=
        padded(fixed(line.at("gbps").get<double>(), 2), 9) + padded(fixed(line.at("roof").get<double>(), 1) + " %", 9);
    row += padded(fixed(line.at("gmacs").get<double>(), 1), 10) +
           padded(fixed(line.at("peak").get<double>(), 1) + " %", 9);
    if (line.contains("drafted_n"))
        row += "  " + std::to_string(line.at("accepted_n").get<int>()) + " of " +
               std::to_string(line.at("drafted_n").get<int>()) + " drafted tokens accepted, " +
               fixed(line.at("gain").get<double>(), 2) + " x as fast";
    print(row + "\n");
}

void print_roofline(const Json& test, const tinfer::Roofline& roofline, bool as_json) {
    if (!as_json) return print(roofline.report() + "\n");
    for (const auto& row : roofline.rows()) {
        Json line{{"test", test.at("test")}, {"threads", test.at("threads")}};
        line.update(row_line(row, roofline));
        print_line(line);
    }
}

int bench(const BenchArgs& args) {
    args.model.require();
    args.speculate.check();
    std::vector<Test> tests;
    std::int64_t longest = 0;
    for (const int depth : args.depths) {
        for (const int n : args.prompts) tests.push_back({Test::Kind::prompt, n, depth});
        for (const int n : args.generations) tests.push_back({Test::Kind::generation, n, depth});
        for (const int n : args.batches) tests.push_back({Test::Kind::batch, n, depth});
    }
    std::erase_if(tests, [](const Test& test) { return test.n <= 0; });
    if (tests.empty()) throw UsageError("nothing is measured: --prompt, --predict and --batches are all 0");
    for (const auto& test : tests) longest = std::max(longest, std::int64_t{test.depth} + test.n);
    constexpr std::int64_t kLongest = std::numeric_limits<int>::max();
    if (longest > kLongest)
        throw UsageError("--depth and the test behind it: " + std::to_string(longest) + " tokens, the limit is " +
                         std::to_string(kLongest));
    const auto model = args.model.load();
    const auto plain_tests = tests;

    if (!args.as_json) print("test          thr    median       min       max     GB/s     roof    GMAC/s     peak\n");
    for (const int threads : args.threads) {
        auto options = args.context.options(args.model, model.info(), static_cast<int>(longest));
        options.n_threads = options.n_threads_batch = threads;
        for (const auto& test : tests)
            if (test.kind == Test::Kind::batch) options.n_outputs = std::max(options.n_outputs, test.n);
        args.speculate.apply_to(options, model);
        const tinfer::SpeculationOptions speculation = args.speculate.get(model, options);
        tests = plain_tests;
        if (args.speculate.is_on() || options.draft_head != nullptr)
            for (const Test& test : plain_tests)
                if (test.kind == Test::Kind::generation)
                    tests.push_back({Test::Kind::drafted, test.n, test.depth, &speculation});
        tinfer::Context context(model, options);
        args.adapters.attach_to(context, args.model);
        const bool mapped = args.model.files.size() == 1 && !args.model.no_mmap;
        Roofs roofs(context.options().n_threads, context.isa(),
                    mapped ? std::optional(args.model.open()) : std::nullopt);
        for (const auto& test : tests) {
            const auto [line, roofline] = measure(context, test, args.repeats, roofs);
            if (args.as_json) print_line(line);
            else print_row(line);
            if (args.roofline) print_roofline(line, *roofline, args.as_json);
        }
        const auto& peaks = roofs.best();
        const auto giga = [](double rate) { return fixed(rate / 1e9, 1); };
        note(counted(static_cast<std::uint64_t>(context.options().n_threads), "thread") + ", " +
             std::string(context.isa()) + ": stream read " + giga(peaks.bytes) + " GB/s, the mapped file " +
             giga(roofs.file_bytes()) + " GB/s, dot product peaks " + giga(peaks.int8_macs) + " (int8) and " +
             giga(peaks.f32_macs) + " (f32) GMAC/s");
    }
    return 0;
}

/// Splits at commas; adjacent ones give empty items.
std::vector<std::string> between_commas(const std::string& text) {
    std::vector<std::string> parts(1);
    for (const char c : text)
        if (c == ',') parts.emplace_back();
        else parts.back() += c;
    return parts;
}

CLI::Validator whole_numbers() {
    return {[](std::string& text) {
                for (std::string& part : between_commas(text))
                    if (auto error = whole()(part); !error.empty()) return error;
                return std::string();
            },
            ""};
}

}  // namespace

Action add_bench(CLI::App& app) {
    auto args = std::make_shared<BenchArgs>();
    auto* command =
        app.add_subcommand("bench", "Measures tokens per second, with the share of what the machine can do.");
    args->model.add_to(*command);
    const auto add_list = [&](const std::string& names, std::vector<int>& values, const std::string& help) {
        const auto read = [&values](const std::vector<std::string>& texts) {
            values.clear();
            for (const std::string& text : texts)
                for (const std::string& part : between_commas(text)) values.push_back(std::stoi(part));
        };
        command->add_option_function<std::vector<std::string>>(names, read, help)
            ->check(whole_numbers())
            ->type_name("N,...")
            ->default_str(join(values))
            ->group("Tests");
    };
    add_list("-p,--prompt", args->prompts, "prompts of so many tokens; 0 = none");
    add_list("-n,--predict", args->generations, "generations of so many tokens; 0 = none");
    add_list("--batches", args->batches, "batches of so many tokens, every one an output; 0 = none");
    add_list("-d,--depth", args->depths, "tokens in the cache before");
    add_list("-t,--threads", args->threads, "thread counts; 0 = one per core");
    command->add_option("-r,--repeat", args->repeats, "runs of each test")
        ->check(whole(1, 1000))
        ->type_name("N")
        ->group("Tests");
    command->add_flag("--json", args->as_json, "one JSON document per line")->group("Tests");
    command->add_flag("--roofline", args->roofline, "for each test also a table by the role of the weights")
        ->group("Tests");
    args->context.add_to(*command, kDefaultContextOrMore);
    args->speculate.add_to(*command);
    args->adapters.add_to(*command);
    command->footer(
        "\nroof is the share of the stream read that weights and cache take, peak that of the dot products which the\n"
        "weights take, both measured in the same run. Generations with drafts (dg) follow where there is what drafts.\n"
        "\nExamples:\n  tinfer bench model.gguf --roofline\n"
        "  tinfer bench model.gguf -p 256,512 -n 64 -t 1,2 -r 3 --json");
    return [args] { return bench(*args); };
}

}  // namespace tinfer::app
