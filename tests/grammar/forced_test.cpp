// SPDX-License-Identifier: MIT
// The tokens that follow where a text has one continuation.
#include <doctest/doctest.h>

#include <string>

#include "grammar/gbnf.hpp"
#include "grammar/machine.hpp"
#include "tinfer/grammar.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

std::string forced_bytes(grammar::Machine& machine, grammar::Machine::State state) {
    std::string out;
    while (machine.append_forced(state, out)) {
    }
    return out;
}

/// What is forced behind a text, as text.
std::string forced_behind(const Grammar& grammar, const Vocab& vocab, std::string_view text) {
    const auto constraint = grammar.constraint(vocab);
    std::string padded = "\n" + std::string(text);  // no space in front of what follows
    for (const char c : text) {
        std::int32_t token = 0;
        while (vocab.piece(Token{token}, true) != std::string(1, c)) ++token;
        constraint->accept(Token{token});
    }
    const auto copy = constraint->clone();
    std::string out;
    for (const Token token : constraint->forced()) {
        CHECK(copy->allows(token));
        copy->accept(token);
        out += vocab.piece(token, true);
    }
    return out;
}

Grammar spaced(std::string_view schema) {
    return Schema::parse(schema, {.space = SchemaOptions::Space::spaced}).grammar();
}

}  // namespace

TEST_CASE("[J3] forced: bytes of a grammar, up to the first choice or a place where it may end") {
    grammar::Machine machine(grammar::parse_gbnf("root ::= \"a\" [xy] | \"a\""), 8);
    CHECK(forced_bytes(machine, machine.start()) == "a");
    CHECK(forced_bytes(machine, machine.step(machine.start(), 'a')).empty());
    grammar::Machine word(grammar::parse_gbnf("root ::= \"abc\" [xy]"), 8);
    CHECK(forced_bytes(word, word.start()) == "abc");
    CHECK(forced_bytes(word, word.step(word.start(), 'a')) == "bc");
}

TEST_CASE("[J3] forced: names and values of a schema, which could be spelled by escapes, follow without them") {
    const auto vocab = load_vocab(small_bpe("gpt-2"));
    const Grammar grammar =
        spaced(R"({"type": "object", "properties": {"na\"m\u00e9\n": {"const": "x\\y\u0001"}, "unit":
        {"enum": ["celsius", "fahrenheit"]}, "list": {"type": "array", "items": {"const": "z"}, "maxItems": 1}},
        "required": ["na\"m\u00e9\n", "unit"], "additionalProperties": false})");
    // The last token may be the begin of a longer one, and is not given.
    const std::string all = "{\"na\\\"m\xC3\xA9\\n\": \"x\\\\y\\u0001\", \"unit\": \"";
    const std::string begin = forced_behind(grammar, vocab, "");
    CHECK(all.starts_with(begin));
    CHECK(begin.size() + 3 >= all.size());
    CHECK(forced_behind(grammar, vocab, "{\"na\\\"m\\u00e").empty() == false);  // an escape that was begun goes on
    CHECK(std::string("elsius\"").starts_with(forced_behind(grammar, vocab, all + "c")));
    CHECK(forced_behind(grammar, vocab, all + "c").size() >= 5);
    // Behind the only element of a list the text goes on to its end.
    CHECK(forced_behind(grammar, vocab, all + "celsius\", \"list\": [\"z\"") == "]}");
    // A choice of characters, and of an end or a character.
    CHECK(forced_behind(spaced(R"({"enum": ["ab", "ac"]})"), vocab, "\"a").empty());
    CHECK(forced_behind(spaced(R"({"enum": ["a", "ab"]})"), vocab, "\"a").empty());
    CHECK(forced_behind(spaced(R"({"pattern": "^ab?$", "type": "string"})"), vocab, "\"ab") == "\"");
    CHECK(forced_behind(spaced(R"({"type": "string"})"), vocab, "\"").empty());
    CHECK(forced_behind(spaced(R"({"type": "string", "maxLength": 2})"), vocab, "\"xy") == "\"");
    // Names that are not declared may begin with any character.
    CHECK(forced_behind(spaced(R"({"type": "object", "properties": {"abc": true}, "minProperties": 1})"), vocab, "{\"a")
              .empty());
}

TEST_CASE("[J3] forced: a vocabulary that puts a space in front of texts has tokens for what is forced, too") {
    const auto vocab = load_vocab(small_spm());
    const auto grammar = Grammar::parse("root ::= \"ab: the hello\" [xy]");
    CHECK(std::string("ab: the hello").starts_with(forced_behind(grammar, vocab, "")));
    CHECK(forced_behind(grammar, vocab, "").size() > 4);
    CHECK(forced_behind(grammar, vocab, "a").size() > 4);
}

}  // namespace tinfer::test
