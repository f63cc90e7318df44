// SPDX-License-Identifier: MIT
// Microseconds from a row of logits to a token, for the chains people use. Each chain is first checked against the same
// one on the reference functions, and its best tokens against a sorted row.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/kernel.hpp"
#include "sampling/chain.hpp"
#include "support.hpp"

namespace tinfer::bench {

namespace {

constexpr std::string_view kUsage =
    "usage: bench_sampler [--vocab 262144] [--runs 300] [--table automatic] [--smoke] [--json]\n"
    "Times sampling chains on one thread, a fresh row for every call.\n";

struct NamedOptions {
    std::string_view name;
    SamplerOptions options;
};

std::vector<NamedOptions> chains() {
    return {
        {"greedy", {.temp = 0.0f, .seed = 1}},
        {"default", {.seed = 1}},
        {"default+penalties", {.penalty_repeat = 1.1f, .penalty_freq = 0.1f, .seed = 1}},
        {"top_k 1000", {.top_k = 1000, .seed = 1}},
        {"min_p", {.top_k = 0, .top_p = 1.0f, .min_p = 0.05f, .seed = 1}},
        {"top_p", {.top_p = 0.95f, .order = "p", .seed = 1}},
        {"temperature alone", {.order = "t", .seed = 1}},
    };
}

/// Logits as a model makes them: a bell of width 2, a few tokens well above it.
std::vector<float> random_row(std::size_t n, std::mt19937& random) {
    std::vector<float> row(n);
    std::normal_distribution<float> bell(0.0f, 2.0f);
    for (float& logit : row) logit = bell(random);
    for (int i = 0; i < 20; ++i) row[random() % n] += 6.0f + static_cast<float>(i) * 0.3f;
    return row;
}

void check(const NamedOptions& chain, const RowOps& ops, const std::vector<std::vector<float>>& rows) {
    const std::size_t n = rows.front().size();
    sampling::Chain fast(n, chain.options, ops), plain(n, chain.options, reference_row_ops);
    for (const auto& row : rows) {
        const auto best = static_cast<std::int32_t>(std::ranges::max_element(row) - row.begin());
        const Token token = fast.sample(row);
        const bool best_left = chain.options.penalty_repeat != 1.0f || fast.probs(1).front().id == best;
        if (token != plain.sample(row) || fast.last_p() != plain.last_p() || !best_left)
            throw std::runtime_error(std::string(chain.name) + ": the reference samples another token");
    }
}

void measure(Options& options) {
    const bool smoke = options.flag("smoke");
    const auto n = static_cast<std::size_t>(options.number("vocab", smoke ? 5000 : 262144));
    const auto n_runs = static_cast<int>(options.number("runs", smoke ? 3 : 300));
    const std::string table_name = options.text("table", "automatic");
    Printer printer(options.flag("json"));
    options.finish();
    const kernels::KernelTable* table = kernels::find_table(Isa::automatic);
    for (const Isa isa : available_isas())
        if (to_string(isa) == table_name) table = kernels::find_table(isa);

    // Rows come from the last matrix product: in the L2 cache where they fit, and never the same one again.
    std::mt19937 random(1);
    std::vector<std::vector<float>> rows;
    for (int i = 0; i < 4; ++i) rows.push_back(random_row(n, random));
    for (const NamedOptions& named : chains()) {
        check(named, *table->row_ops, rows);
        sampling::Chain chain(n, named.options, *table->row_ops);
        std::vector<double> seconds;
        std::vector<float> logits(n);
        for (int i = 0; i < n_runs; ++i) {
            std::ranges::copy(rows[static_cast<std::size_t>(i) % rows.size()], logits.begin());
            const auto begin = std::chrono::steady_clock::now();
            (void)chain.sample(logits);
            seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
        }
        std::ranges::sort(seconds);
        Record record("sampler");
        record.add("chain", named.name).add("table", table->name).add("vocab", n);
        record.add("best_us", seconds.front() * 1e6, 1).add("median_us", seconds[seconds.size() / 2] * 1e6, 1);
        printer.print(record);
    }
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_sampler", [&] {
        tinfer::bench::Options options(argc, argv, tinfer::bench::kUsage);
        tinfer::bench::measure(options);
    });
}
