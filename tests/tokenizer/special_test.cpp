// SPDX-License-Identifier: MIT
// Cutting special tokens out of a text, against the definition spelt out: token by token, the longest first.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tinfer/text.hpp"
#include "tokenizer/scratch.hpp"
#include "tokenizer/special.hpp"

namespace tinfer::test {

namespace {

using tokenizer::Fragment;
using tokenizer::kNoToken;

struct SpecialToken {
    std::string text;
    std::uint16_t attr;
};

constexpr bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::vector<Fragment> partition_by_definition(std::string_view text, const std::vector<SpecialToken>& tokens,
                                              bool parse_special) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < tokens.size(); ++i) order.push_back(i);
    std::ranges::stable_sort(
        order, [&](std::size_t a, std::size_t b) { return tokens[a].text.size() > tokens[b].text.size(); });
    std::vector<Fragment> fragments;
    if (!text.empty()) fragments.push_back({0, text.size()});
    for (const std::size_t i : order) {
        const auto& [word, attr] = tokens[i];
        if (!parse_special && (attr & TokenAttr::user_defined) == 0) continue;
        std::vector<Fragment> next;
        for (const Fragment& fragment : fragments) {
            if (fragment.special != kNoToken) {
                next.push_back(fragment);
                continue;
            }
            std::size_t begin = fragment.begin;
            for (std::size_t at; (at = text.substr(0, fragment.end).find(word, begin)) != text.npos;) {
                std::size_t left = at;
                while ((attr & TokenAttr::lstrip) != 0 && left > begin && is_space(text[left - 1])) --left;
                if (begin < left) next.push_back({begin, left});
                begin = at + word.size();
                next.push_back({at, begin, static_cast<std::int32_t>(i)});
                while ((attr & TokenAttr::rstrip) != 0 && begin < fragment.end && is_space(text[begin])) ++begin;
            }
            if (begin < fragment.end) next.push_back({begin, fragment.end});
        }
        fragments = next;
    }
    return fragments;
}

std::string random_word(std::mt19937_64& random, std::size_t most) {
    std::string word;
    for (auto n = 1 + random() % most; n > 0; --n) word += "aab< \n"[random() % 6];
    return word;
}

}  // namespace

TEST_CASE("partition: equals the definition for tokens that overlap, contain and repeat each other, with stripping") {
    std::mt19937_64 random(7);
    tokenizer::Scratch scratch;
    int n_special = 0;
    for (int round = 0; round < 400; ++round) {
        std::vector<SpecialToken> tokens;
        tokenizer::TextIndex texts;
        std::vector<std::uint16_t> attrs;
        for (auto n = 1 + random() % 12; n > 0; --n) {
            const bool repeats = !tokens.empty() && random() % 6 == 0;
            std::uint32_t attr = random() % 2 == 0 ? TokenAttr::user_defined : TokenAttr::control;
            if (random() % 6 == 0) attr |= TokenAttr::lstrip;
            if (random() % 6 == 0) attr |= TokenAttr::rstrip;
            tokens.push_back({repeats ? tokens[random() % tokens.size()].text : random_word(random, 5),
                              static_cast<std::uint16_t>(attr)});
            texts.add(tokens.back().text);
            attrs.push_back(tokens.back().attr);
        }
        texts.build();
        tokenizer::SpecialMatcher matcher;
        matcher.build(texts, attrs);
        for (int i = 0; i < 40; ++i) {
            const std::string text = i == 0 ? "" : random_word(random, 40);
            for (const bool parse_special : {true, false}) {
                matcher.partition(text, parse_special, {}, scratch);
                const auto expected = partition_by_definition(text, tokens, parse_special);
                const bool same =
                    std::ranges::equal(scratch.fragments, expected, [](const Fragment& a, const Fragment& b) {
                        return a.begin == b.begin && a.end == b.end && a.special == b.special;
                    });
                if (!same) FAIL_CHECK("round ", round, ": ", text);
                n_special += static_cast<int>(
                    std::ranges::count_if(expected, [](const Fragment& f) { return f.special != kNoToken; }));
            }
        }
    }
    CHECK(n_special > 50'000);
}

}  // namespace tinfer::test
