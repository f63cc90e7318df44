// SPDX-License-Identifier: MIT
// Where a grammar repeats a set of characters, whole branches of the vocabulary are allowed without a step. Each mask
// is compared, token by token, with the steps of the machine over the token's bytes.
#include <doctest/doctest.h>

#include <string>

#include "grammar/byte_kinds.hpp"
#include "grammar/gbnf.hpp"
#include "grammar/mask_support.hpp"
#include "support/golden.hpp"

using namespace tinfer;
using namespace tinfer::grammar;
using tinfer::test::compare_masks;

TEST_CASE("[S8] masks of repeated sets are those of single tokens, read by their bytes") {
    const auto trie = tinfer::test::string_vocabulary();
    for (const char* text : {
             R"(root ::= [^"]*)",
             R"(root ::= "\"" [^"\\]* "\"")",
             R"(root ::= "\"" ([^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\"")",
             "root ::= \"\\\"\" char{0,200} \"\\\"\"\nchar ::= [^\"\\\\\\n] | \"\\\\\" [\"n]",
             "root ::= \"\\\"\" char{90,180} \"\\\"\"\nchar ::= [^\"]",
             "root ::= [a-zA]{70,} \".\"",
             "root ::= ([a-z]? [A-Z0-9]?){0,150} \"-\" root?",
             "root ::= line+\nline ::= [^\\n\\u4e16]* \"\\n\"",
             "root ::= word (\" \" word)* \".\"\nword ::= [a-z0-9\\u00e9]+",
             "root ::= [\\u0080-\\U0010FFFF]+ [a-z]*",
             "root ::= ([^a] | \"a\" [^b])*",
             "root ::= \"[\" (.{0,9} \",\"){2,140} \"]\"",
         }) {
        CAPTURE(text);
        CHECK(compare_masks(text, parse_gbnf(text), trie, 6, 14) > 6);
    }
}

TEST_CASE("[S8] what a grammar repeats with bounds has the right masks at every number of times") {
    const auto trie = tinfer::test::string_vocabulary();
    const auto token_of = [&](std::string_view piece) {
        for (std::uint32_t t = 0; t < trie->size(); ++t)
            if (trie->piece(t) == piece) return t;
        throw std::runtime_error("no such piece");
    };
    const auto z = token_of("z");
    const auto program = parse_gbnf("root ::= item{95,200} \"]\"\nitem ::= [a-z] | \"\\\"\"");
    const auto constraint =
        make_constraint(std::make_shared<const Grammar::Impl>(program, GrammarOptions{}), trie, nullptr);
    tinfer::test::ByBytes slow(program, *trie);
    for (int n = 0; n <= 200; ++n) {
        const auto mask = constraint->mask();
        std::size_t n_wrong = 0;
        for (std::uint32_t t = 0; t < trie->size(); ++t)
            n_wrong += tinfer::test::has_bit(mask, t) != slow.allows(t) ? 1 : 0;
        CAPTURE(n);
        REQUIRE(n_wrong == 0);
        REQUIRE(tinfer::test::has_bit(mask, z) == (n < 200));
        REQUIRE(tinfer::test::has_bit(mask, token_of("]")) == (n >= 95));
        if (n == 200) break;
        constraint->accept(Token{static_cast<std::int32_t>(z)});
        slow.accept(z);
    }
}

TEST_CASE("[N17][golden] a mask inside a string that a grammar writes steps over a small part of the vocabulary") {
    const auto file = tinfer::test::golden_file("vocabs/ggml-vocab-gpt-2.gguf");
    if (!file) return;
    const Vocab vocab = Vocab::load(*file);
    const auto trie = trie_of(vocab);
    REQUIRE(trie->size() > 50'000);
    for (const char* text : {R"(root ::= "\"" [^"\\]* "\"")", R"(root ::= "\"" [^"]{0,1000} "\"")",
                             R"(root ::= "\"" ([^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\"")"}) {
        CAPTURE(text);
        Matcher matcher(parse_gbnf(text), trie, {});
        Machine::State state = matcher.machine().start();
        for (const char byte : std::string_view("\"abc"))
            state = matcher.machine().step(state, static_cast<std::uint8_t>(byte));
        REQUIRE(state != Machine::kDead);
        std::vector<std::uint64_t> mask(trie->n_words());
        matcher.mask(state, mask);
        CHECK(matcher.n_walked() < trie->size() / 20);
    }
}
