// SPDX-License-Identifier: MIT
// What is around the kernels: slices of time, graphs and plans, threads in excess, idle contexts, the way
// from a file to its first token. What is compared runs by turns in one process, so that a noisy machine treats both
// alike.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/access.hpp"
#include "decoding.hpp"
#include "gguf/file.hpp"
#include "model/model.hpp"
#include "random_model.hpp"
#include "runtime/context.hpp"
#include "support.hpp"

#if defined(__unix__)
#    include <sys/resource.h>
#endif

namespace tinfer::bench {

namespace {

using std::chrono_literals::operator""ms, std::chrono_literals::operator""s;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kUsage =
    "usage: bench_runtime --model FILE [--only slices,graph,overhead,breakdown,threads,idle,startup] "
    "[--prompt 512] [--tokens 32]\n"
    "                     [--rounds 5] [--threads 2] [--slice-ms 2] [--smoke] [--json]\n"
    "Measures the runtime around the kernels with a given model.\n";

struct Setting {
    std::filesystem::path path;
    int n_prompt, n_tokens, n_rounds, n_threads;
    std::chrono::nanoseconds slice;
};

double ms(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

double timed_ms(const std::function<void()>& work) {
    const auto begin = Clock::now();
    work();
    return ms(Clock::now() - begin);
}

Context make_context(const Model& model, const Setting& s, int n_threads = 0) {
    return Context(model, {.n_ctx = s.n_prompt + s.n_tokens + 1,
                           .n_ubatch = s.n_prompt,
                           .n_threads = n_threads == 0 ? s.n_threads : n_threads});
}

// ---- slices of time -------------------------------------------------------------------------------------------------

void measure_slices(Printer& printer, const Model& model, const Setting& s, std::string_view work,
                    std::span<const Token> tokens, std::span<const Token> history) {
    Context context = make_context(model, s);
    const auto prepare = [&] {
        context.clear();
        if (!history.empty()) require(context.decode(history) == DecodeStatus::ok, "a decode failed");
    };
    std::vector<double> whole, sliced, calls;
    for (int round = 0; round <= s.n_rounds; ++round) {
        prepare();
        const double a = timed_ms([&] { require(context.decode(tokens) == DecodeStatus::ok, "a decode failed"); });
        const std::vector<float> expected(context.logits().begin(), context.logits().end());
        prepare();
        double b = 0;
        context.begin(tokens);
        for (auto status = StepStatus::pending; status == StepStatus::pending;) {
            const double t = timed_ms([&] { status = context.step(s.slice); });
            b += t;
            if (round > 0) calls.push_back(t);
        }
        require(std::ranges::equal(context.logits(), expected), "slices changed the logits");
        if (round == 0) continue;  // warms up
        whole.push_back(a);
        sliced.push_back(b);
    }
    std::ranges::sort(calls);
    const double limit = ms(s.slice) + 0.5;
    const auto in_time = std::ranges::count_if(calls, [&](double t) { return t <= limit; });
    std::vector<double> ratios;
    for (std::size_t i = 0; i < whole.size(); ++i) ratios.push_back(sliced[i] / whole[i]);
    Record record("slices");
    record.add("work", work)
        .add("threads", s.n_threads)
        .add("slice_ms", ms(s.slice))
        .add("whole_ms", median(whole), 3)
        .add("sliced_ms", median(sliced), 3);
    record.add("ratio", median(ratios), 3)
        .add("calls", calls.size())
        .percent("in_time", static_cast<double>(in_time), static_cast<double>(calls.size()));
    record.add("p50_ms", calls[calls.size() / 2], 3)
        .add("p99_ms", calls[calls.size() * 99 / 100], 3)
        .add("max_ms", calls.back(), 3);
    printer.print(record);
}

void slices(Printer& printer, const Model& model, const Setting& s) {
    const auto prompt = some_tokens(model, s.n_prompt);
    measure_slices(printer, model, s, "prompt", prompt, {});
    measure_slices(printer, model, s, "token", std::span(prompt).first(1), prompt);
}

// ---- graph and plan -------------------------------------------------------------------------------------------------

void graph(Printer& printer, const Model& model, const Setting& s) {
    Context context = make_context(model, s);
    decode_tokens(context, some_tokens(model, 4));
    const runtime::Layout& layout = detail::impl_of(context).layout;
    graph::Graph graph(layout.max_nodes(), layout.max_values());
    std::vector<double> build, sign;
    for (int i = 0; i < 50 * s.n_rounds; ++i) {
        build.push_back(timed_ms([&] { layout.build(graph, 1, 1, false); }));
        volatile std::uint64_t signature = 0;
        sign.push_back(timed_ms([&] { signature = graph.signature(); }));
    }
    const auto nodes = static_cast<double>(graph.nodes().size());
    Record record("graph");
    record.add("nodes", graph.nodes().size())
        .add("build_us", 1e3 * median(build))
        .add("signature_us", 1e3 * median(sign));
    printer.print(record.add("ns_per_node", 1e6 * (median(build) + median(sign)) / nodes, 1));
}

/// Where the time of a token goes: kernels, what is between them, what is around the run.
void breakdown(Printer& printer, const Model& model, const Setting& s) {
    Context context = make_context(model, s);
    const auto tokens = some_tokens(model, s.n_tokens);
    (void)decode_prompt(context, some_tokens(model, 8));
    decode_tokens(context, tokens);
    context.clear();
    const double bare = timed_ms([&] { decode_tokens(context, tokens); }) / s.n_tokens;
    context.clear();
    const auto watcher = std::make_shared<Watcher>();
    const auto attached = context.attach(watcher);
    const double watched = timed_ms([&] { decode_tokens(context, tokens); }) / s.n_tokens;
    Record record("breakdown");
    record.add("threads", s.n_threads)
        .add("token_us", 1e3 * bare, 1)
        .add("watched_us", 1e3 * watched, 1)
        .add("steps_us", watcher->kernels_ns / 1e3 / s.n_tokens, 1);
    printer.print(record.add("events", watcher->n_events / static_cast<std::uint64_t>(s.n_tokens)));
}

/// Time of a token with kernels that do nothing: graph, plan, barriers, bookkeeping and events, all but the work.
void overhead(Printer& printer, const Setting& s) {
    const auto file = gguf::File::open(std::span(&s.path, 1), {});
    file->load_data({});
    const model::BoundModel bound = model::bind_model(file, {});
    std::vector<kernels::KernelDescriptor> idle_kernels;  // the first one of an op and type counts
    const kernels::KernelTable& real = *kernels::find_table(Isa::automatic);
    for (const kernels::KernelTable* part = &real; part != nullptr; part = part->base)
        idle_kernels.insert(idle_kernels.end(), part->kernels, part->kernels + part->n_kernels);
    for (kernels::KernelDescriptor& kernel : idle_kernels)
        kernel.run = [](const kernels::KernelCall&, kernels::WorkSlice) noexcept {};
    const kernels::KernelTable table{real.name, idle_kernels.data(), idle_kernels.size()};
    for (const auto& [name, level] : {std::pair<const char*, std::optional<TraceLevel>>{"none", {}},
                                      {"steps", TraceLevel::steps},
                                      {"threads", TraceLevel::threads}}) {
        Context::Impl context(detail::Access::make<Model>(nullptr), bound, {.n_ctx = 1024, .n_threads = s.n_threads},
                              table);
        const auto watcher = std::make_shared<Watcher>();
        if (level) {
            watcher->level = *level;
            (void)context.session->attach(watcher, s.n_threads);
        }
        std::vector<double> times;
        const Token token{1};
        for (int i = 0; i < 1000; ++i)
            times.push_back(timed_ms(
                [&] { require(context.decode(std::span(&token, 1)) == DecodeStatus::ok, "a decode failed"); }));
        Record record("overhead");
        record.add("observer", name).add("threads", s.n_threads).add("token_us", 1e3 * median(times));
        printer.print(record);
    }
}

// ---- threads --------------------------------------------------------------------------------------------------------

void threads(Printer& printer, const Model& model, const Setting& s) {
    const auto prompt = some_tokens(model, s.n_prompt), tokens = some_tokens(model, s.n_tokens);
    const std::vector<int> counts{1, 2, 4, 8, 16};
    std::vector<Context> contexts;
    for (const int n : counts) contexts.push_back(make_context(model, s, n));
    std::vector<std::vector<double>> prompts(counts.size()), generations(counts.size());
    for (int round = 0; round <= s.n_rounds; ++round)
        for (std::size_t i = 0; i < counts.size(); ++i) {
            const double a = timed_ms([&] { (void)decode_prompt(contexts[i], prompt); });
            const double b = timed_ms([&] { decode_tokens(contexts[i], tokens); });
            if (round == 0) continue;
            prompts[i].push_back(a);
            generations[i].push_back(b);
        }
    for (std::size_t i = 0; i < counts.size(); ++i) {
        Record record("threads");
        record.add("threads", counts[i])
            .add("prompt_tps", 1e3 * s.n_prompt / median(prompts[i]), 1)
            .percent("of_two", median(prompts[1]), median(prompts[i]));
        record.add("token_tps", 1e3 * s.n_tokens / median(generations[i]), 1)
            .percent("of_two_token", median(generations[1]), median(generations[i]));
        printer.print(record);
    }
}

// ---- idle -----------------------------------------------------------------------------------------------------------

double cpu_ms() {
#if defined(__unix__)
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto of = [](const timeval& t) {
        return 1e3 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_usec);
    };
    return of(usage.ru_utime) + of(usage.ru_stime);
#else
    return NAN;
#endif
}

void idle(Printer& printer, const Model& model, const Setting& s) {
    Context context = make_context(model, s);
    decode_tokens(context, some_tokens(model, s.n_tokens));
    const double begin = cpu_ms();
    std::this_thread::sleep_for(100ms);
    const double settled = cpu_ms();
    std::this_thread::sleep_for(1s);
    Record record("idle");
    record.add("threads", s.n_threads).add("first_100ms_cpu_ms", settled - begin, 3);
    printer.print(record.add("next_second_percent", (cpu_ms() - settled) / 10, 4));
}

// ---- from the file to the first token -------------------------------------------------------------------------------

void startup(Printer& printer, const Setting& s) {
    std::vector<double> loads, contexts, firsts, seconds, totals;
    for (int round = 0; round <= s.n_rounds; ++round) {  // the first one warms the page cache
        const auto begin = Clock::now();
        const Model model = Model::load(s.path);
        const auto loaded = Clock::now();
        Context context(model, {.n_ctx = 512, .n_threads = s.n_threads});
        const auto made = Clock::now();
        const std::vector<Token> token{Token{1}};
        decode_tokens(context, token);
        const auto first = Clock::now();
        decode_tokens(context, token);
        const auto second = Clock::now();
        if (round == 0) continue;
        loads.push_back(ms(loaded - begin));
        contexts.push_back(ms(made - loaded));
        firsts.push_back(ms(first - made));
        seconds.push_back(ms(second - first));
        totals.push_back(ms(first - begin) - ms(second - first));
    }
    Record record("startup");
    record.add("mb", static_cast<double>(std::filesystem::file_size(s.path)) / 1e6, 1)
        .add("load_ms", median(loads))
        .add("context_ms", median(contexts));
    record.add("first_token_ms", median(firsts)).add("second_token_ms", median(seconds));
    printer.print(record.add("start_without_a_token_ms", median(totals)));
}

void measure(Options& options) {
    const bool smoke = options.flag("smoke");
    Setting s;
    s.path = options.text("model", "");
    s.n_prompt = static_cast<int>(options.number("prompt", smoke ? 16 : 512));
    s.n_tokens = static_cast<int>(options.number("tokens", smoke ? 4 : 32));
    s.n_rounds = static_cast<int>(options.number("rounds", smoke ? 1 : 5));
    s.n_threads = static_cast<int>(options.number("threads", 2));
    s.slice = std::chrono::nanoseconds(std::llround(1e6 * options.number("slice-ms", 2)));
    const auto parts = options.list("only", "slices,graph,overhead,breakdown,threads,idle,startup");
    Printer printer(options.flag("json"));
    options.finish();
    const bool own_model = smoke && s.path.empty();
    if (own_model) write_random_model(s.path = "bench_runtime.smoke.gguf", shape_named("tiny"), "q8_0");
    if (s.path.empty()) throw std::runtime_error("--model FILE is missing; see --help");
    const Model model = Model::load(s.path);
    for (const std::string& part : parts) {
        if (part == "slices") slices(printer, model, s);
        else if (part == "graph") graph(printer, model, s);
        else if (part == "breakdown") breakdown(printer, model, s);
        else if (part == "overhead") overhead(printer, s);
        else if (part == "threads") threads(printer, model, s);
        else if (part == "idle") idle(printer, model, s);
        else if (part == "startup") startup(printer, s);
        else throw std::runtime_error("no measurement is named '" + part + "'; see --help");
    }
    if (own_model) std::filesystem::remove(s.path);
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_runtime", [&] {
        tinfer::bench::Options options(argc, argv, tinfer::bench::kUsage);
        tinfer::bench::measure(options);
    });
}
