// SPDX-License-Identifier: MIT
// What observers cost: the same work watched and unwatched, in pairs whose order alternates, so that whatever else the
// machine does meets both alike. Beside wall time stands the processor time of all threads, which others' work hardly
// touches: where the machine is busy, that of one thread is to be believed.
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <optional>

#include "decoding.hpp"
#include "random_model.hpp"
#include "support.hpp"
#include "tinfer/trace.hpp"

#if defined(__unix__)
#    include <time.h>
#endif

namespace tinfer::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kUsage =
    "usage: bench_observers --model FILE [--work token,prompt] [--threads 1,2] [--prompt 64] [--seconds 20] [--smoke] "
    "[--json]\n"
    "Measures what each level of observing costs, in percent of the time without.\n";

struct Level {
    const char* name;
    std::optional<TraceLevel> level;
    bool detaches = false, writes = false;  // before the work; a trace file instead of a watcher
};
constexpr Level kLevels[] = {
    {"nothing", {}},  // against itself: what this way of measuring is worth
    {"detached", TraceLevel::steps, true},
    {"counts", TraceLevel::counts},
    {"steps", TraceLevel::steps},
    {"threads", TraceLevel::threads},
    {"steps into a file", TraceLevel::steps, false, true},
};

/// Seconds on the wall and, of all threads together, on processors.
struct Times {
    double wall = 0, processor = 0;
};

double processor_seconds() {
#if defined(__unix__)
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
#else
    return NAN;
#endif
}

Times timed(const std::function<void()>& work) {
    const double processor = processor_seconds();
    const auto begin = Clock::now();
    work();
    const double wall = std::chrono::duration<double>(Clock::now() - begin).count();
    return {wall, processor_seconds() - processor};
}

/// Median of the costs of pairs in percent, how far half of them lie apart, and a 95 % interval of the median.
struct Cost {
    double median, spread, low, high;
};
Cost cost_of(std::vector<double> list) {
    std::ranges::sort(list);
    const auto n = static_cast<double>(list.size());
    const auto at = [&](double place) { return list[static_cast<std::size_t>(std::clamp(place, 0.0, n - 1))]; };
    const double reach = 0.98 * std::sqrt(n);  // order statistics: n/2 ± 1.96·√n/2
    return {median(list), at(n * 3 / 4) - at(n / 4), at(n / 2 - reach), at(n / 2 + reach)};
}

struct Pairs {
    std::vector<double> wall, processor, base_ms;
    std::uint64_t file_bytes = 0;
};

class Bench {
public:
    Bench(Context& context, std::function<void()> work) : context_(context), work_(std::move(work)) {}

    void pair(const Level& level, bool watched_first, Pairs& pairs) {
        Times base, watched;
        if (watched_first) watched = observe(level, pairs);
        base = observe(kLevels[0], pairs);
        if (!watched_first) watched = observe(level, pairs);
        pairs.wall.push_back(100 * (watched.wall / base.wall - 1));
        pairs.processor.push_back(100 * (watched.processor / base.processor - 1));
        pairs.base_ms.push_back(1e3 * base.wall);
    }

private:
    /// The second work behind attaching: the first one also shows the observer its plan.
    Times observe(const Level& level, Pairs& pairs) {
        Attachment attached;
        std::shared_ptr<TraceFile> file;
        if (level.writes) {
            file = std::make_shared<TraceFile>(path_, TraceFileOptions{.level = *level.level, .overwrite = true});
            attached = context_.attach(file);
        } else if (level.level) {
            const auto watcher = std::make_shared<Watcher>();
            watcher->level = *level.level;
            attached = context_.attach(watcher);
        }
        work_();
        if (level.detaches) attached.detach();
        const std::uint64_t before = file == nullptr ? 0 : file->bytes();
        const Times times = timed(work_);
        if (file != nullptr) pairs.file_bytes = file->bytes() - before;
        return times;
    }

    Context& context_;
    std::function<void()> work_;
    std::filesystem::path path_ = std::filesystem::temp_directory_path() / "bench_observers.tntrace";
};

void measure(Printer& printer, const Model& model, const std::string& what, int n_threads, int n_prompt,
             std::chrono::duration<double> time) {
    Context context(model, {.n_ctx = n_prompt + 2, .n_ubatch = n_prompt, .n_threads = n_threads});
    const auto prompt = some_tokens(model, n_prompt);
    const std::vector<float> expected = decode_prompt(context, prompt);
    const Token token{1};
    const auto decode_token = [&] {
        require(context.decode(std::span(&token, 1)) == DecodeStatus::ok, "a decode failed");
        require(context.seq_rm(SeqId{0}, {Pos{n_prompt}}) == RemoveStatus::ok, "the token stays");
    };
    const auto decode_all = [&] {
        require(decode_prompt(context, prompt) == expected, "an observer changed the logits");
    };
    if (what != "token" && what != "prompt") throw std::runtime_error("no work is named '" + what + "'; see --help");
    Bench bench(context, what == "token" ? std::function<void()>(decode_token) : std::function<void()>(decode_all));
    std::vector<Pairs> pairs(std::size(kLevels));
    const auto end = Clock::now() + time;
    for (int turn = 0; turn < 2 || (turn % 2 != 0 || Clock::now() < end); ++turn)
        for (std::size_t k = 0; k < std::size(kLevels); ++k)
            bench.pair(kLevels[k], (turn + static_cast<int>(k)) % 2 == 0, pairs[k]);
    for (std::size_t k = 0; k < std::size(kLevels); ++k) {
        const Cost wall = cost_of(pairs[k].wall), processor = cost_of(pairs[k].processor);
        Record record("observer");
        record.add("work", what).add("threads", n_threads).add("level", kLevels[k].name);
        record.add("ms", median(pairs[k].base_ms), 3).add("pairs", std::uint64_t{pairs[k].wall.size()});
        record.add("wall_percent", wall.median).add("wall_low", wall.low).add("wall_high", wall.high);
        record.add("wall_spread", wall.spread).add("cpu_percent", processor.median);
        record.add("cpu_low", processor.low).add("cpu_high", processor.high).add("cpu_spread", processor.spread);
        if (kLevels[k].writes) record.add("bytes", pairs[k].file_bytes);
        printer.print(record);
    }
}

void run(Options& options) {
    const bool smoke = options.flag("smoke");
    std::filesystem::path path = options.text("model", "");
    const auto works = options.list("work", "token,prompt"), threads = options.list("threads", smoke ? "1" : "1,2");
    const int n_prompt = static_cast<int>(options.number("prompt", smoke ? 8 : 64));
    const std::chrono::duration<double> time(options.number("seconds", smoke ? 0 : 20));
    Printer printer(options.flag("json"));
    options.finish();
    const bool own_model = smoke && path.empty();
    if (own_model) write_random_model(path = "bench_observers.smoke.gguf", shape_named("tiny"), "q8_0");
    if (path.empty()) throw std::runtime_error("--model FILE is missing; see --help");
    const Model model = Model::load(path);
    for (const auto& work : works)
        for (const auto& n : threads) measure(printer, model, work, std::stoi(n), n_prompt, time);
    std::filesystem::remove(std::filesystem::temp_directory_path() / "bench_observers.tntrace");
    if (own_model) std::filesystem::remove(path);
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_observers", [&] {
        tinfer::bench::Options options(argc, argv, tinfer::bench::kUsage);
        tinfer::bench::run(options);
    });
}
