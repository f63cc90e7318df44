// SPDX-License-Identifier: MIT
// The hand-written scanners against PCRE2 running the same expressions, on text of every kind.
#include <doctest/doctest.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "tokenizer/pretokenizer.hpp"
#include "tokenizer/pretokenizer_table.hpp"
#include "tokenizer/utf8.hpp"
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
        for (const std::string_view& pattern : kClasses) by_class_.emplace_back(tokenizer::PretokenizerFamily{"class", {&pattern, 1}}, Matching::expressions_only);
    }
    /// Bit i: in class i.
    unsigned of(char32_t c) {
        std::string text = "\xE2\x80\x8B";   // a neighbour of no class: a match cuts between the two
        tokenizer::append_utf8(text, c);
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
        if (std::ranges::any_of(family.patterns, [](auto pattern) { return tokenizer::find_scanner(pattern) != nullptr; }))
            out.push_back(&family);
    return out;
}

}  // namespace

TEST_CASE("pretokenizer: scanners cut every text as the expressions do") {
    // Two libraries, two versions of Unicode: characters that one of them does not know yet prove nothing.
    Classes classes;
    std::vector<char32_t> alphabet;
    std::mt19937_64 random(41);
    for (char32_t c = 1; c < 0x3100; ++c)
        if (classes.of(c) == classes_by_category(c)) alphabet.push_back(c);
    for (int i = 0; i < 6000; ++i) {
        const auto c = static_cast<char32_t>(0x3100 + random() % (0x110000 - 0x3100));
        if ((c < 0xD800 || c > 0xDFFF) && classes.of(c) == classes_by_category(c)) alphabet.push_back(c);
    }
    CHECK(alphabet.size() > 17000);

    const auto families = families_with_scanners();
    CHECK(families.size() >= 10);
    constexpr std::string_view bits[] = {" ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "'re", "'", "'v", "12", "1234567", "a", "Bc", "!", "?!",
                                         "$", "`", "~|", "\xC2\xA0", "\xE3\x80\x80", "\xE1\xA0\x8E", "\xCC\x81", "\xE4\xBA\xBA", "\xC2\xB2",
                                         "\xE2\x80\x8D", "\xC5\xBF", "\xE2\x80\xA8", "_", "<|", "e"};
    tokenizer::RegexScratch scratch;
    for (const auto* family : families) {
        CAPTURE(family->name);
        const Pretokenizer scanned(*family), expressed(*family, Matching::expressions_only);
        std::vector<std::size_t> ends, expected;
        int n_different = 0;
        for (int i = 0; i < 4000; ++i) {
            std::string text;
            for (auto n = random() % 24; n > 0; --n) {
                if (random() % 4 != 0) text += bits[random() % std::size(bits)];
                else tokenizer::append_utf8(text, alphabet[random() % alphabet.size()]);
            }
            scanned.split(text, scratch, ends);
            expressed.split(text, scratch, expected);
            if (ends != expected && ++n_different <= 3) MESSAGE(text);
        }
        CHECK(n_different == 0);
    }
}

}  // namespace tinfer::test
