// SPDX-License-Identifier: MIT
// The hand-written scanners against PCRE2 running the same expressions, on text of every kind.
#include <doctest/doctest.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <functional>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "base/utf8.hpp"
#include "support/alloc_counter.hpp"
#include "tokenizer/pretokenizer.hpp"
#include "tokenizer/pretokenizer_table.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

using tokenizer::Matching;
using tokenizer::Pretokenizer;

constexpr std::array<std::string_view, 4> kClasses{R"(\p{L})", R"(\p{N})", R"(\p{M})", R"(\p{P})"};

/// Asks PCRE2 for the classes of single characters.
class Classes {
public:
    Classes() {
        for (const std::string_view& pattern : kClasses)
            by_class_.emplace_back(tokenizer::PretokenizerFamily{"class", {&pattern, 1}}, Matching::expressions_only);
    }
    /// Bit i: in class i.
    unsigned of(char32_t c) {
        std::string text = "\xE2\x80\x8B";  // a neighbour of no class: a match cuts between the two
        append_code_point(text, c);
        unsigned bits = 0;
        for (std::size_t i = 0; i < by_class_.size(); ++i) {
            by_class_[i].split(text, scratch_, ends_);
            bits |= (ends_.size() == 2 ? 1u : 0u) << i;
        }
        return bits;
    }

private:
    std::vector<Pretokenizer> by_class_;
    tokenizer::RegexScratch scratch_;
    std::vector<std::size_t> ends_;
};

unsigned classes_by_category(char32_t c) {
    switch (utf8proc_category_string(static_cast<utf8proc_int32_t>(c))[0]) {
        case 'L': return 1;
        case 'N': return 2;
        case 'M': return 4;
        case 'P': return 8;
        default: return 0;
    }
}

std::vector<const tokenizer::PretokenizerFamily*> families_with_scanners() {
    std::vector<const tokenizer::PretokenizerFamily*> out;
    for (const auto& family : tokenizer::pretokenizer_families())
        if (std::ranges::any_of(family.patterns,
                                [](auto pattern) { return tokenizer::find_scanner(pattern) != nullptr; }))
            out.push_back(&family);
    return out;
}

/// Random text of pieces that expressions tell apart and of characters of which both libraries know the class.
class RandomTexts {
public:
    RandomTexts() {
        // Two libraries, two versions of Unicode: characters that one of them does not know yet prove nothing.
        Classes classes;
        for (char32_t c = 1; c < 0x3100; ++c)
            if (classes.of(c) == classes_by_category(c)) alphabet_.push_back(c);
        for (int i = 0; i < 6000; ++i) {
            const auto c = static_cast<char32_t>(0x3100 + random_() % (0x110000 - 0x3100));
            if ((c < 0xD800 || c > 0xDFFF) && classes.of(c) == classes_by_category(c)) alphabet_.push_back(c);
        }
    }
    [[nodiscard]] std::size_t n_characters() const { return alphabet_.size(); }

    std::string next() {
        constexpr std::string_view bits[] = {
            " ",      "  ",     "\n",      "\r\n",   "\t",           "'s",     "'LL",      "'re",        "'",
            "'v",     "12",     "1234567", "a",      "Bc",           "!",      "?!",       "$",          "`",
            "~|",     "\u00A0", "\u3000",  "\u180E", "\u0301",       "\u4EBA", "\u00B2",   "\u200D",     "\u017F",
            "\u2028", "_",      "<|",      "e",      "\u0663\u0664", "\u2160", "\u24B6",   "\U0001F170", "   \n  ",
            "A",      "\u3005", "\u3007",  "\u01C5", "\u02B0",       " b",     " a\u0301", "/"};
        std::string text;
        for (auto n = random_() % 24; n > 0; --n) {
            if (random_() % 40 == 0) text += std::string(random_() % 1200, " 7\n"[random_() % 3]);
            else if (random_() % 4 != 0) text += bits[random_() % std::size(bits)];
            else append_code_point(text, alphabet_[random_() % alphabet_.size()]);
        }
        return text;
    }

private:
    std::mt19937_64 random_{41};
    std::vector<char32_t> alphabet_;
};

/// Fails where two ways of cutting differ on any of many texts.
void check_equal_cuts(const Pretokenizer& ours, const Pretokenizer& theirs, RandomTexts& texts, int n_texts) {
    tokenizer::RegexScratch scratch;
    std::vector<std::size_t> ends, expected;
    int n_different = 0;
    for (int i = 0; i < n_texts; ++i) {
        const std::string text = texts.next();
        ours.split(text, scratch, ends);
        theirs.split(text, scratch, expected);
        if (ends != expected && ++n_different <= 3) MESSAGE(text);
    }
    CHECK(n_different == 0);
}

ErrorCode refusal_of(const Pretokenizer& pretokenizer, std::string_view text, tokenizer::RegexLimits limits,
                     std::string& message) {
    tokenizer::RegexScratch scratch(limits);
    std::vector<std::size_t> ends;
    try {
        pretokenizer.split(text, scratch, ends);
        return {};
    } catch (const Error& error) {
        message = error.what();
        return error.code();
    }
}

}  // namespace

TEST_CASE("pretokenizer: scanners cut every text as the expressions do") {
    RandomTexts texts;
    CHECK(texts.n_characters() > 17000);
    const auto families = families_with_scanners();
    CHECK(families.size() >= 13);
    for (const auto* family : families) {
        CAPTURE(family->name);
        check_equal_cuts(Pretokenizer(*family), Pretokenizer(*family, Matching::expressions_only), texts, 4000);
    }
}

TEST_CASE("pretokenizer: expressions that the table writes in another way cut as the published ones") {
    struct Published {
        std::string_view family;
        std::size_t i;
        std::string_view pattern;
    };
    constexpr Published all[] = {
        {"deepseek-llm", 3, R"re(\s+$)re"},
        {"kimi-k2", 0,
         R"re(\p{Han}+|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})%U%)*(?:(?!\p{Han})%W%)+%C%?)re"
         R"re(|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})%U%)+(?:(?!\p{Han})%W%)*%C%?|\p{N}{1,3})re"
         R"re(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re"},
        {"exaone-moe", 0,
         R"re(%C%|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?)re"
         R"re(|\s*[\r\n]|\s+(?!\S)|\s+)re"},
        {"jais-2", 0,
         R"re(%C%|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S))re"
         R"re(|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S))re"
         R"re(|\s{1,2}(?!\S)|\s{1})re"},
    };
    RandomTexts texts;
    for (const auto& [name, i, pattern] : all) {
        CAPTURE(name);
        const auto* family = tokenizer::find_pretokenizer_family(name);
        std::vector<std::string_view> patterns(family->patterns.begin(), family->patterns.end());
        CHECK(patterns.at(i) != pattern);
        patterns.at(i) = pattern;
        check_equal_cuts(Pretokenizer(*family), Pretokenizer({name, patterns}), texts, 12000);
    }
}

TEST_CASE("pretokenizer: a match that needs more than the limits is an error with the number, never other pieces") {
    std::string message;
    constexpr std::string_view nested = "(?:a|aa)+[bc]";  // as many ways as the text has compositions
    const Pretokenizer slow({"slow", {&nested, 1}}, Matching::expressions_only);
    CHECK(refusal_of(slow, std::string(200, 'a'), {.n_steps = 50'000}, message) == ErrorCode::limit_exceeded);
    CHECK(message.find("'slow'") != message.npos);
    CHECK(message.find("200 bytes") != message.npos);
    CHECK(message.find("50000 steps") != message.npos);

    constexpr std::string_view deep = "(?:a|b(?=c))+";  // remembers every character
    const Pretokenizer large({"large", {&deep, 1}}, Matching::expressions_only);
    CHECK(refusal_of(large, std::string(300'000, 'a'), {.heap_kib = 100}, message) == ErrorCode::limit_exceeded);
    CHECK(message.find("'large'") != message.npos);
    CHECK(message.find("100 KiB") != message.npos);
    CHECK(refusal_of(large, std::string(100, 'a'), {.heap_kib = 100}, message) == ErrorCode{});
}

TEST_CASE("[N3] pretokenizer: PCRE2 allocates as the library does, and lack of memory is no other way to cut") {
    const auto* family = tokenizer::find_pretokenizer_family("gpt-4o");
    constexpr std::string_view deep = "(?:a|b(?=c))+";
    const std::string text(100'000, 'a');
    const auto outcome = [&](const std::function<void()>& action) {
        bool refused = false;
        try {
            action();
        } catch (const std::bad_alloc&) {
            refused = true;
        }
        const bool failed = allocation_failed();
        fail_allocation_at(0);
        CHECK(refused == failed);
        return failed;
    };
    int n_compiling = 0, n_matching = 0;
    for (bool failed = true; failed; n_compiling += failed ? 1 : 0)
        failed = outcome([&, n = static_cast<std::uint64_t>(n_compiling + 1)] {
            fail_allocation_at(n);
            (void)Pretokenizer(*family);
        });
    CHECK(n_compiling > 8);  // the code, and what the compiler of machine code works with

    const Pretokenizer pretokenizer({"deep", {&deep, 1}});
    std::vector<std::size_t> expected;
    tokenizer::RegexScratch plenty;
    pretokenizer.split(text, plenty, expected);
    CHECK(expected.size() == 1);
    for (bool failed = true; failed; n_matching += failed ? 1 : 0) {
        std::vector<std::size_t> ends;
        failed = outcome([&, n = static_cast<std::uint64_t>(n_matching + 1)] {
            fail_allocation_at(n);
            tokenizer::RegexScratch scratch;
            pretokenizer.split(text, scratch, ends);
            CHECK(ends == expected);
        });
    }
    CHECK(n_matching > 4);  // contexts, match data, and the ways back that the interpreter remembers
}

}  // namespace tinfer::test
