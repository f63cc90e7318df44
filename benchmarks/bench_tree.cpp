// SPDX-License-Identifier: MIT
// What a tree of guesses costs to check beside a chain, and how often its branches would be right. Each branch is a
// sequence that shares the text with the others; all are decoded in one batch, and the one that is kept becomes the
// text. Of a text it is counted how often the first and the second continuation that n-grams propose are right.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "support.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::bench {

namespace {

using TreeClock = std::chrono::steady_clock;

constexpr std::string_view kTreeUsage =
    "usage: bench_tree --model FILE [--threads 1] [--behind 256] [--rounds 12] [--text FILE,…] [--smoke] [--json]\n"
    "Of each text, encoded by the model's vocabulary, how often proposals of n-grams are right.\n";

/// Guesses of each branch. The first branch goes on in the sequence of the text.
struct Tree {
    std::string_view name;
    std::vector<int> branches;
    [[nodiscard]] int n_guesses() const {
        int n = 0;
        for (const int depth : branches) n += depth;
        return n;
    }
};
const Tree kTrees[] = {{"one token", {0}},
                       {"chain of 3", {3}},
                       {"3 branches of 1", {1, 1, 1}},
                       {"2 and 1", {2, 1}},
                       {"chain of 7", {7}},
                       {"4 and 3", {4, 3}},
                       {"3 and 4 of 1", {3, 1, 1, 1, 1}},
                       {"7 branches of 1", {1, 1, 1, 1, 1, 1, 1}},
                       {"chain of 15", {15}},
                       {"3 branches of 5", {5, 5, 5}}};
constexpr int kMaxBranches = 7;

Token tree_guess(int branch, int depth) { return Token{5 + branch * 17 + depth}; }

/// Checks a tree behind the text and keeps nothing but the pending token and all of the last branch, then takes that
/// back. Seconds of it without the last part.
double checked(Context& context, const Tree& tree, Token pending) {
    const auto end = context.count(SeqId{0});
    const auto begin = TreeClock::now();
    std::vector<SeqId> all;
    for (std::size_t b = 0; b < tree.branches.size(); ++b) all.push_back(SeqId{static_cast<std::int32_t>(b)});
    for (std::size_t b = 1; b < all.size(); ++b) context.seq_cp(SeqId{0}, all[b]);
    Batch batch;
    batch.add(pending, std::nullopt, all, true);
    for (std::size_t b = 0; b < all.size(); ++b)
        for (int i = 0; i < tree.branches[b]; ++i)
            batch.add(tree_guess(static_cast<int>(b), i), std::nullopt, std::span(&all[b], 1), true);
    if (context.decode(batch) != DecodeStatus::ok) throw std::runtime_error("a decode failed");
    const auto must = [](RemoveStatus status) {
        if (status != RemoveStatus::ok) throw std::runtime_error("tokens cannot be removed");
    };
    if (all.size() > 1) {
        must(context.seq_rm(SeqId{0}, {Pos{end}}));
        context.seq_cp(all.back(), SeqId{0}, {Pos{end}});
        for (std::size_t b = 1; b < all.size(); ++b) must(context.seq_rm(all[b]));
    }
    const double seconds = std::chrono::duration<double>(TreeClock::now() - begin).count();
    must(context.seq_rm(SeqId{0}, {Pos{end}}));
    return seconds;
}

/// The rows of every branch are those of decoding it token by token.
void check_rows(Context& context, const Tree& tree, Token pending) {
    const auto end = context.count(SeqId{0});
    (void)checked(context, tree, pending);
    std::vector<std::vector<float>> rows;
    for (int i = 0; i <= tree.n_guesses(); ++i) {
        const auto row = context.logits(i);
        rows.emplace_back(row.begin(), row.end());
    }
    std::size_t row = 0;
    const auto same = [&](Token token, std::size_t of) {
        if (context.decode({token}) != DecodeStatus::ok) throw std::runtime_error("a decode failed");
        const auto plain = context.logits();
        if (std::memcmp(plain.data(), rows[of].data(), plain.size_bytes()) != 0)
            throw std::runtime_error(std::string(tree.name) + ": other bits than token by token");
    };
    for (std::size_t b = 0; b < tree.branches.size(); ++b) {
        same(pending, 0);
        for (int i = 0; i < tree.branches[b]; ++i) same(tree_guess(static_cast<int>(b), i), ++row);
        if (context.seq_rm(SeqId{0}, {Pos{end}}) != RemoveStatus::ok) throw std::runtime_error("tokens stay");
    }
}

/// The latest two different tokens that followed the end of the first n tokens, that of the longest end first.
std::vector<Token> proposals(std::span<const Token> text, std::size_t n) {
    std::vector<Token> out;
    for (std::size_t length = std::min<std::size_t>(8, n - 1); length > 0; --length)
        for (std::size_t at = n - 1; at >= length; --at) {
            if (!std::equal(text.begin() + static_cast<std::ptrdiff_t>(at - length),
                            text.begin() + static_cast<std::ptrdiff_t>(at),
                            text.begin() + static_cast<std::ptrdiff_t>(n - length)))
                continue;
            if (std::ranges::find(out, text[at]) == out.end()) out.push_back(text[at]);
            if (out.size() == 2) return out;
        }
    return out;
}

void count_text(Printer& printer, const Vocab& vocab, const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    auto tokens = vocab.encode(text);
    tokens.resize(std::min<std::size_t>(tokens.size(), 4000));
    if (tokens.size() < 400) throw std::runtime_error("--text " + file + ": fewer than 400 tokens");
    std::size_t n = 0, first = 0, second = 0;
    for (std::size_t at = 200; at < tokens.size(); ++at, ++n) {
        const auto proposed = proposals(tokens, at);
        first += !proposed.empty() && proposed[0] == tokens[at] ? 1 : 0;
        second += proposed.size() > 1 && proposed[1] == tokens[at] ? 1 : 0;
    }
    printer.print(Record("tree_guesses")
                      .add("text", std::string_view(file).substr(file.find_last_of('/') + 1))
                      .add("tokens", n)
                      .percent("first_right", static_cast<double>(first), static_cast<double>(n))
                      .percent("second_right", static_cast<double>(second), static_cast<double>(n)));
}

double tree_median(std::vector<double> list) {
    std::ranges::sort(list);
    return list[list.size() / 2];
}

void bench_tree(int argc, char** argv) {
    Options options(argc, argv, kTreeUsage);
    const bool smoke = options.flag("smoke");
    const auto file = options.text("model", "");
    const int n_threads = static_cast<int>(options.number("threads", 1)),
              behind = static_cast<int>(options.number("behind", smoke ? 70 : 256)),
              rounds = static_cast<int>(options.number("rounds", smoke ? 1 : 12));
    const auto texts = options.list("text", "");
    Printer printer(options.flag("json"));
    options.finish();
    if (file.empty()) throw std::runtime_error("--model FILE is missing; see --help");
    const auto model = Model::load(file);
    // Branches of the same length of text need no more than a page each.
    Context context(model, {.n_ctx = behind + 64 * (kMaxBranches + 1),
                            .n_seq_max = kMaxBranches,
                            .n_outputs = 16,
                            .n_threads = n_threads,
                            .n_threads_batch = n_threads});
    std::vector<Token> text;
    for (int i = 0; i < behind; ++i) text.push_back(Token{(i * 7919 + i / 13) % (model.info().n_vocab - 1)});
    if (context.decode(text) != DecodeStatus::ok) throw std::runtime_error("a decode failed");
    for (const Tree& tree : kTrees) check_rows(context, tree, Token{3});
    std::vector<std::vector<double>> took(std::size(kTrees));
    for (int round = 0; round < rounds; ++round)
        for (std::size_t t = 0; t < std::size(kTrees); ++t) took[t].push_back(checked(context, kTrees[t], Token{3}));
    for (std::size_t t = 0; t < std::size(kTrees); ++t)
        printer.print(Record("tree")
                          .add("guesses", kTrees[t].name)
                          .add("threads", n_threads)
                          .add("tokens", 1 + kTrees[t].n_guesses())
                          .add("ms", 1e3 * tree_median(took[t]), 3)
                          .add("of_one_token", tree_median(took[t]) / tree_median(took[0])));
    for (const std::string& name : texts)
        if (!name.empty()) count_text(printer, model.vocab(), name);
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_tree", [&] { tinfer::bench::bench_tree(argc, argv); });
}
