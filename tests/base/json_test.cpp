// SPDX-License-Identifier: MIT
// JSON out and in, beside another implementation (nlohmann-json): generated documents, texts with every kind of damage,
// the limits, and where errors say they are.
#include "base/json.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "support/random_blocks.hpp"

namespace tinfer {

namespace {

using test::Random;

std::pair<ErrorCode, std::string> refusal(std::string_view text, const JsonOptions& options = {}) {
    try {
        (void)JsonDocument::parse(text, "f", options);
    } catch (const Error& error) {
        return {error.code(), error.what()};
    }
    FAIL("accepted: " << std::string(text));
    return {};
}

bool is_accepted(std::string_view text) {
    try {
        (void)JsonDocument::parse(text, "f");
        return true;
    } catch (const Error& error) {
        CHECK(std::strlen(error.what()) > 0);
        return false;
    }
}

// Empty where both say the same; objects of the other implementation keep one member of each key.
std::string difference(const JsonValue& ours, const nlohmann::json& theirs) {
    switch (ours.kind()) {
        case JsonKind::null: return theirs.is_null() ? "" : "null";
        case JsonKind::boolean: return theirs.is_boolean() && theirs.get<bool>() == ours.boolean() ? "" : "boolean";
        case JsonKind::string:
            return theirs.is_string() && theirs.get_ref<const std::string&>() == ours.string() ? "" : "string";
        case JsonKind::number: {
            if (!theirs.is_number() || theirs.get<double>() != ours.number()) return cat("number ", ours.number_text());
            if (theirs.is_number_unsigned())
                return ours.unsigned_integer() == theirs.get<std::uint64_t>() ? "" : "unsigned";
            if (theirs.is_number_integer()) return ours.integer() == theirs.get<std::int64_t>() ? "" : "integer";
            return "";
        }
        case JsonKind::array: {
            if (!theirs.is_array() || theirs.size() != ours.size()) return "array";
            std::size_t i = 0;
            for (const auto& [key, value] : ours.items())
                if (const auto text = difference(value, theirs[i++]); !text.empty()) return text;
            return i == ours.size() ? "" : "items";
        }
        case JsonKind::object: {
            if (!theirs.is_object()) return "object";
            std::size_t n = 0;
            for (const auto& [key, value] : ours.members()) {
                ++n;
                if (!theirs.contains(key)) return "member";
                const auto last = ours.find(key);
                if (!last) return "find";
                if (const auto text = difference(*last, theirs[std::string(key)]); !text.empty()) return text;
            }
            return n == ours.size() && theirs.size() <= n ? "" : "members";
        }
    }
    return "kind";
}

std::string random_text(Random& random) {
    std::string out;
    for (auto n = random.below(12); n > 0; --n) {
        constexpr std::string_view kPieces[] = {"a",
                                                "\"",
                                                "\\",
                                                "/",
                                                "\n",
                                                "\t",
                                                std::string_view("\0", 1),
                                                "\x1F",
                                                "\x7F",
                                                "ä",
                                                "€",
                                                "\xF0\x9F\xA6\x8A",
                                                "\xEF\xBF\xBF",
                                                "\xF4\x8F\xBF\xBF",
                                                "key",
                                                " "};
        out += kPieces[random.below(std::size(kPieces))];
    }
    return out;
}

nlohmann::json random_value(Random& random, int depth) {
    switch (random.below(depth > 0 ? 8 : 6)) {
        case 0: return nullptr;
        case 1: return random.below(2) == 0;
        case 2: return static_cast<std::int64_t>(random.bits());
        case 3: return random.bits();
        case 4: {
            const double number = std::bit_cast<double>(random.bits());
            return std::isfinite(number) ? number : 0.1;
        }
        case 5: return random_text(random);
        case 6: {
            auto out = nlohmann::json::array();
            for (auto n = random.below(5); n > 0; --n) out.push_back(random_value(random, depth - 1));
            return out;
        }
        default: {
            auto out = nlohmann::json::object();
            for (auto n = random.below(5); n > 0; --n) out[random_text(random)] = random_value(random, depth - 1);
            return out;
        }
    }
}

void write(JsonWriter& w, const JsonValue& value) {
    switch (value.kind()) {
        case JsonKind::null: w.null(); break;
        case JsonKind::boolean: w.value(value.boolean()); break;
        case JsonKind::number: w.literal(value.number_text()); break;
        case JsonKind::string: w.value(value.string()); break;
        case JsonKind::array:
            w.begin_array();
            for (const auto& [key, item] : value.items()) write(w, item);
            w.end_array();
            break;
        case JsonKind::object:
            w.begin_object();
            for (const auto& [key, item] : value.members()) write(w.key(key), item);
            w.end_object();
    }
}

}  // namespace

TEST_CASE("json: a document is read in its order, with every kind of value") {
    const std::string text = R"( {"name":"na\u00efve \ud83e\udd8a\n","list":[1, -2.50,1e3 ,true,false,null,[],{}],)"
                             R"("name":"again","empty":""} )";
    const auto document = JsonDocument::parse(text, "f");
    const JsonValue root = document.root();
    CHECK(root.is(JsonKind::object));
    CHECK(root.size() == 4);
    CHECK(root.offset() == 1);
    std::string keys;
    for (const auto& [key, value] : root.members()) keys += std::string(key) + ' ';
    CHECK(keys == "name list name empty ");
    CHECK((*root.members().begin()).value.string() == "naïve 🦊\n");
    CHECK(root.find("name")->string() == "again");
    CHECK(root.find("empty")->string() == "");
    CHECK(!root.find("absent"));
    CHECK(!root.find("list")->find("name"));
    CHECK(root.find("name")->size() == 0);
    CHECK(text.substr(root.find("list")->offset(), 4) == "[1, ");

    std::vector<JsonValue> items;
    for (const auto& [key, value] : root.find("list")->items()) {
        CHECK(key.empty());
        items.push_back(value);
    }
    REQUIRE(items.size() == 8);
    CHECK(items[0].integer() == 1);
    CHECK(items[1].number() == -2.5);
    CHECK(items[1].number_text() == "-2.50");
    CHECK(!items[1].integer());
    CHECK(items[2].number() == 1000);
    CHECK(!items[2].integer());
    CHECK(items[3].boolean());
    CHECK(!items[4].boolean());
    CHECK(items[5].is(JsonKind::null));
    CHECK(items[6].size() == 0);
    CHECK(items[6].items().begin() == items[6].items().end());
    CHECK(items[7].members().begin() == items[7].members().end());
    CHECK(!items[5].integer());
    CHECK(to_string(items[7].kind()) == "object");

    JsonDocument moved = JsonDocument::parse("0", "f"), from = JsonDocument::parse(R"(["stays"])", "f");
    const JsonValue value = (*from.root().items().begin()).value;
    moved = std::move(from);
    CHECK(value.string() == "stays");
}

TEST_CASE("json: numbers keep their text, and are the nearest double or refused") {
    const auto number = [](const char* text) { return JsonDocument::parse(text, "f").root().number(); };
    const auto integer = [](const char* text) { return JsonDocument::parse(text, "f").root().integer(); };
    const auto natural = [](const char* text) { return JsonDocument::parse(text, "f").root().unsigned_integer(); };
    CHECK(number("0.1") == 0.1);
    CHECK(number("-0") == 0);
    CHECK(std::signbit(number("-0")));
    CHECK(number("1.7976931348623157e308") == std::numeric_limits<double>::max());
    CHECK(number("5e-324") == std::numeric_limits<double>::denorm_min());
    CHECK(number("0e999999999999999999999999") == 0);
    for (const char* tiny :
         {"1e-400", "0.0001e-999999999999999999999", "-2e-4000", "0.000000000000000000000000000000000001e-300"}) {
        CHECK(number(tiny) == 0);
        CHECK(std::signbit(number(tiny)) == (*tiny == '-'));
    }
    for (const std::string& huge :
         std::vector<std::string>{"1e309", "-1e400", "123456e9999999999999999999999", "0.00001e999",
                                  "1" + std::string(400, '0'), std::string(400, '9') + ".5e-20", "1.8e308"})
        CHECK(refusal(huge).second ==
              cat("f: line 1, column 1 (byte 0): the number ", escaped(huge), " is larger than a double holds"));
    CHECK(number(("1" + std::string(400, '0') + "e-400").c_str()) == 1);
    CHECK(number(("0." + std::string(400, '0') + "1e401").c_str()) == 1);
    CHECK(integer("9223372036854775807") == std::numeric_limits<std::int64_t>::max());
    CHECK(integer("-9223372036854775808") == std::numeric_limits<std::int64_t>::min());
    CHECK(!integer("9223372036854775808"));
    CHECK(natural("18446744073709551615") == std::numeric_limits<std::uint64_t>::max());
    CHECK(!natural("18446744073709551616"));
    CHECK(!natural("-1"));
    CHECK(!integer("1.0"));
}

TEST_CASE("json: what is no JSON is refused with line, column, byte and what was expected") {
    struct Row {
        std::string text, message;
    };
    const Row rows[] = {
        {"", "line 1, column 1 (byte 0): expected a value, found the end of the text"},
        {" \n\t", "line 2, column 2 (byte 3): expected a value, found the end of the text"},
        {"[1,\n 2,\n x]", "line 3, column 2 (byte 9): expected a value, found 'x'"},
        {"[\"äö\", \xE2\x82\xAC]", "line 1, column 8 (byte 9): expected a value, found '€'"},
        {"[1 2]", "line 1, column 4 (byte 3): expected ',' or ']', found '2'"},
        {"[1,]", "line 1, column 4 (byte 3): expected a value, found ']'"},
        {"[,1]", "line 1, column 2 (byte 1): expected a value, found ','"},
        {"[1", "line 1, column 3 (byte 2): expected ',' or ']', found the end of the text"},
        {"[1}", "line 1, column 3 (byte 2): expected ',' or ']', found '}'"},
        {"{\"a\":1,}", "line 1, column 8 (byte 7): expected a key in quotes, found '}'"},
        {"{a:1}", "line 1, column 2 (byte 1): expected a key in quotes, found 'a'"},
        {"{\"a\" 1}", "line 1, column 6 (byte 5): expected ':' behind a key, found '1'"},
        {"{\"a\":}", "line 1, column 6 (byte 5): expected a value, found '}'"},
        {"{\"a\":1 \"b\":2}", "line 1, column 8 (byte 7): expected ',' or '}', found '\"'"},
        {"{'a':1}", "line 1, column 2 (byte 1): expected a key in quotes, found '\\''"},
        {"1 2", "line 1, column 3 (byte 2): expected the end of the text, found '2'"},
        {"truth", "line 1, column 1 (byte 0): expected a value, found 't'"},
        {"nullx", "line 1, column 5 (byte 4): expected the end of the text, found 'x'"},
        {"NaN", "line 1, column 1 (byte 0): expected a value, found 'N'"},
        {"01", "line 1, column 1 (byte 0): a number that begins with 0"},
        {"-01", "line 1, column 2 (byte 1): a number that begins with 0"},
        {"-", "line 1, column 2 (byte 1): expected a digit of a number, found the end of the text"},
        {"+1", "line 1, column 1 (byte 0): expected a value, found '+'"},
        {".5", "line 1, column 1 (byte 0): expected a value, found '.'"},
        {"1.", "line 1, column 3 (byte 2): expected a digit behind the point, found the end of the text"},
        {"1.e5", "line 1, column 3 (byte 2): expected a digit behind the point, found 'e'"},
        {"1e", "line 1, column 3 (byte 2): expected a digit of an exponent, found the end of the text"},
        {"1e+-2", "line 1, column 4 (byte 3): expected a digit of an exponent, found '-'"},
        {"0x10", "line 1, column 2 (byte 1): expected the end of the text, found 'x'"},
        {"\xEF\xBB\xBF[]", "line 1, column 1 (byte 0): expected a value, found '\xEF\xBB\xBF'"},
        {"[1] // ok", "line 1, column 5 (byte 4): expected the end of the text, found '/'"},
        {std::string("[1]\0", 4), "line 1, column 4 (byte 3): expected the end of the text, found '\\x00'"},
        {"\"abc", "line 1, column 1 (byte 0): a string without its closing quote"},
        {"\"abc\\\"", "line 1, column 1 (byte 0): a string without its closing quote"},
        {"\"a\nb\"", "line 1, column 3 (byte 2): a control character in a string, '\\x0a': write it as \\u00…"},
        {"\"\xFF\"", "line 1, column 2 (byte 1): a byte that is not UTF-8: '\\xff'"},
        {"\"\xC0\x80\"", "line 1, column 2 (byte 1): a byte that is not UTF-8: '\\xc0'"},
        {"\"\xED\xA0\x80\"", "line 1, column 2 (byte 1): a byte that is not UTF-8: '\\xed'"},
        {"\"\xF4\x90\x80\x80\"", "line 1, column 2 (byte 1): a byte that is not UTF-8: '\\xf4'"},
        {"\"\xE2\x82", "line 1, column 2 (byte 1): a byte that is not UTF-8: '\\xe2'"},
        {"\"\\x41\"", "line 1, column 2 (byte 1): an unknown escape, \\ before 'x'"},
        {"\"\\", "line 1, column 2 (byte 1): \\u without four hexadecimal digits"},
        {"\"\\u12\"", "line 1, column 2 (byte 1): \\u without four hexadecimal digits"},
        {"\"\\u-123\"", "line 1, column 2 (byte 1): \\u without four hexadecimal digits"},
        {"\"\\ud800\"", "line 1, column 2 (byte 1): a high surrogate without a low one"},
        {"\"\\ud800\\u0041\"", "line 1, column 2 (byte 1): a high surrogate without a low one"},
        {"\"\\udc00\"", "line 1, column 2 (byte 1): a low surrogate without a high one"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.text);
        CHECK(refusal(row.text, {.code = ErrorCode::bad_metadata}) ==
              std::pair(ErrorCode::bad_metadata, "f: " + row.message));
        if (row.text.find('\0') == row.text.npos && !row.text.starts_with("\xEF"))
            CHECK(!nlohmann::json::accept(row.text));
    }
}

TEST_CASE("json: depth, size and number of values are limited, and deep texts need no stack") {
    const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
    CHECK(JsonDocument::parse(nested(64), "f").root().size() == 1);
    CHECK(refusal(nested(65)) ==
          std::pair(ErrorCode::limit_exceeded, std::string("f: line 1, column 65 (byte 64): nested deeper than 64")));
    CHECK(refusal(std::string(1'000'000, '[')).first == ErrorCode::limit_exceeded);
    CHECK(JsonDocument::parse(nested(100'000), "f", {.max_depth = 100'000}).root().size() == 1);
    CHECK(refusal("[0,1]", {.max_bytes = 4}).second == "f: JSON of 5 bytes, limit 4");
    CHECK(JsonDocument::parse("[0,1]", "f", {.max_bytes = 5, .max_values = 3}).root().size() == 2);
    CHECK(refusal("[0,1,2]", {.max_values = 3}) ==
          std::pair(ErrorCode::limit_exceeded, std::string("f: line 1, column 6 (byte 5): more than 3 values")));
    CHECK(refusal("{\"a\":1}", {.max_values = 2}).first == ErrorCode::limit_exceeded);  // keys are values, too
}

TEST_CASE("json: a key for the second time is refused where that is asked for, whatever it is spelt with") {
    const JsonOptions strict{.refuse_duplicates = true};
    CHECK(JsonDocument::parse(R"({"a":{"a":1},"b":[{"a":1},{"a":2}],"":0})", "f", strict).root().size() == 3);
    CHECK(refusal(R"({"a":1,"b":{"x":1},"a":2})", strict).second ==
          "f: line 1, column 20 (byte 19): the key 'a' for the second time");
    CHECK(refusal(R"([{"é":1, "\u00e9":2}])", strict).second ==
          "f: line 1, column 10 (byte 10): the key 'é' for the second time");
    CHECK(refusal(R"({"":1,"":2})", strict).first == ErrorCode::bad_parameter);
    CHECK(JsonDocument::parse(R"({"a":1,"a":2})", "f").root().find("a")->integer() == 2);
}

TEST_CASE("json: the writer puts commas and colons, lines where asked for, and is valid whatever the bytes") {
    std::string out;
    JsonWriter w(out);
    w.begin_object()
        .member("a", 1)
        .member("b", std::string("x\"\\\n\x7F\xFF"))
        .key("c")
        .begin_array()
        .value(0.1f)
        .value(0.1)
        .value(true)
        .null();
    w.begin_array().end_array().begin_object().end_object().end_array();
    w.line(2)
        .member("d", std::numeric_limits<std::uint64_t>::max())
        .member("e", -5L)
        .key("f")
        .literal("[1]")
        .end_object();
    CHECK(out == "{\"a\":1,\"b\":\"x\\\"\\\\\\u000a\\u007f\\\\xff\",\"c\":[0.1,0.1,true,null,[],{}],\n  "
                 "\"d\":18446744073709551615,\"e\":-5,\"f\":[1]}");
    CHECK(nlohmann::json::accept(out));
    CHECK(JsonDocument::parse(out, "f").root().find("b")->string() == "x\"\\\n\x7F\\xff");
    out.clear();
    for (const double x :
         {std::nan(""), std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
        append_json_number(out, x);
        append_json_number(out, static_cast<float>(x));
    }
    CHECK(out == "\"NaN\"\"NaN\"\"Infinity\"\"Infinity\"\"-Infinity\"\"-Infinity\"");
    Random random(5);
    for (int i = 0; i < 2000; ++i) {
        std::string bytes, text;
        for (auto n = random.below(20); n > 0; --n) bytes += static_cast<char>(random.bits());
        append_json_string(text, bytes);
        REQUIRE(nlohmann::json::accept(text));
        const double number = std::bit_cast<double>(random.bits());
        text.clear();
        append_json_number(text, number);
        if (std::isfinite(number)) REQUIRE(JsonDocument::parse(text, "f").root().number() == number);
    }
}

TEST_CASE(
    "json: generated documents are read as another implementation reads them, and written so that it reads them") {
    Random random(11);
    for (int i = 0; i < 3000; ++i) {
        const nlohmann::json generated = random_value(random, 5);
        const std::string text = generated.dump(static_cast<int>(random.below(3)) - 1, ' ', random.below(2) == 0);
        CAPTURE(text);
        const auto document = JsonDocument::parse(text, "f", {.refuse_duplicates = true});
        REQUIRE(difference(document.root(), generated) == "");
        std::string written;
        JsonWriter w(written);
        write(w, document.root());
        REQUIRE(nlohmann::json::parse(written) == generated);
    }
}

TEST_CASE("json: damaged texts are accepted and refused as by another implementation") {
    Random random(12);
    constexpr std::string_view kTokens[] = {"{",
                                            "}",
                                            "[",
                                            "]",
                                            ",",
                                            ":",
                                            "\"",
                                            "\\",
                                            "\\u",
                                            "\\ud83e\\udd8a",
                                            "\\udc00",
                                            "0",
                                            "-",
                                            "1e",
                                            ".",
                                            "1e999",
                                            "true",
                                            "nul",
                                            " ",
                                            "\n",
                                            "\xC3",
                                            "\xE2\x82",
                                            "\xED\xA0\x80",
                                            "\xF4\x90\x80\x80",
                                            "\x01",
                                            "/**/",
                                            "e5",
                                            "+",
                                            "\"a\":",
                                            "1,"};
    int n_accepted = 0, n_refused = 0;
    for (int i = 0; i < 30'000; ++i) {
        std::string text = random_value(random, 3).dump();
        for (auto n = random.below(4); n > 0; --n) {
            const std::size_t at = random.below(text.size() + 1),
                              length = std::min<std::size_t>(random.below(4), text.size() - at);
            switch (random.below(4)) {
                case 0: text.erase(at, length); break;
                case 1: text.insert(at, kTokens[random.below(std::size(kTokens))]); break;
                case 2: text.replace(at, length, kTokens[random.below(std::size(kTokens))]); break;
                default: text.insert(at, text.substr(random.below(text.size() + 1), random.below(8)));
            }
        }
        if (text.find('\0') != text.npos || text.starts_with("\xEF\xBB\xBF"))
            continue;  // the other one stops there, or skips it
        CAPTURE(text);
        const auto theirs = nlohmann::json::parse(text, nullptr, false);
        const bool accepted = is_accepted(text);
        REQUIRE(accepted == !theirs.is_discarded());
        ++(accepted ? n_accepted : n_refused);
        if (accepted) REQUIRE(difference(JsonDocument::parse(text, "f").root(), theirs) == "");
    }
    CHECK(n_accepted > 3000);
    CHECK(n_refused > 3000);
}

}  // namespace tinfer
