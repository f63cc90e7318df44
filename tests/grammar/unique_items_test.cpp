// SPDX-License-Identifier: MIT
// Arrays whose elements differ: what a constraint admits, not what a text that is checked may be.
#include <doctest/doctest.h>

#include <string>

#include "grammar/mask_support.hpp"

using namespace tinfer;
using tinfer::test::program_of;

namespace {

/// Whether the constraint of a schema admits the text.
bool admits(const std::string& schema, std::string_view text) {
    return Grammar(std::make_shared<const Grammar::Impl>(program_of(schema), GrammarOptions{})).matches(text);
}

const std::string kTwelve = R"({"type": "array", "uniqueItems": true, "items": {"enum": ["a", "b", "ab", "c", "d", "e",
    "f", "g", 1, 1.0, true, null, "h"]}})";

}  // namespace

TEST_CASE("[S9] unique items: each of many values once, in any order, up to all of them") {
    CHECK(admits(kTwelve, "[]"));
    CHECK(admits(kTwelve, R"(["ab", "a", 1, null, "b"])"));
    CHECK(admits(kTwelve, R"(["h", "g", "f", "e", "d", "c", "ab", "b", "a", null, true, 1])"));
    CHECK_FALSE(admits(kTwelve, R"(["h", "g", "f", "e", "d", "c", "ab", "b", "a", null, true, 1, "h"])"));
    CHECK_FALSE(admits(kTwelve, R"(["a", "b", "a"])"));
    CHECK_FALSE(admits(kTwelve, R"(["\u0061", "a"])"));
    CHECK_FALSE(admits(kTwelve, R"(["h", "h"])"));
    CHECK_FALSE(admits(kTwelve, R"([,"a"])"));
    CHECK_FALSE(admits(kTwelve, R"(["a",])"));
    const std::string bounded = R"({"type": "array", "uniqueItems": true, "minItems": 2, "maxItems": 3,
        "items": {"type": "integer", "minimum": -20, "maximum": 43}})";  // 64 values
    CHECK(admits(bounded, "[43, -20]"));
    CHECK(admits(bounded, "[0, 1, 11]"));
    CHECK_FALSE(admits(bounded, "[0]"));
    CHECK_FALSE(admits(bounded, "[0, 0]"));
    CHECK_FALSE(admits(bounded, "[43, 43]"));
    CHECK_FALSE(admits(bounded, "[0, 1, 2, 3]"));
    CHECK_FALSE(admits(bounded, "[44, 1]"));
    const std::string hundreds = R"({"type": "array", "uniqueItems": true, "items": {"type": "integer", "minimum": 1000,
        "maximum": 3000, "multipleOf": 100}})";
    CHECK(admits(hundreds, "[1000, 3000, 2100]"));
    CHECK_FALSE(admits(hundreds, "[1000, 1000]"));
    CHECK_FALSE(admits(hundreds, "[1050]"));
}

TEST_CASE("[S9][N16] unique items: no way into an array that cannot end, and more values are refused by name") {
    const auto refusal = [](const std::string& schema) -> std::string {
        try {
            (void)Schema::parse(schema);
            return "none";
        } catch (const Error& error) {
            return error.what();
        }
    };
    const std::string nine = R"({"type": "array", "uniqueItems": true, "items": {"type": "integer", "minimum": 1,
        "maximum": 9}, "minItems": )";
    CHECK(admits(nine + "9}", "[9, 8, 7, 6, 5, 4, 3, 2, 1]"));
    CHECK(refusal(nine + "10}") == "schema: /: no value is allowed by it, so nothing can be generated");
    CHECK(refusal(R"({"items": {"type": "array", "uniqueItems": true, "items": {"type": "integer", "minimum": 0,
        "maximum": 64}}})") == "schema: /items/uniqueItems: is supported for elements out of at most 64 values");
    CHECK(refusal(R"({"type": "array", "uniqueItems": true, "items": {"type": "integer", "minimum": 0,
        "maximum": 999999999}})") == "schema: /uniqueItems: is supported for elements out of at most 64 values");
    // Few values, but other reasons.
    CHECK(refusal(R"({"type": "array", "uniqueItems": true, "items": {"enum": [1, 2]}, "contains": {"const": 1}})") ==
          "schema: /uniqueItems: is not supported beside contains");
    CHECK(refusal(R"({"type": "array", "uniqueItems": true, "prefixItems": [{"const": 1}, {"const": 2}]})") ==
          "schema: /uniqueItems: is not supported beside elements that have schemas by their place");
}

TEST_CASE("[S9] unique items: masks are those of single tokens, and texts at random never repeat a value") {
    const auto trie = tinfer::test::string_vocabulary();
    CHECK(tinfer::test::compare_masks("twelve", program_of(kTwelve), trie, 20, 30) > 100);
    CHECK(tinfer::test::compare_masks(
              "numbers",
              program_of(R"({"type": "array", "uniqueItems": true, "minItems": 5, "items": {"type": "integer",
                  "minimum": 0, "maximum": 12}})"),
              trie, 20, 30) > 100);
}
