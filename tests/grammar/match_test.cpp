// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include "tinfer/grammar.hpp"

#include <string>
#include <vector>

using namespace tinfer;

namespace {

std::vector<unsigned char> next_of(const GrammarMatch& match) {
    std::vector<unsigned char> bytes;
    for (std::size_t i = 0; i < match.next.size(); ++i)
        if (match.next[i]) bytes.push_back(static_cast<unsigned char>(i));
    return bytes;
}

}  // namespace

TEST_CASE("grammar: a text that is refused has a place, and what may come there") {
    const auto list = Grammar::parse(R"(root ::= "[" ("yes" | "no!") ("," "yes")* "]")");
    const auto accepted = match(list, "[yes,yes]");
    CHECK(accepted.accepted);
    CHECK(accepted.n_bytes == 9);

    const auto wrong = match(list, "[maybe]");
    CHECK_FALSE(wrong.accepted);
    CHECK(wrong.n_bytes == 1);
    CHECK(wrong.words == std::vector<std::string>{"no!", "yes"});
    CHECK_FALSE(wrong.may_end);

    const auto early = match(list, "[no");
    CHECK(early.n_bytes == 3);
    CHECK(next_of(early) == std::vector<unsigned char>{'!'});

    const auto more = match(list, "[yes]]");
    CHECK(more.n_bytes == 5);
    CHECK(more.may_end);
    CHECK(next_of(more).empty());
    CHECK(match(list, "").n_bytes == 0);
}

TEST_CASE("grammar: where many bytes may follow there are no words") {
    const auto any = match(Grammar::parse("root ::= [a-zA-Z]+"), "ab1");
    CHECK(any.n_bytes == 2);
    CHECK(next_of(any).size() == 52);
    CHECK(any.words.empty());
    CHECK(any.may_end);
}

TEST_CASE("grammar: the place in a text of a schema is that in its order") {
    const auto schema = Schema::parse(R"({"type": "object", "properties": {"name": {"enum": ["Ann", "Bo"]},
        "age": {"type": "integer"}}, "required": ["name", "age"], "additionalProperties": false})");
    CHECK(match(schema.grammar(), R"({"age": 1, "name": "Bo"})").accepted);  // checked in any order
    const auto wrong = match(schema.grammar(), R"({"name": "Al", "age": 1})");
    CHECK(wrong.n_bytes == 11);
    CHECK(wrong.words == std::vector<std::string>{"nn\""});
    const auto kind = match(schema.grammar(), R"({"name": "Bo", "age": x})");
    CHECK(kind.n_bytes == 22);
    CHECK(kind.next['-']);
    CHECK_FALSE(kind.next['x']);
}
