// SPDX-License-Identifier: MIT
// The tree of beginnings against a plain comparison with every sequence.
#include "serving/prefix_tree.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "support/small_stack.hpp"
#include "support/tiny_model.hpp"

namespace tinfer::serving {

namespace {

std::size_t same_tokens(const std::vector<Token>& a, const std::vector<Token>& b) {
    const std::size_t n = std::min(a.size(), b.size());
    std::size_t i = 0;
    while (i < n && a[i] == b[i]) ++i;
    return i;
}

}  // namespace

TEST_CASE("[V12] prefix tree: finds what plain comparison finds, whatever comes and goes") {
    constexpr std::size_t kSequences = 9;
    std::mt19937 random(5);
    const auto upto = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n)(random); };
    PrefixTree tree(kSequences);
    std::vector<std::vector<Token>> plain(kSequences);
    const auto base = test::random_tokens(400, 50, 3);
    for (int step = 0; step < 4000; ++step) {
        const std::size_t at = upto(kSequences - 1);
        const SeqId seq{static_cast<std::int32_t>(at)};
        auto& own = plain[at];
        switch (upto(3)) {
            case 0: {  // goes on as the base does, or not
                const std::size_t n = std::min(upto(90), 400 - std::min<std::size_t>(own.size(), 400));
                std::vector<Token> more(
                    base.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(own.size(), 400)),
                    base.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(own.size(), 400) + n));
                if (!more.empty() && upto(2) == 0) more.back() = Token{static_cast<std::int32_t>(upto(3))};
                tree.append(seq, more);
                own.insert(own.end(), more.begin(), more.end());
                break;
            }
            case 1: {
                const std::size_t n = upto(own.size());
                tree.truncate(seq, n);
                own.resize(n);
                break;
            }
            case 2: {
                const std::size_t to = (at + 1 + upto(kSequences - 2)) % kSequences;
                const std::size_t n = upto(own.size());
                tree.copy(seq, SeqId{static_cast<std::int32_t>(to)}, n);
                plain[to].assign(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(n));
                break;
            }
            default: {
                std::vector<Token> wanted(base.begin(), base.begin() + static_cast<std::ptrdiff_t>(upto(400)));
                if (!wanted.empty() && upto(1) == 0) wanted[upto(wanted.size() - 1)] = Token{1};
                std::size_t most = 0, whole = 0;
                for (const auto& other : plain) {
                    const std::size_t same = same_tokens(other, wanted);
                    most = std::max(most, same);
                    if (same == other.size()) whole = std::max(whole, same);
                }
                const auto found = tree.find(wanted);
                REQUIRE((found ? found->n_tokens : 0) == most);
                if (found) REQUIRE(same_tokens(plain[static_cast<std::size_t>(found->seq)], wanted) == most);
                const auto all = tree.find_whole(wanted);
                REQUIRE((all ? all->n_tokens : 0) == whole);
                if (all) REQUIRE(plain[static_cast<std::size_t>(all->seq)].size() == whole);
            }
        }
        REQUIRE(std::ranges::equal(tree.tokens(seq), own));
    }
}

TEST_CASE("[V12] prefix tree: a prompt of any length is let go on a small stack") {
    test::on_small_stack([] {
        PrefixTree tree(2);
        const std::vector<Token> tokens(PrefixTree::kPage * 20'000, Token{1});
        tree.append(SeqId{0}, tokens);
        tree.copy(SeqId{0}, SeqId{1}, tokens.size() / 2);
        tree.append(SeqId{1}, std::vector<Token>(PrefixTree::kPage, Token{2}));
        CHECK(tree.find(tokens)->n_tokens == tokens.size());
    });
}

}  // namespace tinfer::serving
