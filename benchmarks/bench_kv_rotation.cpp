// SPDX-License-Identifier: MIT
// What caches of codes lose against a cache of f16, with and without rotated heads: mean KL of the logits of every
// so-many-th token of a long text. And what rotation costs: time of generated tokens, in pairs that take turns,
// behind few tokens and behind the whole text.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "support.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::bench {

namespace {

constexpr std::string_view kRotationUsage =
    "usage: bench_kv_rotation --model FILE [--text FILE] [--tokens 8192] [--every 16] [--threads 1] [--pairs 21] "
    "[--steps 16] [--smoke] [--json]\n"
    "without a text: random tokens\n";

struct CacheKind {
    std::string_view name;
    KvType type;
    KvRotation rotation;
};
constexpr CacheKind kCacheKinds[] = {{"f16", KvType::f16, KvRotation::off},
                                     {"q8_0", KvType::q8_0, KvRotation::off},
                                     {"q8_0 rotated", KvType::q8_0, KvRotation::on},
                                     {"q4_0", KvType::q4_0, KvRotation::off},
                                     {"q4_0 rotated", KvType::q4_0, KvRotation::on}};

/// Σ p·ln(p/q) of two rows of logits.
double divergence(std::span<const float> p, std::span<const float> q) {
    const auto log_sum = [](std::span<const float> row) {
        const double most = *std::ranges::max_element(row);
        double sum = 0;
        for (const float x : row) sum += std::exp(x - most);
        return most + std::log(sum);
    };
    const double of_p = log_sum(p), of_q = log_sum(q);
    double sum = 0;
    for (std::size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i] - of_p) * ((p[i] - of_p) - (q[i] - of_q));
    return sum;
}

/// Processor time of one thread, which a busy machine disturbs least; of more, whose waiting is processor time, the
/// time on the wall.
double seconds_of(int n_threads) {
    if (n_threads == 1) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median_of(std::vector<double> list) {
    std::ranges::sort(list);
    return list[list.size() / 2];
}

/// Seconds of `n` generated tokens, which are then removed again.
double generation_seconds(Context& context, int n) {
    const auto end = static_cast<std::int32_t>(context.used());
    const int n_threads = context.options().n_threads;
    const double begin = seconds_of(n_threads);
    for (int i = 0; i < n; ++i)
        if (context.decode({Token{100 + i}}) != DecodeStatus::ok) throw std::runtime_error("a decode failed");
    const double seconds = seconds_of(n_threads) - begin;
    if (context.seq_rm(SeqId{0}, {Pos{end}}) != RemoveStatus::ok) throw std::runtime_error("tokens cannot be removed");
    return seconds;
}

std::vector<Token> tokens_of(const Model& model, const std::string& file, std::size_t n) {
    std::vector<Token> tokens;
    if (file.empty()) {
        for (std::size_t i = 0; i < n; ++i)
            tokens.push_back(Token{
                static_cast<std::int32_t>((i * 7919 + i / 13) % static_cast<std::size_t>(model.info().n_vocab - 1))});
        return tokens;
    }
    std::ifstream in(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    tokens = model.vocab().encode(text);
    if (tokens.size() < n)
        throw std::runtime_error("the text has " + std::to_string(tokens.size()) + " tokens of " + std::to_string(n));
    tokens.resize(n);
    return tokens;
}

void measure_cost(Printer& printer, Context& off, Context& on, std::string_view name, int pairs, int steps) {
    std::vector<double> ratios, of_off, of_on;
    for (int i = 0; i < pairs; ++i) {
        double a = 0, b = 0;
        if (i % 2 == 0) a = generation_seconds(off, steps), b = generation_seconds(on, steps);
        else b = generation_seconds(on, steps), a = generation_seconds(off, steps);
        ratios.push_back(b / a);
        of_off.push_back(a);
        of_on.push_back(b);
    }
    printer.print(Record("kv_rotation_cost")
                      .add("cache", name)
                      .add("behind", off.used())
                      .add("threads", off.options().n_threads)
                      .add("ms_off", 1e3 * median_of(of_off) / steps, 3)
                      .add("ms_on", 1e3 * median_of(of_on) / steps, 3)
                      .add("least_off", 1e3 * *std::ranges::min_element(of_off) / steps, 3)
                      .add("least_on", 1e3 * *std::ranges::min_element(of_on) / steps, 3)
                      .add("ratio", median_of(ratios), 4));
}

void bench_kv_rotation(int argc, char** argv) {
    Options options(argc, argv, kRotationUsage);
    const bool smoke = options.flag("smoke");
    const auto file = options.text("model", ""), text = options.text("text", "");
    const auto n_tokens = static_cast<std::size_t>(options.number("tokens", smoke ? 128 : 8192)),
               every = static_cast<std::size_t>(options.number("every", 16));
    const int n_threads = static_cast<int>(options.number("threads", 1)),
              pairs = static_cast<int>(options.number("pairs", smoke ? 1 : 21)),
              steps = static_cast<int>(options.number("steps", smoke ? 2 : 16));
    Printer printer(options.flag("json"));
    options.finish();
    const auto model = Model::load(file);
    const auto tokens = tokens_of(model, text, n_tokens);
    std::vector<Context> contexts;
    for (const CacheKind& kind : kCacheKinds)
        contexts.emplace_back(model, ContextOptions{.n_ctx = static_cast<int>(n_tokens) + 64,
                                                    .n_batch = 256,
                                                    .n_outputs = 256,
                                                    .n_threads = n_threads,
                                                    .type_k = kind.type,
                                                    .type_v = kind.type,
                                                    .kv_rotation = kind.rotation});
    std::vector<std::vector<double>> kl(std::size(kCacheKinds));
    std::size_t done = 0;
    const auto read_until = [&](std::size_t end) {
        while (done < end) {
            Batch batch;
            int n_outputs = 0;
            for (const std::size_t last = std::min(end, done + 256); done < last; ++done) {
                const bool output = (done + 1) % every == 0;
                n_outputs += output ? 1 : 0;
                batch.add(tokens[done], Pos{static_cast<std::int32_t>(done)}, SeqId{0}, output);
            }
            for (std::size_t k = 0; k < contexts.size(); ++k) {
                if (contexts[k].decode(batch) != DecodeStatus::ok) throw std::runtime_error("a decode failed");
                for (int i = 0; i < n_outputs; ++i)
                    kl[k].push_back(divergence(contexts[0].logits(i), contexts[k].logits(i)));
            }
        }
    };
    const auto costs = [&] {
        measure_cost(printer, contexts[1], contexts[2], "q8_0", pairs, steps);
        measure_cost(printer, contexts[3], contexts[4], "q4_0", pairs, steps);
    };
    read_until(std::min<std::size_t>(n_tokens / 2, 256));
    costs();
    read_until(n_tokens);
    for (std::size_t k = 1; k < contexts.size(); ++k) {
        const auto mean = [&](std::size_t from) {
            double sum = 0;
            for (std::size_t i = from; i < kl[k].size(); ++i) sum += kl[k][i];
            return sum / static_cast<double>(kl[k].size() - from);
        };
        printer.print(Record("kv_rotation_kl")
                          .add("cache", kCacheKinds[k].name)
                          .add("tokens", n_tokens)
                          .add("rows", kl[k].size())
                          .add("mean_kl", mean(0), 6)
                          .add("of_last_half", mean(kl[k].size() / 2), 6)
                          .add("median_kl", median_of(kl[k]), 6));
    }
    if (!smoke) costs();
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_kv_rotation", [&] { tinfer::bench::bench_kv_rotation(argc, argv); });
}
