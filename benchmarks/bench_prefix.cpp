// SPDX-License-Identifier: MIT
// What a prompt costs whose pages a prefix store has: from memory and from a folder, beside computing it. The last
// piece of the prompt, which is never kept, is computed each time; logits are compared bit for bit.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "support.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::bench {

namespace {

using PrefixClock = std::chrono::steady_clock;

constexpr std::string_view kPrefixUsage =
    "usage: bench_prefix --model FILE [--tokens 4096] [--threads 2] [--rounds 3] [--folder DIR] [--smoke] [--json]\n";

struct Prompted {
    double seconds = 0;
    std::size_t n_restored = 0;
    std::vector<float> logits;
};

/// Restores what the store has of the prompt, computes the rest and keeps it.
Prompted prompt(PrefixStore& store, Context& context, std::span<const Token> tokens) {
    context.clear();
    const auto begin = PrefixClock::now();
    Prompted out;
    std::size_t n = out.n_restored = store.restore(context, SeqId{0}, tokens);
    while (n < tokens.size()) {
        const std::size_t piece = store.piece(context, n, tokens.size());
        if (context.decode(tokens.subspan(n, piece)) != DecodeStatus::ok) throw std::runtime_error("a decode failed");
        n += piece;
        store.keep(context, SeqId{0}, tokens.first(n));
    }
    out.seconds = std::chrono::duration<double>(PrefixClock::now() - begin).count();
    const auto logits = context.logits();
    out.logits.assign(logits.begin(), logits.end());
    return out;
}

double middle(std::vector<double> list) {
    std::ranges::sort(list);
    return list[list.size() / 2];
}

void bench_prefix(int argc, char** argv) {
    Options options(argc, argv, kPrefixUsage);
    const bool smoke = options.flag("smoke");
    const auto file = options.text("model", "");
    const int n_tokens = static_cast<int>(options.number("tokens", smoke ? 200 : 4096)),
              n_threads = static_cast<int>(options.number("threads", 2)),
              n_rounds = static_cast<int>(options.number("rounds", smoke ? 1 : 3));
    const std::filesystem::path folder =
        options.text("folder", (std::filesystem::temp_directory_path() / "bench_prefix").string());
    Printer printer(options.flag("json"));
    options.finish();
    const auto model = Model::load(file);
    Context context(model, {.n_ctx = n_tokens + 64, .n_threads = n_threads});
    std::vector<Token> tokens;
    for (int i = 0; i < n_tokens; ++i) tokens.push_back(Token{(i * 7919 + i / 13) % (model.info().n_vocab - 1)});

    std::filesystem::remove_all(folder);
    std::vector<double> cold, memory, disk;
    std::uint64_t bytes = 0;
    const auto check = [&](const Prompted& result, std::span<const float> expected, std::size_t n_least) {
        if (result.n_restored < n_least) throw std::runtime_error("the store has not what it was given");
        if (!expected.empty() && (expected.size() != result.logits.size() ||
                                  std::memcmp(expected.data(), result.logits.data(), expected.size_bytes()) != 0))
            throw std::runtime_error("a warm prompt has other bits");
    };
    const auto least = static_cast<std::size_t>(n_tokens - 1) / 64 * 64;
    for (int round = 0; round < n_rounds; ++round) {
        PrefixStore none(model, {.memory_limit = 0}), store(model, {.memory_limit = std::uint64_t{8} << 30}),
            files(model, {.memory_limit = 0, .folder = folder});
        const Prompted first = prompt(none, context, tokens);
        cold.push_back(first.seconds);
        (void)prompt(store, context, tokens);
        bytes = store.stats().bytes;
        if (round == 0) (void)prompt(files, context, tokens);
        const Prompted warm = prompt(store, context, tokens), read = prompt(files, context, tokens);
        check(warm, first.logits, least);
        check(read, first.logits, least);
        memory.push_back(warm.seconds);
        disk.push_back(read.seconds);
    }
    std::filesystem::remove_all(folder);
    for (const auto& [name, list] :
         {std::pair("computed", cold), std::pair("memory", memory), std::pair("folder", disk)})
        printer.print(Record("prefix")
                          .add("pages", name)
                          .add("tokens", n_tokens)
                          .add("threads", n_threads)
                          .add("seconds", middle(list), 4)
                          .percent("of_cold", middle(list), middle(cold))
                          .add("mib", static_cast<double>(bytes) / (1 << 20), 1));
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_prefix", [&] { tinfer::bench::bench_prefix(argc, argv); });
}
