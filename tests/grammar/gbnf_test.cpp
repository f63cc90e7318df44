// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <string>

#include "tinfer/grammar.hpp"

using namespace tinfer;

namespace {

std::string error_of(std::string_view grammar) {
    try {
        (void)Grammar::parse(grammar);
        return "none";
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::bad_grammar);
        return error.what();
    }
}

}  // namespace

TEST_CASE("[S8] grammar: literals, sets, references and repetitions match what they say") {
    const auto grammar = Grammar::parse("# sums\nroot ::= term (\"+\" term)*\nterm ::= [0-9]+ | \"(\" root \")\"\n");
    CHECK(grammar.n_rules() == 2);
    for (const char* text : {"1", "12+3", "(1+2)+3", "((((7))))"}) CHECK(grammar.matches(text));
    for (const char* text : {"", "+", "1+", "(1", "1)", "a"}) CHECK_FALSE(grammar.matches(text));
}

TEST_CASE("[S8] grammar: counts, negated sets, escapes, any character") {
    CHECK(Grammar::parse("root ::= \"a\"{2,3}").matches("aa"));
    CHECK_FALSE(Grammar::parse("root ::= \"a\"{2,3}").matches("aaaa"));
    CHECK(Grammar::parse("root ::= \"a\"{2}").matches("aa"));
    CHECK(Grammar::parse("root ::= \"a\"{2,}").matches("aaaaaaa"));
    CHECK_FALSE(Grammar::parse("root ::= \"a\"{2,}").matches("a"));
    CHECK(Grammar::parse("root ::= [^a-c\\]]").matches("世"));
    CHECK_FALSE(Grammar::parse("root ::= [^a-c\\]]").matches("b"));
    CHECK_FALSE(Grammar::parse("root ::= [^a-c\\]]").matches("]"));
    CHECK(Grammar::parse("root ::= [a\\-z]").matches("-"));
    CHECK(Grammar::parse("root ::= [a-]").matches("-"));
    CHECK(Grammar::parse("root ::= \"\\x41\\u00e9\\U0001F600\\n\"").matches("Aé\xF0\x9F\x98\x80\n"));
    CHECK(Grammar::parse("root ::= . .").matches("\n世"));
    CHECK_FALSE(Grammar::parse("root ::= .").matches("\xC3"));
    CHECK(Grammar::parse("root ::= \"a\" |\n  \"b\"\r\n").matches("b"));
    CHECK(Grammar::parse("root ::= (\n\"a\"\n\n)\rother ::= root").matches("a"));
    CHECK(Grammar::parse("root ::=").matches(""));
    CHECK(Grammar::parse("root ::= ((\"a\"?)*)*").matches("aaa"));
    CHECK(Grammar::parse("root ::= \"a\" root | \"b\"").matches(std::string(5000, 'a') + "b"));
    const std::string deep = std::string(3000, '(') + std::string(3000, ')');
    CHECK(Grammar::parse("root ::= \"(\" root? \")\"").matches(deep));
    CHECK_FALSE(Grammar::parse("root ::= \"(\" root? \")\"").matches(deep + ")"));
}

TEST_CASE("grammar: errors name line, column and rule") {
    CHECK(error_of("root ::= \"a") == "grammar: line 1, column 10: a literal has no end");
    CHECK(error_of("root ::= a\nb ::= \"x\"\n") == "grammar: line 1, column 10: rule 'a' is not defined");
    CHECK(error_of("a ::= \"x\"") == "grammar: line 1, column 1: there is no rule 'root'");
    CHECK(error_of("root ::= \"é\" ]") == "grammar: line 1, column 14: ']' begins no item");
    CHECK(error_of("root ::= [z-a]") == "grammar: line 1, column 11: a range ends before it begins");
    CHECK(error_of("root ::= \"\\q\"") == "grammar: line 1, column 11: unknown escape");
    CHECK(error_of("root ::= \"a\"{3,2}") == "grammar: line 1, column 13: the repetition {3,2} ends before it begins");
    CHECK(error_of("root ::= \"a\"{2001}") ==
          "grammar: line 1, column 13: too many repetitions: 2001, the limit is 2000");
    CHECK(error_of("root ::= (\"a\"{50}){50}") ==
          "grammar: line 1, column 14: too many repetitions: 50 times 50, the limit is 2000");
    CHECK(error_of("root ::= \"a\"\nroot2 = \"b\"") ==
          "grammar: line 2, column 7: '::=' is missing behind the name of a rule");
    CHECK(error_of("root ::= <|x|>").find("needs a vocabulary") != std::string::npos);
}

TEST_CASE("grammar: left recursion is refused by name, direct, over rules, and behind what may be empty") {
    CHECK(error_of("root ::= root \"a\" | \"b\"") ==
          "grammar: line 1, column 1: rule 'root' is left-recursive: root -> root");
    CHECK(error_of("root ::= x\nx ::= \"a\"? y\ny ::= x \"b\" | \"c\"") ==
          "grammar: line 2, column 1: rule 'x' is left-recursive: x -> y -> x");
    CHECK(error_of("root ::= \"a\" root | \"b\"") == "none");
    CHECK(error_of("root ::= \"a\" root") == "grammar: line 1, column 1: rule 'root' accepts no text that has an end");
}

TEST_CASE("[S8] grammar: alternatives that never end are no way to go; the last definition wins, with a warning") {
    const auto grammar = Grammar::parse("root ::= \"a\" endless | \"b\"\nendless ::= \"x\" endless\n");
    CHECK(grammar.matches("b"));
    CHECK_FALSE(grammar.matches("a"));
    const auto twice = Grammar::parse("root ::= \"a\"\nroot ::= \"b\"\n");
    CHECK(twice.matches("b"));
    CHECK_FALSE(twice.matches("a"));
    REQUIRE(twice.warnings().size() == 1);
    CHECK(twice.warnings()[0].find("'root' is defined again") != std::string::npos);
}
