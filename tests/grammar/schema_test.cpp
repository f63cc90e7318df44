// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tinfer/grammar.hpp"

using namespace tinfer;

namespace {

bool accepts(std::string_view schema, std::string_view text) { return Schema::parse(schema).grammar().matches(text); }
std::string error_of(std::string_view schema) {
    try {
        (void)Schema::parse(schema);
        return "none";
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::bad_schema);
        return error.what();
    }
}

}  // namespace

TEST_CASE("[S9] schema: any JSON value, with white space") {
    for (const char* text :
         {"{}", "[]", " [1, {\"a\": null}]", "\"x\\u00e9\\ud83d\\ude00\"", "-1.5e3", "true", "{\"a\":{\"b\":[[]]}}"})
        CHECK_MESSAGE(accepts("true", text), text);
    for (const char* text : {"", "{", "[1,]", "{\"a\"}", "01", "'a'", "\"\\ud83d\"", "\"\\udc00\"", "\"a\nb\"", "nul",
                             "[1 2]", "\"\xFF\""})
        CHECK_FALSE_MESSAGE(accepts("{}", text), text);
    CHECK_FALSE(accepts("{}", "[1]\n"));  // behind the value a model would write nothing else for long
    CHECK_FALSE(Schema::parse("{}", {.space = SchemaOptions::Space::compact}).grammar().matches("[1, 2]"));
    CHECK(Schema::parse("{}", {.space = SchemaOptions::Space::compact}).grammar().matches("[1,2]"));
    const auto spaced = Schema::parse("{}", {.space = SchemaOptions::Space::spaced}).grammar();
    CHECK(spaced.matches(R"({"a": [1, 2, {}], "b,:": ":,"})"));
    for (const char* text : {"[1,2]", "[1,  2]", "[ 1, 2]", "[1 , 2]", R"({"a":1})", R"({"a" : 1})", "[1, 2 ]", "[1,"})
        CHECK_FALSE_MESSAGE(spaced.matches(text), text);
}

TEST_CASE("[S9] schema: properties in order, optional ones absent, others behind them, names by their characters") {
    const char* schema =
        R"({"type": "object", "properties": {"a": {"type": "integer"}, "b\n": true, "c": {"type": "null"}},
        "required": ["b\n"]})";
    for (const char* text :
         {R"({"b\n": 1})", R"({"a": 1, "b\n": [], "c": null, "d": 5})", R"({"\u0061": 1, "b\u000a": 1})"})
        CHECK_MESSAGE(accepts(schema, text), text);
    for (const char* text : {"{}", R"({"a": 1})", R"({"a": 1.5, "b\n": 1})", R"({"b\n": 1, "b\n": 1})",
                             R"({"b\n": 1, "c": 1})", R"({"x": 1})", "[]"})
        CHECK_FALSE_MESSAGE(accepts(schema, text), text);
    CHECK_FALSE(accepts(R"({"properties": {"a": true}, "additionalProperties": false})", R"({"b": 1})"));
    CHECK(accepts(R"({"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": {"type": "string"}})",
                  R"({"x1": 5, "y": "s"})"));
    CHECK_FALSE(
        accepts(R"({"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": {"type": "string"}})",
                R"({"x1": "s"})"));
    const char* counted = R"({"properties": {"a": true, "b": true, "c": true}, "additionalProperties": false,
        "minProperties": 2, "maxProperties": 2, "required": ["c"]})";
    CHECK(accepts(counted, R"({"a":1,"c":1})"));
    CHECK_FALSE(accepts(counted, R"({"c":1})"));
    CHECK_FALSE(accepts(counted, R"({"a":1,"b":1,"c":1})"));
    CHECK_FALSE(accepts(counted, R"({"a":1,"b":1})"));
}

TEST_CASE("[S9] schema: lengths are counted in characters, a large bound costs what a small one does") {
    CHECK(accepts(R"({"type": "string", "minLength": 2, "maxLength": 3})", "\"世\\n\\ud83d\\ude00\""));
    CHECK_FALSE(accepts(R"({"type": "string", "minLength": 2, "maxLength": 3})", "\"a\""));
    CHECK_FALSE(accepts(R"({"type": "string", "minLength": 2, "maxLength": 3})", "\"abcd\""));
    const auto small = Schema::parse(R"({"type": "string", "maxLength": 1})");
    const auto large = Schema::parse(R"({"type": "string", "minLength": 1, "maxLength": 100000})");
    CHECK(small.grammar().n_nodes() == large.grammar().n_nodes());
    CHECK(large.grammar().matches("\"" + std::string(100'000, 'x') + "\""));
    CHECK_FALSE(large.grammar().matches("\"" + std::string(100'001, 'x') + "\""));
    CHECK(accepts(R"({"type": "string", "pattern": "^(ab)+$", "minLength": 3, "maxLength": 5})", "\"abab\""));
    CHECK_FALSE(accepts(R"({"type": "string", "pattern": "^(ab)+$", "minLength": 3, "maxLength": 5})", "\"ab\""));
    CHECK(accepts(R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})", "[1, 2]"));
    CHECK_FALSE(
        accepts(R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})", "[1,2,3,4]"));
}

TEST_CASE("[S9] schema: combinations are intersections and unions") {
    CHECK(accepts(R"({"allOf": [{"minimum": 3}, {"type": "integer", "maximum": 5}]})", "4"));
    CHECK_FALSE(accepts(R"({"allOf": [{"minimum": 3}, {"type": "integer", "maximum": 5}]})", "6"));
    CHECK(accepts(R"({"oneOf": [{"multipleOf": 3}, {"multipleOf": 5}], "type": "integer"})", "9"));
    CHECK_FALSE(accepts(R"({"oneOf": [{"multipleOf": 3}, {"multipleOf": 5}], "type": "integer"})", "15"));
    CHECK(accepts(R"({"not": {"type": ["string", "number"]}})", "null"));
    CHECK_FALSE(accepts(R"({"not": {"enum": ["a", 1]}})", "\"a\""));
    CHECK_FALSE(accepts(R"({"if": {"properties": {"k": {"const": 1}}, "required": ["k"]}, "then": {"required": ["v"]},)"
                        R"( "type": "object"})",
                        R"({"k": 1})"));
    CHECK(accepts(R"({"$defs": {"list": {"type": "object", "properties": {"next": {"$ref": "#/$defs/list"}},
        "additionalProperties": false}}, "$ref": "#/$defs/list"})",
                  R"({"next": {"next": {}}})"));
    CHECK(accepts(R"({"type": "array", "contains": {"const": 1}, "maxContains": 2})", "[0, 1, 2, 1]"));
    CHECK_FALSE(accepts(R"({"type": "array", "contains": {"const": 1}, "maxContains": 2})", "[1, 1, 1]"));
    CHECK_FALSE(accepts(R"({"type": "array", "uniqueItems": true, "items": {"enum": ["a", "b"]}})", R"(["a", "a"])"));
    CHECK(accepts(R"({"type": "array", "uniqueItems": true, "items": {"enum": ["a", "b"]}})", R"(["b", "a"])"));
}

TEST_CASE("[S9][N16] schema: what is not enforced is refused, with its place and keyword") {
    CHECK(error_of(R"x({"properties": {"a/b": {"pattern": "(?=x)"}}})x")
              .starts_with("schema: /properties/a~1b/pattern: "));
    CHECK(error_of(R"({"items": {"uniqueItems": true}})").starts_with("schema: /items/uniqueItems: "));
    CHECK(error_of(R"({"$ref": "http://x/y"})").starts_with("schema: /$ref: "));
    CHECK(error_of(R"({"$ref": "#/nowhere"})").starts_with("schema: /$ref: there is nothing at "));
    CHECK(error_of("false") == "schema: /: no value is allowed by it, so nothing can be generated");
    CHECK(error_of(R"({"allOf": [{"$ref": "#"}]})").find("refers to itself") != std::string::npos);
    CHECK(error_of(R"({"type": "strin"})").starts_with("schema: /type: there is no type"));
    const auto lenient = Schema::parse(R"({"type": "array", "uniqueItems": true})", {.lenient = true});
    REQUIRE(lenient.warnings().size() == 1);
    CHECK(lenient.warnings()[0].starts_with("schema: /uniqueItems: "));
    CHECK(lenient.grammar().matches("[1, 1]"));
}

TEST_CASE("[S9][N16] schema: other documents come from the caller's loader, once each and while parsing alone") {
    const std::map<std::string, std::string, std::less<>> documents = {
        {"https://example.org/age", R"({"type": "integer", "minimum": 0, "$defs": {"old": {"minimum": 60}}})"},
        {"https://example.org/people/name.json", R"({"$ref": "../text#/$defs/short"})"},
        {"https://example.org/text", R"({"$defs": {"short": {"type": "string", "maxLength": 3}}})"},
    };
    std::vector<std::string> asked;
    SchemaOptions options;
    options.load = [&](std::string_view uri) -> std::optional<std::string> {
        asked.emplace_back(uri);
        const auto known = documents.find(uri);
        return known == documents.end() ? std::nullopt : std::optional(known->second);
    };
    const auto schema = Schema::parse(R"({"$id": "https://example.org/people/", "type": "object", "properties": {
        "age": {"$ref": "../age"},
        "limit": {"allOf": [{"$ref": "../age"}, {"$ref": "https://example.org/age#/$defs/old"}]},
        "name": {"$ref": "name.json"}}, "additionalProperties": false})",
                                      options);
    const auto once = asked;
    CHECK(once.size() == 3);
    CHECK(schema.grammar().matches(R"({"age": 7, "limit": 65, "name": "Ann"})"));
    CHECK_FALSE(schema.grammar().matches(R"({"age": -7})"));
    CHECK_FALSE(schema.grammar().matches(R"({"limit": 59})"));
    CHECK_FALSE(schema.grammar().matches(R"({"name": "Anna"})"));
    CHECK(asked == once);

    // What no text reaches is not loaded, and matches() does without it.
    const auto narrow = Schema::parse(R"({"anyOf": [{"type": "null"}, {"type": "object", "required": ["never"],
        "properties": {"never": false, "far": {"$ref": "https://example.org/unknown", "minimum": 1}}}]})",
                                      options);
    CHECK(narrow.grammar().matches("null"));
    CHECK_FALSE(narrow.grammar().matches(R"({"far": 1, "never": 2})"));

    const auto error = [&](std::string_view text) -> std::string {
        try {
            (void)Schema::parse(text, options);
            return "none";
        } catch (const Error& raised) {
            CHECK(raised.code() == ErrorCode::bad_schema);
            return raised.what();
        }
    };
    CHECK(error(R"({"items": {"$ref": "https://example.org/unknown#/a"}})") ==
          "schema: /items/$ref: 'https://example.org/unknown#/a' is not known to the loader of documents");
    CHECK(error(R"({"$ref": "https://example.org/age#/$defs/young"})").find("there is nothing at") !=
          std::string::npos);
    options.load = [](std::string_view) -> std::optional<std::string> { throw std::runtime_error("no network"); };
    CHECK_THROWS_WITH_AS((void)Schema::parse(R"({"$ref": "https://example.org/age"})", options), "no network",
                         std::runtime_error);
    options.load = [](std::string_view) { return std::optional<std::string>("{\"type\": "); };
    CHECK(error(R"({"$ref": "https://example.org/age"})").starts_with("schema: https://example.org/age: "));
}
