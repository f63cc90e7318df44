// SPDX-License-Identifier: MIT
// Masks inside strings and keys are read off a trie of characters. Here each is compared, token by token, with the
// steps of the machine over the token's bytes, which know nothing of that trie.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "grammar/grammar_impl.hpp"
#include "grammar/mask_support.hpp"
#include "support/golden.hpp"

using namespace tinfer;
using namespace tinfer::grammar;
using tinfer::test::ByBytes;
using tinfer::test::has_bit;
using tinfer::test::program_of;
using tinfer::test::string_vocabulary;

namespace {

int compare_masks(const std::string& schema, const std::shared_ptr<const TokenTrie>& trie, int n_texts, int n_steps) {
    return tinfer::test::compare_masks(schema, program_of(schema), trie, n_texts, n_steps);
}

}  // namespace

TEST_CASE("[S8][S9] masks inside strings and keys are those of single tokens, read by their bytes") {
    const auto trie = string_vocabulary();
    const char* const schemas[] = {
        // Lengths: near both ends, of one character, further away than any piece, below a bound that is far.
        R"({"type": "string"})",
        R"({"type": "string", "maxLength": 0})",
        R"({"type": "string", "maxLength": 1})",
        R"({"type": "string", "minLength": 1, "maxLength": 3})",
        R"({"type": "string", "minLength": 5})",
        R"({"type": "string", "minLength": 40, "maxLength": 70})",
        R"({"type": "string", "minLength": 400})",
        R"({"type": "string", "maxLength": 200})",
        R"({"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 2}})",
        // Patterns: that end nowhere, everywhere, somewhere; with lengths; of which whole kinds of characters are free.
        R"({"type": "string", "pattern": "^[a-z]+$"})",
        R"({"type": "string", "pattern": "^[a-f0-9]{2}(-[a-f0-9]+)*$"})",
        R"({"type": "string", "pattern": "^.+$"})",
        R"({"type": "string", "pattern": "^.*$", "maxLength": 9})",
        R"({"type": "string", "pattern": "a$"})",
        R"({"type": "string", "pattern": "^[^/]+/[^/]*$"})",
        R"({"type": "string", "pattern": "^[^/]+/[^/]*$", "minLength": 4, "maxLength": 40})",
        R"({"type": "string", "pattern": "^\\S.{1,30}$"})",
        R"({"type": "string", "pattern": "^([^a]|aa)*$", "minLength": 12})",
        R"({"type": "string", "pattern": "^(a|b|[^a-z]{2})*$", "maxLength": 100})",
        R"({"type": "string", "pattern": "[世é😀]$"})",
        R"({"type": "string", "pattern": "^[^世]*$"})",
        R"({"type": "string", "format": "uuid"})",
        R"({"enum": ["name", "né", "世", "a\"b", "a\\b", "😀", "A", ""]})",
        R"({"anyOf": [{"type": "string", "maxLength": 2}, {"type": "string", "pattern": "^a*$"}, {"type": "number"}]})",
        // Keys: any, declared ones among them, only those, required ones, patterns, names with bounds.
        R"({"type": "object"})",
        R"({"type": "object", "maxProperties": 2})",
        R"({"type": "object", "properties": {"name": {"type": "null"}, "na": {"type": "string"}, "a": {}, "é": {}}})",
        R"({"type": "object", "properties": {"name": {"type": "null"}, "na": false, "世a": {}, "": {"type": "null"}}})",
        R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}, "\"": {"type": "null"}},
            "additionalProperties": false, "minProperties": 1})",
        R"({"type": "object", "properties": {"a": {"type": "null"}, "name": {"type": "null"}, "e": {"type": "null"}},
            "required": ["name"], "maxProperties": 2, "additionalProperties": {"type": "boolean"}})",
        R"({"type": "object", "patternProperties": {"^a": {"type": "null"}, "e$": {"type": "string"}}})",
        R"({"type": "object", "patternProperties": {"^a.*$": {"type": "null"}}, "additionalProperties": false,
            "properties": {"name": {"type": "null"}}})",
        R"({"type": "object", "patternProperties": {".+": {"type": "null"}}, "additionalProperties": false})",
        R"({"type": "object", "propertyNames": {"maxLength": 3}, "properties": {"name": {}, "na": {"type": "null"}}})",
        R"({"anyOf": [{"type": "object", "properties": {"a": {"type": "null"}}},
                      {"type": "object", "patternProperties": {"^b": {"type": "null"}}, "minProperties": 1}]})",
    };
    for (const char* schema : schemas) {
        CAPTURE(schema);
        CHECK(compare_masks(schema, trie, 6, 14) > 6);
    }
}

TEST_CASE("[S8][S9] a string's counters near their ends: masks at every length") {
    const auto trie = string_vocabulary();
    const auto one = [&] {
        for (std::uint32_t t = 0; t < trie->size(); ++t)
            if (trie->piece(t) == "z") return t;
        throw std::runtime_error("no such piece");
    }();
    for (const char* schema :
         {R"({"type": "string", "minLength": 90, "maxLength": 180})",
          R"({"type": "string", "pattern": "^(z|[^a]{2})*$", "minLength": 3, "maxLength": 180})"}) {
        const auto program = program_of(schema);
        const auto constraint =
            make_constraint(std::make_shared<const Grammar::Impl>(program, GrammarOptions{}), trie, nullptr);
        ByBytes slow(program, *trie);
        for (std::uint32_t t = 0; t < trie->size(); ++t)
            if (trie->piece(t) == "\"") constraint->accept(Token{static_cast<std::int32_t>(t)}), slow.accept(t);
        for (int n = 0; n <= 180; ++n) {
            const auto mask = constraint->mask();
            std::size_t n_wrong = 0;
            for (std::uint32_t t = 0; t < trie->size(); ++t) n_wrong += has_bit(mask, t) != slow.allows(t) ? 1 : 0;
            CAPTURE(schema);
            CAPTURE(n);
            REQUIRE(n_wrong == 0);
            REQUIRE(has_bit(mask, one) == (n < 180));
            if (n == 180) break;
            constraint->accept(Token{static_cast<std::int32_t>(one)});
            slow.accept(one);
        }
    }
}

TEST_CASE("[S8][S9][golden] masks of schemas as people write them, with a vocabulary of a model") {
    const auto schemas = tinfer::test::golden_file("maskbench/schemas.jsonl");
    const auto file = tinfer::test::golden_file("vocabs/ggml-vocab-gpt-2.gguf");
    if (!schemas || !file) return;
    const Vocab vocab = Vocab::load(*file);
    const auto trie = trie_of(vocab);
    std::ifstream lines(*schemas);
    int n = 0, n_masks = 0;
    for (std::string line; std::getline(lines, line); ++n) {
        if (n % 16 != 0) continue;  // a mask by bytes takes milliseconds
        const auto entry = nlohmann::ordered_json::parse(line);
        CAPTURE(entry.at("name").get<std::string>());
        try {
            n_masks += compare_masks(entry.at("schema").dump(), trie, 1, 12);
        } catch (const Error&) {  // refused
        }
    }
    CHECK(n_masks > 300);
}

TEST_CASE("[N17][golden] what a mask inside a string steps over does not grow with the vocabulary") {
    const auto file = tinfer::test::golden_file("vocabs/ggml-vocab-gpt-2.gguf");
    if (!file) return;
    const Vocab vocab = Vocab::load(*file);
    const auto trie = trie_of(vocab);
    REQUIRE(trie->size() > 50'000);
    for (const char* schema :
         {R"({"type": "object", "properties": {"name": {}, "other": {}}})", R"({"type": "string"})",
          R"({"type": "string", "minLength": 3, "maxLength": 10})", R"({"type": "string", "pattern": "^[^/]+/.*$"})",
          R"({"type": "object", "patternProperties": {"^[a-z]": {}}})"}) {
        CAPTURE(schema);
        Matcher matcher(program_of(schema), trie, {});
        Machine& machine = matcher.machine();
        Machine::State state = machine.start();
        const bool is_object = std::string_view(schema).find("object") != std::string_view::npos;
        for (const char byte : std::string_view(is_object ? "{\"a" : "\"a"))
            state = machine.step(state, static_cast<std::uint8_t>(byte));
        REQUIRE(state != Machine::kDead);
        const std::size_t before = machine.n_states();
        std::vector<std::uint64_t> mask(trie->n_words());
        matcher.mask(state, mask);
        CHECK(machine.n_states() - before < 200);  // those behind the quote
        // In the middle of a character, where the pieces that may end it are walked, but not all characters there are.
        const Machine::State escape = machine.step(state, '\\');
        if (escape == Machine::kDead) continue;
        const std::size_t before_escape = machine.n_states();
        matcher.mask(escape, mask);
        CHECK(machine.n_states() - before_escape < 2000);
    }
}

TEST_CASE("[S9][golden] a schema whose parts may be read in many ways at once is masked to the end of its texts") {
    const auto schemas = tinfer::test::golden_file("maskbench/schemas.jsonl");
    if (!schemas) return;
    const auto trie = string_vocabulary();
    std::ifstream lines(*schemas);
    int n_texts = 0;
    for (std::string line; std::getline(lines, line);) {
        if (line.find("Github_medium---o3626\"") == line.npos) continue;
        const auto entry = nlohmann::ordered_json::parse(line);
        Matcher matcher(program_of(entry.at("schema").dump()), trie, {});
        std::vector<std::uint64_t> mask(trie->n_words());
        for (const auto& test : entry.at("tests")) {
            if (!test.at("valid").get<bool>()) continue;
            Machine::State state = matcher.machine().start();
            for (const char byte : test.at("data").dump()) {
                matcher.mask(state, mask);
                state = matcher.machine().step(state, static_cast<std::uint8_t>(byte));
                REQUIRE(state != Machine::kDead);
            }
            CHECK(matcher.machine().accepts(state));
            ++n_texts;
        }
        CHECK(matcher.machine().n_stacks() < 20'000);  // ways to have come to one place are followed as one
    }
    CHECK(n_texts == 2);
}
