// SPDX-License-Identifier: MIT
// What an engine gives many clients: sixteen streams beside one, the pauses of those that generate while a long prompt
// is read, the first token behind a prefix that is known, and how soon a cancel frees its place.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kUsage =
    "usage: bench_engine --model FILE [--only streams,pauses,prefix,cancel] [--threads 0] [--tokens 32] [--long 8192] "
    "[--prefix 2048] [--batch 512] [--rounds 5] [--smoke] [--json]\n"
    "streams: tokens per second of 16 requests at once, beside one.\n"
    "pauses: milliseconds between tokens of 4 requests while a prompt of --long tokens is read: p50 and p99.\n"
    "prefix: seconds to the first token of a prompt of --prefix tokens, and of a second one that begins with them.\n"
    "cancel: milliseconds from a cancel in the middle of a prompt to the last event.\n";

struct Setting {
    int n_threads, n_tokens, n_long, n_prefix, n_batch, n_rounds;
};

double quantile(std::vector<double> list, double q) {
    if (list.empty()) return 0;
    std::ranges::sort(list);
    return list[static_cast<std::size_t>(q * static_cast<double>(list.size() - 1) + 0.5)];
}

std::vector<Token> some_tokens(int n, std::uint32_t seed, int n_vocab) {
    std::vector<Token> out;
    std::uint32_t state = seed * 2654435761u + 1;
    for (int i = 0; i < n; ++i) {
        state = state * 1664525u + 1013904223u;
        out.push_back(Token{static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(n_vocab))});
    }
    return out;
}

/// A request that is sure to go on for n tokens.
EngineRequest request_of(const Model& model, std::vector<Token> prompt, int n) {
    EngineRequest request{.prompt = std::move(prompt), .sampler = {.temp = 0}, .generation = {.n_predict = n}};
    for (const Token token : model.vocab().eog_tokens()) request.sampler.logit_bias.emplace_back(token, -1e9f);
    return request;
}

EngineOptions engine_options(const Setting& s, int n_ctx, int n_seq_max) {
    return {.context = {.n_ctx = n_ctx, .n_seq_max = n_seq_max, .n_threads = s.n_threads},
            .max_batch_tokens = std::max(s.n_batch, n_seq_max)};
}

/// Tokens per second of n requests at once, and their texts.
double stream_rate(const Model& model, const Setting& s, int n, std::vector<std::string>& texts) {
    Engine engine(model, engine_options(s, n * (32 + s.n_tokens) + 64, n));
    texts.assign(static_cast<std::size_t>(n), {});
    const auto begin = Clock::now();
    for (int i = 0; i < n; ++i)
        engine.submit(request_of(model, some_tokens(16, static_cast<std::uint32_t>(i), 90), s.n_tokens),
                      [&text = texts[static_cast<std::size_t>(i)]](const EngineEvent& event) { text += event.text; });
    engine.drain();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (engine.stats().generated_tokens != static_cast<std::uint64_t>(n) * static_cast<std::uint64_t>(s.n_tokens))
        throw std::runtime_error("streams: some requests ended early");
    return n * s.n_tokens / seconds;
}

void streams(Printer& printer, const Model& model, const Setting& s) {
    std::vector<double> one, many, ratio;
    for (int round = 0; round < s.n_rounds; ++round) {
        std::vector<std::string> alone, beside;
        one.push_back(stream_rate(model, s, 1, alone));
        many.push_back(stream_rate(model, s, 16, beside));
        ratio.push_back(many.back() / one.back());
        if (alone[0] != beside[0]) throw std::runtime_error("streams: an answer depends on the load");
    }
    printer.print(Record("engine")
                      .add("part", "streams")
                      .add("one_tokens_per_s", quantile(one, 0.5))
                      .add("sixteen_tokens_per_s", quantile(many, 0.5))
                      .add("ratio", quantile(ratio, 0.5)));
}

void pauses(Printer& printer, const Model& model, const Setting& s) {
    constexpr int kStreams = 4;
    Engine engine(model, engine_options(s, s.n_long + 4 * 8192, kStreams + 1));
    std::mutex mutex;
    std::vector<double> between;
    std::atomic<bool> reading = false;
    std::atomic<int> started = 0;
    std::vector<RequestId> ids;
    for (int i = 0; i < kStreams; ++i)
        ids.push_back(engine.submit(request_of(model, some_tokens(16, static_cast<std::uint32_t>(i), 90), 8000),
                                    [&, last = std::optional<Clock::time_point>()](const EngineEvent& event) mutable {
                                        if (event.tokens.empty()) return;
                                        const auto now = Clock::now();
                                        if (!last) ++started;
                                        else if (reading) {
                                            const std::lock_guard lock(mutex);
                                            between.push_back(1e3 * std::chrono::duration<double>(now - *last).count());
                                        }
                                        last = now;
                                    }));
    while (started < kStreams) std::this_thread::yield();
    reading = true;
    const auto answer = engine.ask(request_of(model, some_tokens(s.n_long, 77, 90), 1));
    reading = false;
    for (const RequestId id : ids) engine.cancel(id);
    engine.drain();
    const double p50 = quantile(between, 0.5), p99 = quantile(between, 0.99);
    printer.print(Record("engine")
                      .add("part", "pauses")
                      .add("prompt", s.n_long)
                      .add("prompt_s", answer.timings.prompt_s)
                      .add("tokens", between.size())
                      .add("p50_ms", p50)
                      .add("p99_ms", p99)
                      .add("ratio", p50 > 0 ? p99 / p50 : 0));
}

void prefix(Printer& printer, const Model& model, const Setting& s) {
    std::vector<double> cold, warm, share;
    for (int round = 0; round < s.n_rounds; ++round) {
        Engine engine(model, engine_options(s, 2 * s.n_prefix + 512, 2));
        auto first = some_tokens(s.n_prefix, 5, 90), second = first;
        first.push_back(Token{1});
        for (int i = 0; i < 16; ++i) second.push_back(Token{i});
        cold.push_back(engine.ask(request_of(model, first, 1)).first_token_s);
        const auto answer = engine.ask(request_of(model, second, 1));
        if (answer.n_cached < static_cast<std::size_t>(s.n_prefix))
            throw std::runtime_error("prefix: it was not shared");
        warm.push_back(answer.first_token_s);
        share.push_back(100 * warm.back() / cold.back());
    }
    printer.print(Record("engine")
                      .add("part", "prefix")
                      .add("tokens", s.n_prefix)
                      .add("cold_s", quantile(cold, 0.5), 4)
                      .add("warm_s", quantile(warm, 0.5), 4)
                      .add("percent", quantile(share, 0.5)));
}

void cancels(Printer& printer, const Model& model, const Setting& s) {
    Engine engine(model, engine_options(s, s.n_long + 512, 1));
    std::vector<double> list;
    for (int i = 0; i < 10 * s.n_rounds; ++i) {
        std::atomic<bool> ended = false;
        EngineRequest request = request_of(model, some_tokens(s.n_long, static_cast<std::uint32_t>(i), 90), 1);
        request.share_prefix = false;
        const auto id = engine.submit(std::move(request), [&](const EngineEvent& event) {
            if (event.ended()) ended = true;
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(5 + i % 17));
        const auto begin = Clock::now();
        engine.cancel(id);
        while (!ended) std::this_thread::yield();
        list.push_back(1e3 * std::chrono::duration<double>(Clock::now() - begin).count());
    }
    printer.print(Record("engine")
                      .add("part", "cancel")
                      .add("cancels", list.size())
                      .add("median_ms", quantile(list, 0.5))
                      .add("most_ms", quantile(list, 1)));
}

void measure_engine(Options& options) {
    const bool smoke = options.flag("smoke");
    std::filesystem::path path = options.text("model", "");
    const auto number = [&](std::string_view name, int small, int otherwise) {
        return static_cast<int>(options.number(name, smoke ? small : otherwise));
    };
    const Setting s{.n_threads = number("threads", 0, 0),
                    .n_tokens = number("tokens", 4, 32),
                    .n_long = number("long", 256, 8192),
                    .n_prefix = number("prefix", 128, 2048),
                    .n_batch = number("batch", 64, 512),
                    .n_rounds = number("rounds", 1, 5)};
    const auto parts = options.list("only", "streams,pauses,prefix,cancel");
    Printer printer(options.flag("json"));
    options.finish();
    if (path.empty()) throw std::runtime_error("--model FILE is missing; see --help");
    const Model model = Model::load(path);
    for (const std::string& part : parts) {
        if (part == "streams") streams(printer, model, s);
        else if (part == "pauses") pauses(printer, model, s);
        else if (part == "prefix") prefix(printer, model, s);
        else if (part == "cancel") cancels(printer, model, s);
        else throw std::runtime_error("no measurement is named '" + part + "'; see --help");
    }
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_engine", [&] {
        tinfer::bench::Options options(argc, argv, tinfer::bench::kUsage);
        tinfer::bench::measure_engine(options);
    });
}
