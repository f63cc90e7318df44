// SPDX-License-Identifier: MIT
// tinfer bench: tokens per second of a prompt (pp) and of a generation (tg), seen under the machine's own roofs, because
// decode is a bandwidth problem and tokens per second alone explain nothing. Bytes and multiply-accumulates are those of
// the kernel events of one untimed pass.
#include "common.hpp"
#include "roof.hpp"

#include <algorithm>
#include <chrono>

namespace cli {

namespace {

struct BenchArgs {
    ModelArgs model;
    ContextArgs context;
    std::vector<int> prompts{512}, generations{128}, depths{0}, threads{0};
    int repeats = 5;
    bool as_json = false;
};

struct Test {
    enum class Kind { prompt, generation } kind;
    int n, depth;

    [[nodiscard]] std::string name() const {
        return (kind == Kind::prompt ? "pp" : "tg") + std::to_string(n) + (depth > 0 ? "@d" + std::to_string(depth) : "");
    }
};

struct Work : tinfer::Observer {
    std::uint64_t bytes = 0, macs = 0;
    void on_events(std::span<const tinfer::KernelEvent> events) override {
        for (const auto& event : events) {
            bytes += event.bytes_read;
            macs += event.macs;
        }
    }
};

/// Any tokens will do: speed does not depend on them. A linear congruence, so that every run has the same.
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
    if (status == tinfer::DecodeStatus::no_room) throw tinfer::Error(tinfer::ErrorCode::no_room, "the test does not fit the cache; give a larger -c");
}

/// One run of a test on a cache that holds `depth` tokens, and holds them again afterwards. Seconds.
double run_once(tinfer::Context& context, const Test& test, std::span<const tinfer::Token> tokens) {
    const auto start = std::chrono::steady_clock::now();
    if (test.kind == Test::Kind::prompt) require(context.decode(tokens));
    else
        for (const auto& token : tokens) require(context.decode(std::span(&token, 1)));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (test.depth == 0) context.clear();
    else if (context.seq_rm(tinfer::SeqId{0}, tinfer::Pos{test.depth}) != tinfer::RemoveStatus::ok)
        throw tinfer::Error(tinfer::ErrorCode::unsupported_operation, "the cache of this model cannot be cut back; use -d 0");
    return seconds;
}

/// Bytes and macs of one run, counted by an observer; nothing in builds without tracing.
std::shared_ptr<Work> count_work(tinfer::Context& context, const Test& test, std::span<const tinfer::Token> tokens) {
    auto work = std::make_shared<Work>();
    try {
        const auto attached = context.attach(work);
        run_once(context, test, tokens);
    } catch (const tinfer::Error& error) {
        if (error.code() != tinfer::ErrorCode::not_available) throw;
        run_once(context, test, tokens);
    }
    return work;
}

struct Roofs { double stream = 0, dot = 0; };

json measure(tinfer::Context& context, const Test& test, int threads, int repeats, const Roofs& roofs) {
    const int n_vocab = context.model().info().n_vocab;
    context.clear();
    if (test.depth > 0) require(context.decode(some_tokens(test.depth, n_vocab)));
    const auto tokens = some_tokens(test.n, n_vocab);

    const auto work = count_work(context, test, tokens);   // warms caches and pages up, too
    std::vector<double> seconds;
    for (int i = 0; i < repeats; ++i) seconds.push_back(run_once(context, test, tokens));
    std::sort(seconds.begin(), seconds.end());
    const auto middle = seconds.size() / 2;
    const double median = seconds.size() % 2 == 1 ? seconds[middle] : (seconds[middle - 1] + seconds[middle]) / 2;
    const double bytes_rate = double(work->bytes) / median, mac_rate = double(work->macs) / median;
    return {{"test", test.name()}, {"threads", threads}, {"median", test.n / median}, {"min", test.n / seconds.back()},
            {"max", test.n / seconds.front()}, {"gbps", bytes_rate / 1e9}, {"roof", 100 * bytes_rate / roofs.stream},
            {"gmacs", mac_rate / 1e9}, {"peak", 100 * mac_rate / roofs.dot}, {"stream_gbps", roofs.stream / 1e9},
            {"dot_gmacs", roofs.dot / 1e9}};
}

std::string padded(std::string text, std::size_t width) { return std::string(width - std::min(width, text.size()), ' ') + text; }

void print_row(const json& line) {
    std::string row = line.at("test").get<std::string>();
    row += std::string(row.size() < 14 ? 14 - row.size() : 1, ' ') + padded(std::to_string(line.at("threads").get<int>()), 3);
    for (const char* key : {"median", "min", "max"}) row += padded(fixed(line.at(key).get<double>(), 1), 10);
    row += padded(fixed(line.at("gbps").get<double>(), 2), 9) + padded(fixed(line.at("roof").get<double>(), 1) + " %", 9);
    row += padded(fixed(line.at("gmacs").get<double>(), 1), 10) + padded(fixed(line.at("peak").get<double>(), 1) + " %", 9);
    print(row + "\n");
}

int bench(const BenchArgs& args) {
    const auto model = args.model.load();
    std::vector<Test> tests;
    int longest = 0;
    for (const int depth : args.depths) {
        for (const int n : args.prompts) tests.push_back({Test::Kind::prompt, n, depth});
        for (const int n : args.generations) tests.push_back({Test::Kind::generation, n, depth});
    }
    std::erase_if(tests, [](const Test& test) { return test.n <= 0; });
    for (const auto& test : tests) longest = std::max(longest, test.depth + test.n);

    if (!args.as_json) print("test          thr    median       min       max     GB/s     roof    GMAC/s     peak\n");
    for (const int threads : args.threads) {
        auto options = args.context.options(args.model, model.info(), longest);
        options.n_threads = options.n_threads_batch = threads;
        tinfer::Context context(model, options);
        const int effective = context.options().n_threads;
        roof::Team team(effective);
        const Roofs roofs{roof::stream_read_rate(team), roof::int8_dot_rate(team, roof::level_of(context.isa()))};
        for (const auto& test : tests) {
            const auto line = measure(context, test, effective, args.repeats, roofs);
            if (args.as_json) print_line(line);
            else print_row(line);
        }
        note(std::to_string(effective) + " threads, " + std::string(context.isa()) + ": stream read " + fixed(roofs.stream / 1e9, 1) +
             " GB/s, int8 dot peak " + fixed(roofs.dot / 1e9, 1) + " GMAC/s");
    }
    return 0;
}

}  // namespace

Action add_bench(CLI::App& app) {
    auto args = std::make_shared<BenchArgs>();
    auto* command = app.add_subcommand("bench", "Measures tokens per second, with the share of what the machine can do.");
    args->model.add_to(*command);
    const auto add_list = [&](const std::string& names, std::vector<int>& values, const std::string& help) {
        command->add_option(names, values, help)->delimiter(',')->check(CLI::NonNegativeNumber)->capture_default_str()
            ->type_name("N,...")->group("Tests");
    };
    add_list("-p,--prompt", args->prompts, "prompts of so many tokens; 0 = none");
    add_list("-n,--predict", args->generations, "generations of so many tokens; 0 = none");
    add_list("-d,--depth", args->depths, "tokens in the cache before");
    add_list("-t,--threads", args->threads, "thread counts; 0 = one per core");
    command->add_option("-r,--repeat", args->repeats, "runs of each test")->check(CLI::Range(1, 1000))->capture_default_str()->group("Tests");
    command->add_flag("--json", args->as_json, "one JSON document per line")->group("Tests");
    args->context.add_to(*command);
    command->footer("roof is the share of the stream read, peak that of the int8 dot products, both measured in the same run.\n"
                    "Examples:\n  tinfer bench -m model.gguf\n  tinfer bench -m model.gguf -p 256,512 -n 64 -t 1,2 -r 3 --json");
    return [args] { return bench(*args); };
}

}  // namespace cli
