// SPDX-License-Identifier: MIT
// What a processor that is shared costs: two contexts that decode at the same time, and one beside a busy loop on every
// processor. Each figure is a ratio to a run of the same turn, so that whatever else the machine does meets both alike.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "random_model.hpp"
#include "support.hpp"
#include "tinfer/tinfer.hpp"

#if defined(__linux__)
#    include <sched.h>
#endif

namespace tinfer::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kUsage =
    "usage: bench_sharing --model FILE [--only contexts,loops,served,alone] [--threads 2] [--seconds 1] [--rounds 11] "
    "[--smoke] [--json]\n"
    "contexts: two contexts of so many threads that decode at once, beside two of one thread each.\n"
    "loops: one context beside a busy loop on each processor, as a share of half its speed without them.\n"
    "served: the same in slices of 10 ms with an observer that counts, as a server runs it, beside one of one thread.\n"
    "alone: one context of so many threads, beside one of one thread.\n";

struct Setting {
    double seconds;
    int n_rounds, n_threads;
};

double median(std::vector<double> list) {
    std::ranges::sort(list);
    return list.empty() ? 0 : (list[(list.size() - 1) / 2] + list[list.size() / 2]) / 2;
}

/// What the observer of a server's metrics asks for.
struct Counter : Observer {
    [[nodiscard]] TraceRequest request() const override { return {.level = TraceLevel::counts}; }
};

/// One decode, in slices of 10 ms.
DecodeStatus decode_in_slices(Context& context, Token token) {
    context.begin(std::span(&token, 1));
    StepStatus status = StepStatus::pending;
    while (status == StepStatus::pending) status = context.step(std::chrono::milliseconds(10));
    return status == StepStatus::ok ? DecodeStatus::ok : DecodeStatus::cancelled;
}

/// Decodes single tokens until the time is over, and counts them.
std::uint64_t decode_for(Context& context, double seconds, bool in_slices = false) {
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    std::uint64_t n = 0;
    do {
        if (context.room(SeqId{0}) == 0) context.clear();
        const Token token{static_cast<int>(n % 64)};
        const auto status = in_slices ? decode_in_slices(context, token) : context.decode(std::span(&token, 1));
        if (status != DecodeStatus::ok) throw std::runtime_error("a decode failed");
        ++n;
    } while (Clock::now() < end);
    return n;
}

/// Tokens per second of all contexts together, each in a thread of its own.
double rate(std::vector<Context>& contexts, double seconds) {
    std::vector<std::uint64_t> counts(contexts.size());
    const auto begin = Clock::now();
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < contexts.size(); ++i)
            threads.emplace_back([&, i] { counts[i] = decode_for(contexts[i], seconds); });
    }
    const double spent = std::chrono::duration<double>(Clock::now() - begin).count();
    std::uint64_t sum = 0;
    for (const auto n : counts) sum += n;
    return static_cast<double>(sum) / spent;
}

std::vector<Context> make_contexts(const Model& model, int n, int n_threads) {
    std::vector<Context> contexts;
    for (int i = 0; i < n; ++i) contexts.emplace_back(model, ContextOptions{.n_ctx = 256, .n_threads = n_threads});
    return contexts;
}

/// A loop on each processor that this process may use, as long as it lives.
class BusyLoops {
public:
    BusyLoops() {
#if defined(__linux__)
        cpu_set_t all;
        if (sched_getaffinity(0, sizeof all, &all) != 0) throw std::runtime_error("sched_getaffinity failed");
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
            if (CPU_ISSET(cpu, &all))
                loops_.emplace_back([this, cpu] {
                    cpu_set_t one;
                    CPU_ZERO(&one);
                    CPU_SET(cpu, &one);
                    sched_setaffinity(0, sizeof one, &one);
                    run();
                });
#else
        for (unsigned cpu = 0; cpu < std::thread::hardware_concurrency(); ++cpu) loops_.emplace_back([this] { run(); });
#endif
    }
    ~BusyLoops() { stop_ = true; }

private:
    void run() const {
        while (!stop_.load(std::memory_order_relaxed)) {
        }
    }
    std::atomic<bool> stop_{false};
    std::vector<std::jthread> loops_;  // last: joined before stop_ goes
};

/// Two ways in turn, every round the other one first: the ratios of their rates.
template <class A, class B>
std::vector<double> ratios(const Setting& s, std::vector<double>& a_rates, std::vector<double>& b_rates, const A& a,
                           const B& b) {
    std::vector<double> out;
    for (int round = 0; round < s.n_rounds; ++round) {
        double rate_a = 0, rate_b = 0;
        for (const bool first : {round % 2 == 0, round % 2 != 0}) (first ? rate_a : rate_b) = first ? a() : b();
        a_rates.push_back(rate_a);
        b_rates.push_back(rate_b);
        out.push_back(rate_a / rate_b);
    }
    return out;
}

void contexts(Printer& printer, const Model& model, const Setting& s, int n_contexts) {
    auto many = make_contexts(model, n_contexts, s.n_threads), ones = make_contexts(model, n_contexts, 1);
    std::vector<double> a, b;
    const auto list = ratios(
        s, a, b, [&] { return rate(many, s.seconds); }, [&] { return rate(ones, s.seconds); });
    Record record(n_contexts == 1 ? "alone" : "contexts");
    record.add("contexts", n_contexts)
        .add("threads", s.n_threads)
        .add("tps", median(a), 1)
        .add("one_thread_tps", median(b), 1);
    printer.print(record.percent("of_one_thread", median(list), 1));
}

void loops(Printer& printer, const Model& model, const Setting& s) {
    for (const int n_threads : {s.n_threads, 1}) {
        auto context = make_contexts(model, 1, n_threads);
        std::vector<double> a, b;
        const auto list = ratios(
            s, a, b,
            [&] {
                const BusyLoops busy;
                return rate(context, s.seconds);
            },
            [&] { return rate(context, s.seconds); });
        Record record("loops");
        record.add("threads", n_threads).add("tps", median(a), 1).add("alone_tps", median(b), 1);
        printer.print(record.percent("of_fair_half", median(list), 0.5));
    }
}

void served(Printer& printer, const Model& model, const Setting& s) {
    auto many = make_contexts(model, 1, s.n_threads), one = make_contexts(model, 1, 1);
    const auto counted = {many[0].attach(std::make_shared<Counter>()), one[0].attach(std::make_shared<Counter>())};
    const auto rate_of = [&](Context& context) {
        const BusyLoops busy;
        const auto begin = Clock::now();
        const auto n = static_cast<double>(decode_for(context, s.seconds, true));
        return n / std::chrono::duration<double>(Clock::now() - begin).count();
    };
    std::vector<double> a, b;
    const auto list = ratios(
        s, a, b, [&] { return rate_of(many[0]); }, [&] { return rate_of(one[0]); });
    Record record("served");
    record.add("threads", s.n_threads).add("tps", median(a), 1).add("one_thread_tps", median(b), 1);
    printer.print(record.percent("of_one_thread", median(list), 1));
}

void measure(Options& options) {
    const bool smoke = options.flag("smoke");
    std::filesystem::path path = options.text("model", "");
    const Setting s{.seconds = options.number("seconds", smoke ? 0.02 : 1),
                    .n_rounds = static_cast<int>(options.number("rounds", smoke ? 1 : 11)),
                    .n_threads = static_cast<int>(options.number("threads", 2))};
    const auto parts = options.list("only", "contexts,loops,served,alone");
    Printer printer(options.flag("json"));
    options.finish();
    const bool own_model = smoke && path.empty();
    if (own_model) write_random_model(path = "bench_sharing.smoke.gguf", shape_named("tiny"), "q8_0");
    if (path.empty()) throw std::runtime_error("--model FILE is missing; see --help");
    const Model model = Model::load(path);
    for (const std::string& part : parts) {
        if (part == "contexts") contexts(printer, model, s, 2);
        else if (part == "loops") loops(printer, model, s);
        else if (part == "served") served(printer, model, s);
        else if (part == "alone") contexts(printer, model, s, 1);
        else throw std::runtime_error("no measurement is named '" + part + "'; see --help");
    }
    if (own_model) std::filesystem::remove(path);
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_sharing", [&] {
        tinfer::bench::Options options(argc, argv, tinfer::bench::kUsage);
        tinfer::bench::measure(options);
    });
}
