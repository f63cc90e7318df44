// SPDX-License-Identifier: MIT
// Texts of strangers, nested as deep as they are accepted, on a stack of 256 KiB; and one level more, which is refused
// by name.
#include <doctest/doctest.h>

#include <string>

#include "base/json.hpp"
#include "grammar/normalize.hpp"
#include "grammar/regex.hpp"
#include "support/small_stack.hpp"
#include "tinfer/grammar.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

std::string refusal(const std::function<void()>& action) { return refusal_on_small_stack(action); }

/// Schemas d0 to d(n), each made of `link` with the number of the next in place of {}, and the last.
std::string chain(std::size_t n, std::string_view link, std::string_view last, std::string_view root = {}) {
    const auto with = [](std::string_view text, std::size_t number) {
        std::string out(text);
        for (std::size_t at; (at = out.find("{}")) != out.npos;) out.replace(at, 2, std::to_string(number));
        return out;
    };
    std::string out = "{\"$defs\": {";
    for (std::size_t i = 0; i < n; ++i) out += with("\"d{}\": ", i) + with(link, i + 1) + ", ";
    out += with("\"d{}\": ", n) + std::string(last) + "}, ";
    return out + (root.empty() ? "\"$ref\": \"#/$defs/d0\"" : std::string(root)) + "}";
}

std::string schema_refusal(const std::string& text) {
    return refusal([&] { (void)Schema::parse(text); });
}

}  // namespace

TEST_CASE("grammar: parentheses and repetitions inside each other fit into a small stack, and have a limit") {
    const auto nested = [](std::size_t n) {
        return "root ::= " + repeated("(", n) + "\"a\"" + repeated(" | \"b\")?", n);
    };
    CHECK(refusal([&] { CHECK(Grammar::parse(nested(200)).matches("a")); }) == "");
    CHECK(refusal([&] { (void)Grammar::parse(nested(201)); }).find("more than 200 parentheses inside each other") !=
          std::string::npos);
    CHECK(refusal([&] { (void)Grammar::parse(nested(1'000'000)); }).find("more than 200 parentheses") !=
          std::string::npos);
    std::string rules = "root ::= r0\n";
    for (int i = 0; i < 50'000; ++i) rules += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
    CHECK(refusal([&] { CHECK(Grammar::parse(rules + "r50000 ::= \"c\"\n").matches("c")); }) == "");
    CHECK(refusal([&] { (void)Grammar::parse(rules + "r50000 ::= r0\n"); }).find("is left-recursive: r0 -> r1 -> r2") !=
          std::string::npos);
}

TEST_CASE("schema: a chain of references has no limit but that of the text") {
    for (const std::size_t n : {100u, 30'000u}) {
        CHECK(schema_refusal(chain(n, R"({"$ref": "#/$defs/d{}"})", R"({"type": "integer"})")) == "");
        CHECK(schema_refusal(
                  chain(n, R"({"$ref": "#/$defs/d{}"})", R"({"type": "integer"})",
                        R"("properties": {"a": {"$ref": "#/$defs/d0"}, "b": {"not": {"$ref": "#/$defs/d0"}}})")) == "");
        const std::string circle = schema_refusal(chain(n, R"({"$ref": "#/$defs/d{}"})", R"({"$ref": "#/$defs/d0"})"));
        CHECK_MESSAGE(circle.find("the schema refers to itself with no value between") != std::string::npos, circle);
    }
    const auto schema = Schema::parse(chain(30'000, R"({"$ref": "#/$defs/d{}"})", R"({"type": "integer"})"));
    CHECK(schema.grammar().matches("12"));
    CHECK_FALSE(schema.grammar().matches("\"a\""));
}

TEST_CASE("schema: schemas inside each other, by whatever keyword, fit into a small stack, and have a limit") {
    const std::string to = R"("$ref": "#/$defs/d{}")";
    const std::string ways[] = {
        "{" + to + R"(, "description": "with a keyword beside it"})",
        R"({"allOf": [{)" + to + "}]}",
        R"({"anyOf": [{)" + to + R"(}, {"type": "null"}]})",
        R"({"oneOf": [{)" + to + R"(}, {"type": "null"}]})",
        R"({"not": {)" + to + "}}",
        R"({"not": {"not": {)" + to + "}}}",
        R"({"if": {)" + to + R"(}, "then": true, "else": {"type": "null"}})",
        R"({"if": {"type": "string"}, "then": {"maxLength": 3}, "else": {)" + to + "}}",
        R"({"not": {"anyOf": [{)" + to + R"(}, {"type": "null"}]}})",
        R"({"type": "object", "dependentSchemas": {"a": {)" + to + "}}}",
        R"({"dependencies": {"a": {)" + to + "}}}",
        R"({"unevaluatedProperties": false, "allOf": [{)" + to + "}]}",
        R"({"unevaluatedItems": false, "anyOf": [{)" + to + "}]}",
        R"({"$dynamicRef": "#/$defs/d{}"})",
        R"({"properties": {"a": {"oneOf": [{)" + to +
            R"(}, {"type": "null"}]}}, "required": ["a"], "oneOf": [{"minProperties": 1}, {"maxProperties": 0}]})",
        R"({"contains": {)" + to + R"(}, "items": {"oneOf": [{)" + to + R"(}, {"type": "null"}]}})",
        R"({"propertyNames": {)" + to + "}}",
        R"({"additionalProperties": {"not": {)" + to + "}}}",
    };
    for (const std::string& way : ways) {
        CAPTURE(way);
        for (const std::size_t n : {10u, 20u, 30u, 61u, 62u, 63u, 64u, 65u, 100u, 10'000u}) {
            CAPTURE(n);
            const std::string said = schema_refusal(chain(n, way, R"({"type": "string"})"));
            const bool is_known =
                said.empty() ||
                said.find("more than 64 schemas inside each other with no value between them") != said.npos ||
                said.find("is not supported") != said.npos || said.find("no value is allowed") != said.npos ||
                said.find("max_alternatives") != said.npos || said.find("steps") != said.npos ||
                said.find("that cannot be excluded") != said.npos || said.find("max_nodes") != said.npos ||
                said.find("its counts need more than") != said.npos || said.find("MiB") != said.npos;
            CHECK_MESSAGE(is_known, said);
        }
    }
    // The limit itself, of the plainest way: the document, and 63 more.
    CHECK(schema_refusal(chain(63, R"({"allOf": [{"$ref": "#/$defs/d{}"}]})", R"({"type": "string"})")).find("64") !=
          std::string::npos);
    CHECK(schema_refusal(chain(62, R"({"allOf": [{"$ref": "#/$defs/d{}"}]})", R"({"type": "string"})")) == "");
}

TEST_CASE("schema: values inside each other have no limit but that of the text") {
    CHECK(schema_refusal(chain(5'000, R"({"type": "object", "properties": {"a": {"$ref": "#/$defs/d{}"}}})",
                               R"({"type": "integer"})")) == "");
    CHECK(schema_refusal(chain(5'000,
                               R"({"type": "object", "properties": {"a": {"$ref": "#/$defs/d{}"}}, "required": ["a"]})",
                               R"({"type": "integer"})")) == "");
    CHECK(schema_refusal(chain(5'000, R"({"type": "array", "items": {"$ref": "#/$defs/d{}"}, "minItems": 1})",
                               R"({"type": "integer"})")) == "");
}

TEST_CASE("schema: a document nested as deep as it may, and a text to match") {
    const auto nested = [](std::size_t n) {
        return repeated(R"({"properties": {"a": )", n / 2) + "true" + repeated("}}", n / 2);
    };
    CHECK(schema_refusal(nested(200)) == "");
    CHECK(schema_refusal(nested(202)).find("nested deeper than 200") != std::string::npos);
    const std::string values = repeated("[", 199) + repeated("]", 199);
    CHECK(schema_refusal("{\"const\": " + values + "}") == "");
    CHECK(schema_refusal("{\"enum\": [" + values.substr(1, values.size() - 2) + ", 1]}") == "");

    const auto tree = Schema::parse(R"({"type": "array", "items": {"$ref": "#"}, "uniqueItems": false})");
    const auto text = [](std::size_t n) { return repeated("[", n) + repeated("]", n); };
    CHECK(refusal([&] { CHECK(tree.grammar().matches(text(1000))); }) == "");
    CHECK(refusal([&] { CHECK_FALSE(tree.grammar().matches(repeated("[", 999) + "1" + repeated("]", 999))); }) == "");
    CHECK(refusal([&] { (void)tree.grammar().matches(text(1001)); }).find("nested deeper than 1000") !=
          std::string::npos);
    const auto unique = Schema::parse(R"({"uniqueItems": true})", {.lenient = true});
    const auto plain = Schema::parse("{}");
    CHECK(refusal([&] { CHECK(plain.grammar().matches(text(1000))); }) == "");
    // Alternatives that differ deep inside only.
    const auto either = Schema::parse(R"({"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {
        "a": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/a"}, {"const": 1}]}},
        "b": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/b"}, {"const": 2}]}}}})");
    CHECK(refusal([&] { CHECK(either.grammar().matches(repeated("[", 999) + "1, 1" + repeated("]", 999))); }) == "");
    CHECK(refusal([&] { CHECK(either.grammar().matches(repeated("[", 999) + "2" + repeated("]", 999))); }) == "");
    CHECK(refusal([&] { CHECK_FALSE(either.grammar().matches(repeated("[", 999) + "1, 2" + repeated("]", 999))); }) ==
          "");
}

TEST_CASE("regular expression: groups inside each other fit into a small stack, and have a limit") {
    const auto nested = [](std::size_t n) { return repeated("(", n) + "a" + repeated("{1,2}|b)", n); };
    const auto groups = [](std::size_t n) { return "^" + repeated("(?:", n) + "a" + repeated(")", n) + "$"; };
    CHECK(refusal([&] { CHECK(!grammar::compile_regex(groups(200)).empty()); }) == "");
    CHECK(refusal([&] { (void)grammar::compile_regex(groups(201)); }).find("is nested too deep") != std::string::npos);
    CHECK(refusal([&] { (void)grammar::compile_regex(nested(200)); }).find("limit") == std::string::npos);
    const auto ahead = [](std::size_t n) { return "^" + repeated("(?=.*a)", n) + ".*$"; };
    CHECK(refusal([&] { CHECK(!grammar::compile_regex(ahead(64)).empty()); }) == "");
    CHECK(refusal([&] { (void)grammar::compile_regex(ahead(65)); }).find("more than 64 look-aheads") !=
          std::string::npos);
    CHECK(refusal([&] { (void)grammar::compile_regex(ahead(100'000)); }).find("more than 64 look-aheads") !=
          std::string::npos);
}

TEST_CASE("trigger: an expression nested as deep as PCRE2 takes it fits into a small stack") {
    const Vocab vocab = load_vocab(small_bpe());
    const Grammar grammar = Grammar::parse("root ::= \"a\"");
    const auto make = [&](std::size_t n) {
        return refusal(
            [&] { (void)grammar.constraint(vocab, {.patterns = {repeated("(", n) + "a" + repeated(")*", n)}}); });
    };
    CHECK(make(200) == "");
    CHECK(make(100'000).find("trigger pattern") != std::string::npos);
}

TEST_CASE("JSON: arrays and objects inside each other take no stack, to read and to let go") {
    for (const std::size_t depth : {1'000u, 200'000u}) {
        const std::string text = repeated(R"({"a": [)", depth / 2) + repeated("]}", depth / 2);
        CHECK(refusal([&] {
                  const auto document = JsonDocument::parse(text, "text", {.max_depth = depth});
                  CHECK(document.root().size() == 1);
              }) == "");
        CHECK(refusal([&] {
                  (void)JsonDocument::parse(text, "text", {.max_depth = depth - 1});
              }).find("nested deeper than") != std::string::npos);
    }
}

TEST_CASE("schema: its grammar as a text is written on a small stack, however long its names and lists are") {
    const auto text_of = [](const std::string& schema) {
        std::size_t n = 0;
        CHECK(refusal([&] {
                  const Grammar grammar = Schema::parse(schema).grammar();
                  n = grammar.text().size();
              }) == "");
        return n;
    };
    CHECK(text_of(R"({"type": "object", "properties": {")" + std::string(60'000, 'x') +
                  R"(": {"type": "null"}}, "additionalProperties": false})") > 60'000);
    std::string list = R"({"type": "array", "minItems": 3000, "maxItems": 3000, "prefixItems": [)";
    for (int i = 0; i < 3'000; ++i) list += std::string(i > 0 ? "," : "") + R"({"type": "null"})";
    CHECK(text_of(list + "]}") > 3'000);
}

}  // namespace tinfer::test
