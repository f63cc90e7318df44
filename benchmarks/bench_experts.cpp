// SPDX-License-Identifier: MIT
// A mixture of experts beside a dense model that multiplies and reads as much per token: what choosing experts and
// cutting work by them costs. Both run by turns, so that a noisy machine treats them alike.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "random_model.hpp"
#include "support.hpp"

namespace tinfer::bench {

namespace {

constexpr std::string_view kUsage = "usage: bench_experts --moe FILE --dense FILE [--tokens 8] [--prompt 512] "
                                    "[--threads 1,2] [--rounds 5] [--smoke] [--json]\n"
                                    "Files as `generate_model --shape moe` and `--shape moe-dense` write them. Speed "
                                    "of the experts in percent of the dense\n"
                                    "model's, the median over rounds, for generation and prompt.\n";

using Clock = std::chrono::steady_clock;

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// Spread over the vocabulary, so that tokens of a prompt choose different experts.
std::vector<Token> some_tokens(int n, int n_vocab) {
    std::vector<Token> tokens;
    for (int i = 0; i < n; ++i) tokens.push_back(Token{3 + 7919 * i % (n_vocab - 3)});
    return tokens;
}

/// Seconds of decoding `n` tokens from an empty cache, at once or one by one.
double seconds(Context& context, int n, bool at_once) {
    context.clear();
    const auto tokens = some_tokens(n, context.model().info().n_vocab);
    const std::size_t step = at_once ? tokens.size() : 1;
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < tokens.size(); i += step)
        if (context.decode(std::span(tokens).subspan(i, step)) != DecodeStatus::ok)
            throw std::runtime_error("a decode did not succeed");
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// The tables of this machine give the model the same logits, or the figures mean nothing.
void check_bits(const Model& model) {
    std::vector<float> expected;
    for (const Isa isa : {Isa::reference, Isa::automatic}) {
        Context context(model, {.n_ctx = 64, .isa = isa});
        seconds(context, 3, true);
        const auto logits = context.logits();
        if (expected.empty()) expected.assign(logits.begin(), logits.end());
        else if (std::memcmp(expected.data(), logits.data(), logits.size_bytes()) != 0)
            throw std::runtime_error(cat(context.isa(), ": logits differ from the reference table"));
    }
}

struct Comparison {
    std::vector<double> moe, dense, ratios;

    void add(double moe_seconds, double dense_seconds) {
        moe.push_back(moe_seconds);
        dense.push_back(dense_seconds);
        ratios.push_back(100 * dense_seconds / moe_seconds);
    }
};

void compare(const Model& moe, const Model& dense, int n_threads, int n_tokens, int n_prompt, int rounds,
             Printer& printer) {
    const ContextOptions options{.n_ctx = std::max(n_tokens, n_prompt), .n_threads = n_threads};
    Context a(moe, options), b(dense, options);
    for (const bool at_once : {false, true}) {
        const int n = at_once ? n_prompt : n_tokens;
        Comparison comparison;
        for (int round = -1; round < rounds; ++round) {  // one round to warm up
            const double moe_seconds = seconds(a, n, at_once), dense_seconds = seconds(b, n, at_once);
            if (round >= 0) comparison.add(moe_seconds, dense_seconds);
        }
        Record record("experts");
        record.add("work", at_once ? "prompt" : "generation").add("threads", n_threads).add("tokens", n);
        record.add("moe_tps", n / median(comparison.moe), 1).add("dense_tps", n / median(comparison.dense), 1);
        printer.print(record.add("of_dense", median(comparison.ratios), 1));
    }
}

void run(Options& options) {
    const bool smoke = options.flag("smoke");
    const std::string moe_path = options.text("moe", ""), dense_path = options.text("dense", "");
    const int n_tokens = static_cast<int>(options.number("tokens", smoke ? 2 : 8));
    const int n_prompt = static_cast<int>(options.number("prompt", smoke ? 4 : 512));
    const int rounds = static_cast<int>(options.number("rounds", smoke ? 1 : 5));
    const auto threads = options.numbers("threads", "1,2");
    Printer printer(options.flag("json"));
    options.finish();
    if (moe_path.empty() || dense_path.empty())
        throw std::runtime_error("--moe FILE or --dense FILE is missing; see --help");
    if (n_tokens < 1 || n_prompt < 1 || rounds < 1)
        throw std::runtime_error("--tokens, --prompt and --rounds are at least 1");

    const Model moe = Model::load(moe_path), dense = Model::load(dense_path);
    check_bits(moe);
    check_bits(dense);
    for (const int n : threads) compare(moe, dense, n, n_tokens, n_prompt, rounds, printer);
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_experts", [&] {
        tinfer::bench::Options options(argc, argv, tinfer::bench::kUsage);
        tinfer::bench::run(options);
    });
}
