// SPDX-License-Identifier: MIT
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/code_of.hpp"
#include "tinfer/grammar.hpp"

namespace tinfer::test {
namespace {

/// Whether PCRE2 matches the whole text.
bool pcre2_matches(const std::string& pattern, const std::string& text) {
    int error = 0;
    std::size_t place = 0;
    const std::string whole = "^(?:" + pattern + ")\\z";
    pcre2_code* const code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(whole.data()), whole.size(), PCRE2_UTF, &error, &place, nullptr);
    REQUIRE(code != nullptr);
    pcre2_match_data* const match = pcre2_match_data_create_from_pattern(code, nullptr);
    const int n = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, match, nullptr);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    return n >= 0;
}

}  // namespace

TEST_CASE("grammar: a regular expression as a grammar admits what it matches from end to end") {
    const std::vector<std::string> patterns{"a+",    "(yes|no)", "[0-9]{3}-[0-9]{4}", "a|ab|abc",     "^ab*$",
                                            "",      "[^a]b?",   "(a|b)*abb",         "\\d{1,2}:\\d", "ä|[ö-ü]{2}",
                                            "^a|b$", ".{0,3}",   "\"\\[\\]\\^-"};
    const std::vector<std::string> texts{"",   "a",     "aa",   "ab",       "abb",  "abc",    "yes",
                                         "no", "yesno", "b",    "123-4567", "12:3", "cb",     "ä",
                                         "öü", "\n",    "x\ny", "aabb",     "babb", "\"[]^-", "🙂🙂"};
    for (const std::string& pattern : patterns) {
        const std::string gbnf = gbnf_of_regex(pattern);
        const Grammar grammar = Grammar::parse(gbnf);
        for (const std::string& text : texts) {
            CAPTURE(pattern);
            CAPTURE(gbnf);
            CAPTURE(text);
            CHECK(grammar.matches(text) == pcre2_matches(pattern, text));
        }
    }
}

TEST_CASE("grammar: texts as a grammar admit each as it stands") {
    const std::vector<std::string> texts{"yes", "no", "not now", "a\"b\\[c]^-\n", "schön 🙂", ""};
    const Grammar grammar = Grammar::parse(gbnf_of_texts(texts));
    for (const std::string& text : texts) CHECK(grammar.matches(text));
    for (const char* text : {"ye", "yess", "not", "n", "schon", "a\"b"}) CHECK_FALSE(grammar.matches(text));
}

TEST_CASE("grammar: what is no regular expression, and what no text matches, is refused") {
    const auto refuses = [](const std::string& pattern, ErrorCode code) {
        CAPTURE(pattern);
        CHECK(code_of([&] { (void)gbnf_of_regex(pattern); }) == code);
    };
    refuses("a)(b", ErrorCode::bad_parameter);
    refuses("[a", ErrorCode::bad_parameter);
    refuses("(a)\\1", ErrorCode::bad_parameter);
    refuses("a\\bb", ErrorCode::bad_parameter);
    refuses("b^a", ErrorCode::bad_parameter);
    refuses("\xFF", ErrorCode::bad_parameter);
    refuses("(a|b)*a(a|b){20}", ErrorCode::limit_exceeded);
    CHECK(code_of([] { (void)gbnf_of_texts({}); }) == ErrorCode::bad_parameter);
    const std::vector<std::string> broken{"a", "\xC3"};
    CHECK(code_of([&] { (void)gbnf_of_texts(broken); }) == ErrorCode::bad_parameter);
}

}  // namespace tinfer::test
