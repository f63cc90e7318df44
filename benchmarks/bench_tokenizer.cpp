// SPDX-License-Identifier: MIT
// Megabytes of text per second on one thread, by kind of text, for any vocabularies; and that time grows with length
// and nothing worse on hostile text. Checks first that tokens decode to the text and that cutting the work does not
// matter.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "mixed_text.hpp"
#include "support.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::bench {

namespace {

constexpr std::string_view kUsage =
    "usage: bench_tokenizer --vocab a.gguf,b.gguf [--text file] [--bytes 1000000] [--runs 5] [--write-text file]\n"
    "                       [--write-ids file] [--smoke] [--json]\n"
    "Times Vocab::encode and decode on one thread. Text: mixed by default, or a file.\n";

struct NamedText {
    std::string name, text;
};

std::string repeat(std::string_view unit, std::size_t n_bytes) {
    std::string out;
    while (out.size() + unit.size() <= n_bytes) out += unit;
    return out;
}

std::vector<NamedText> texts(std::size_t n) {
    MixedText source(1);
    return {{"mixed", source.mixed(n)},
            {"prose", source.prose(n)},
            {"code", source.code(n)},
            {"cjk", source.cjk(n)},
            {"emoji", source.emoji(n)},
            {"numbers", source.numbers(n)},
            {"one letter", repeat("a", n)},
            {"spaces", repeat(" ", n)},
            {"joiners", repeat("\xE2\x80\x8D", n)},
            {"ideograph", repeat("\xE4\xBA\xBA", n)},
            {"digits", repeat("7", n)},
            {"newlines", repeat("\n", n)}};
}

void write_ids(const std::string& path, const std::vector<Token>& tokens) {
    std::ofstream out(path, std::ios::binary);
    for (const Token token : tokens) out << static_cast<int>(token) << '\n';
    if (!out) throw std::runtime_error("cannot write " + path);
}

double best_seconds(int n_runs, auto&& work) {
    double best = 1e9;
    for (int i = 0; i < n_runs; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        work();
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return best;
}

void measure(Options& options) {
    const bool smoke = options.flag("smoke");
    const auto paths = options.list("vocab", "");
    const auto n = static_cast<std::size_t>(options.number("bytes", smoke ? 3000 : 1'000'000));
    const auto n_runs = static_cast<int>(options.number("runs", smoke ? 1 : 5));
    const std::string file = options.text("text", ""), written = options.text("write-text", "");
    const std::string ids_file = options.text("write-ids", "");
    Printer printer(options.flag("json"));
    options.finish();

    std::vector<NamedText> all = texts(n);
    if (!file.empty()) {
        std::ifstream in(file, std::ios::binary);
        if (!in) throw std::runtime_error("cannot read " + file);
        all = {{std::filesystem::path(file).filename().string(), {std::istreambuf_iterator<char>(in), {}}}};
    }
    if (!written.empty()) std::ofstream(written, std::ios::binary) << all.front().text;
    for (const std::string& path : paths) {
        if (path.empty()) continue;
        const Vocab vocab = Vocab::load(path);
        for (const auto& [name, text] : all) {
            const auto tokens = vocab.encode(text, {.add_special = false});
            if (vocab.encode(text, {.add_special = false}) != tokens)
                throw std::runtime_error(path + ": two calls disagree");
            if (!ids_file.empty()) write_ids(ids_file, tokens);
            const std::string back = vocab.decode(tokens, {.clean = DecodeOptions::Clean::off});
            std::size_t n_decoded = 0;
            const double encode = best_seconds(n_runs, [&] { (void)vocab.encode(text, {.add_special = false}); });
            const double decode = best_seconds(
                n_runs, [&] { n_decoded = vocab.decode(tokens, {.clean = DecodeOptions::Clean::off}).size(); });
            Record record("tokenizer");
            record.add("vocab", std::filesystem::path(path).stem().string())
                .add("text", name)
                .add("tokens", tokens.size());
            record.add("encode_mbps", static_cast<double>(text.size()) / encode * 1e-6, 1);
            record.add("decode_mbps", static_cast<double>(n_decoded) / decode * 1e-6, 1);
            record.add("reversible", back == text ? "yes" : "no");
            printer.print(record);
        }
    }
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_tokenizer", [&] {
        tinfer::bench::Options options(argc, argv, tinfer::bench::kUsage);
        tinfer::bench::measure(options);
    });
}
