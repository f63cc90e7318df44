// SPDX-License-Identifier: MIT
// Kinds of schemas that look at more than one value: order, references, complements, what was evaluated.
#include <doctest/doctest.h>

#include <random>
#include <string>

#include "grammar/emit.hpp"
#include "grammar/gbnf.hpp"
#include "grammar/grammar_impl.hpp"
#include "support/random_text.hpp"
#include "tinfer/grammar.hpp"

using namespace tinfer;

namespace {

struct KindCase {
    const char* schema;
    std::vector<const char*> valid, invalid;
};

/// The texts as they are checked, and those that constraints admit are among the valid ones.
void check_kind(const KindCase& kind) {
    CAPTURE(kind.schema);
    const auto schema = Schema::parse(kind.schema);
    for (const char* text : kind.valid) CHECK_MESSAGE(schema.grammar().matches(text), text);
    for (const char* text : kind.invalid) CHECK_FALSE_MESSAGE(schema.grammar().matches(text), text);
    grammar::Checker checker(kind.schema, {});
    const auto program = grammar::Emitter(checker.normalizer(), checker.options()).run({checker.normalizer().root()});
    grammar::Machine machine(program, 1);
    for (const char* text : kind.invalid) {
        auto state = machine.start();
        for (const char c : std::string_view(text)) state = machine.step(state, static_cast<std::uint8_t>(c));
        CHECK_FALSE_MESSAGE(machine.accepts(state), text);
    }
    std::mt19937_64 random(3);
    int n_made = 0;
    for (int i = 0; i < 40; ++i) {
        const auto text = tinfer::test::random_text(machine, random, random() % 80, grammar::PropertyNames());
        if (!text) continue;
        ++n_made;
        CHECK_MESSAGE(schema.grammar().matches(*text), *text);
    }
    CHECK(n_made > 0);
}

std::string refusal_of(std::string_view schema) {
    try {
        (void)Schema::parse(schema);
        return "none";
    } catch (const Error& error) {
        return error.what();
    }
}

}  // namespace

TEST_CASE("[S9] schema: a text that is checked has its members in any order and its numbers in any spelling") {
    check_kind(
        {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a", "b"]})",
         {R"({"b": "x", "a": 1})", R"({"z": null, "b": "x", "a": 1.0})", R"({"a": 1e2, "b": ""})",
          R"({"a": 120e-1, "b": ""})"},
         {R"({"b": "x"})", R"({"b": "x", "a": 1.5})", R"({"a": 1, "b": "", "a": 1})", R"({"a": 12e-1, "b": ""})"}});
    check_kind({R"({"const": {"k": [1, {"x": 2, "y": null}], "l": "s"}})",
                {R"({"l": "s", "k": [1.0, {"y": null, "x": 2e0}]})", R"({"k":[1,{"x":2,"y":null}],"l":"s"})"},
                {R"({"l": "s", "k": [1, {"x": 2}]})", R"({"l": "s"})", "{}"}});
    check_kind({R"({"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 10})",
                {"0.07", "7E-2", "1e1", "10.00"},
                {"0.075", "1e-3", "11", "-0.01"}});
    check_kind({R"({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"})", {"1"}, {"1.0", "1e2"}});
    check_kind({R"({"type": "array", "uniqueItems": true, "maxItems": 3, "items": {"enum": [1, "a", null]}})",
                {"[1, null]", "[]"},
                {"[1, 1.0]", "[null, 1, null]"}});
}

TEST_CASE("[S9] schema: keywords of later drafts mean nothing to an earlier one") {
    check_kind({R"({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "const": 5})", {"6"}, {}});
    check_kind(
        {R"({"$schema": "http://json-schema.org/draft-07/schema#", "type": "integer", "const": 5})", {"5"}, {"6"}});
    check_kind({R"({"$schema": "http://json-schema.org/draft-06/schema#", "type": "object", "if": {"required": ["a"]},
        "then": {"required": ["b"]}})",
                {R"({"a": 1})"},
                {"[]"}});
}

TEST_CASE("[S9] schema: references are resolved against the nearest $id") {
    check_kind({R"({"$id": "http://x.org/a/tree.json", "type": "object", "properties": {"nodes": {"type": "array",
        "items": {"$ref": "node.json"}}}, "additionalProperties": false, "$defs": {"n": {"$id": "/a/node.json",
        "type": "object", "properties": {"v": {"type": "integer"}, "t": {"$ref": "tree.json"}},
        "additionalProperties": false}}})",
                {R"({"nodes": [{"v": 1, "t": {"nodes": []}}]})"},
                {R"({"nodes": [{"v": "1"}]})", R"({"nodes": [{"t": 1}]})"}});
    check_kind({R"({"$id": "urn:x:root", "$ref": "urn:x:inner", "$defs": {"foo": {"$id": "urn:x:inner",
        "$defs": {"bar": {"type": "null"}}, "$ref": "#/$defs/bar"}}})",
                {"null"},
                {"1"}});
    check_kind({R"({"$id": "http://x.org/base", "$ref": "b/../c.json#here", "$defs": {"a": {"$id": "c.json",
        "$defs": {"q": {"$anchor": "here", "type": "boolean"}}}, "b": {"$anchor": "here", "type": "null"}}})",
                {"true"},
                {"null"}});
    check_kind({R"({"$dynamicAnchor": "node", "type": "object", "properties": {"next": {"$dynamicRef": "#node"}},
        "additionalProperties": false})",
                {R"({"next": {"next": {}}})"},
                {R"({"next": {"x": 1}})", R"({"next": 1})"}});
    check_kind({R"({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": true,
        "type": "array", "items": {"$recursiveRef": "#"}})",
                {"[[], [[]]]"},
                {"[1]"}});
    CHECK(
        refusal_of(R"({"properties": {"a": {"$ref": "other.json#/x"}}})").starts_with("schema: /properties/a/$ref: "));
    CHECK(refusal_of(R"({"const": {"$id": "urn:no:schema"}, "$ref": "urn:no:schema"})").find("/$ref: ") !=
          std::string::npos);
}

TEST_CASE("[S9] schema: oneOf excludes what two branches allow, and not what a schema looks at inside a value") {
    check_kind({R"({"type": "object", "oneOf": [{"patternProperties": {"^x": {"type": "integer"}}},
        {"additionalProperties": {"type": "string"}}]})",
                {R"({"x": 1})", R"({"x": "s"})", R"({"a": 1})"},
                {"{}", R"({"a": "s"})", R"({"x": null})"}});
    check_kind({R"({"type": "array", "oneOf": [{"prefixItems": [{"type": "integer"}]},
        {"items": {"type": "string"}}], "maxItems": 3})",
                {"[1]", "[1, \"a\"]", "[\"a\"]"},
                {"[]", "[null]"}});
    check_kind({R"({"not": {"propertyNames": {"pattern": "^a"}}, "type": "object"})",
                {R"({"b": 1})", R"({"a": 1, "b": 2})"},
                {"{}", R"({"a": 1})"}});
    check_kind(
        {R"({"not": {"oneOf": [{"type": "integer"}, {"minimum": 2}]}, "type": "number"})", {"1.5", "3"}, {"1", "2.5"}});
    check_kind({R"({"not": {"enum": [{"a": [1]}, [2, 3], "s", 4]}})",
                {R"({"a": [2]})", "{}", "[2]", "[3, 2]", "\"t\"", "5", R"({"a": [1], "b": 1})"},
                {R"({"a": [1]})", "[2, 3]", "\"s\"", "4", "4.0"}});
    check_kind({R"({"not": {"dependentRequired": {"a": ["b"]}}})", {R"({"a": 1})"}, {"{}", R"({"a": 1, "b": 1})"}});
    check_kind({R"({"$ref": "#/$defs/q", "$defs": {"q": {"oneOf": [{"type": "object", "properties": {"not":
        {"$ref": "#/$defs/q"}}, "required": ["not"], "additionalProperties": false}, {"type": "object",
        "properties": {"and": {"type": "array", "items": {"$ref": "#/$defs/q"}}}, "required": ["and"],
        "additionalProperties": false}, {"type": "string"}]}}})",
                {R"({"not": {"and": ["a", {"not": "b"}]}})"},
                {R"({"not": 1})", R"({"not": "a", "and": []})"}});
}

TEST_CASE("[S9] schema: what any branch that holds has evaluated is evaluated") {
    check_kind({R"({"type": "object", "properties": {"a": true}, "anyOf": [{"properties": {"b": {"const": 1}},
        "required": ["b"]}, {"properties": {"c": {"const": 2}}, "required": ["c"]}], "unevaluatedProperties": false})",
                {R"({"a": 0, "b": 1})", R"({"b": 1, "c": 2})", R"({"c": 2})"},
                {R"({"a": 0})", R"({"b": 1, "c": 3})", R"({"b": 1, "d": 0})"}});
    check_kind({R"({"type": "object", "if": {"patternProperties": {"^f": {"type": "string"}}},
        "unevaluatedProperties": false})",
                {R"({"f": "a"})", "{}"},
                {R"({"g": 1})", R"({"f": 1})"}});
    check_kind({R"({"type": "array", "contains": {"type": "string"}, "prefixItems": [true],
        "unevaluatedItems": {"type": "null"}})",
                {"[1, \"a\", null]", "[\"a\"]"},
                {"[1, \"a\", 2]", "[1]"}});
}

TEST_CASE("[S9] schema: patterns look ahead at their begin and name Unicode categories") {
    check_kind(
        {R"({"type": "string", "pattern": "^(?!ab)[a-c]+$"})", {"\"ba\"", "\"a\""}, {"\"ab\"", "\"abc\"", "\"d\""}});
    check_kind({R"({"type": "string", "pattern": "^(?=.*[0-9])(?=.*[a-z])\\w{2,4}$"})",
                {"\"a1\"", "\"1bcd\""},
                {"\"ab\"", "\"12\"", "\"a1234\""}});
    check_kind(
        {R"({"type": "string", "pattern": "^\\p{Letter}\\P{L}$"})", {"\"\u00e41\"", "\"a-\""}, {"\"11\"", "\"aa\""}});
    CHECK(refusal_of(R"x({"pattern": "^a(?!b)"})x").find("/pattern: ") != std::string::npos);
    CHECK(refusal_of(R"({"pattern": "\\p{Script=Greek}"})").find("general category") != std::string::npos);
}

TEST_CASE("[S9] schema: its text is a grammar of its own, which admits nothing else") {
    for (const auto& [schema, text] : std::vector<std::pair<const char*, const char*>>{
             {R"({"type": "object", "properties": {"a": {"type": "integer", "maximum": 20}, "b\n\u00e4": {"enum": ["x",
                 null]}, "c": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 4}},
                 "required": ["a"]})",
              "{\"a\": 7, \"b\\n\u00e4\": null, \"c\": [\"u\"], \"d\": 1e3}"},
             {R"({"type": "object", "patternProperties": {"^x": {"type": "boolean"}}, "minProperties": 1,
                 "maxProperties": 2, "additionalProperties": false})",
              R"({"x1":true,"x":false})"},
             {R"({"type": "string", "pattern": "^[a-c\"\\\\]+$", "minLength": 2, "maxLength": 4})", R"("a\"\\b")"},
             {R"({"anyOf": [{"type": "number", "multipleOf": 0.5, "minimum": 0}, {"format": "date",)"
              R"( "type": "string"}]})",
              "7.5"}}) {
        CAPTURE(schema);
        const auto parsed = Schema::parse(schema);
        const std::string printed = parsed.grammar().text();
        REQUIRE(!printed.empty());
        CHECK(&parsed.grammar().text() == &parsed.grammar().text());
        CAPTURE(printed);
        const auto again = Grammar::parse(printed);
        CHECK(parsed.grammar().matches(text));
        CHECK(again.matches(text));
        grammar::Machine machine(grammar::parse_gbnf(printed, {}, 100'000), 1);
        std::mt19937_64 random(4);
        for (int i = 0; i < 60; ++i)
            if (const auto made = tinfer::test::random_text(machine, random, random() % 60))
                if (made->find("\"\":") == made->npos) CHECK_MESSAGE(parsed.grammar().matches(*made), *made);
    }
    const auto far = Schema::parse(R"({"type": "string", "maxLength": 100000})");
    CHECK(far.grammar().text().empty());
}
