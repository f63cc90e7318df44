// SPDX-License-Identifier: MIT
#include "server/fields.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "server/metrics.hpp"
#include "server/routes.hpp"
#include "support/alloc_counter.hpp"

using tinfer::Json;
using tinfer::server::ApiError;
using tinfer::server::Fields;

namespace {

/// The param of the error that a call throws; "none" where it throws none.
template <class F>
std::string param_of(F&& call) {
    try {
        (void)call();
    } catch (const ApiError& error) {
        CHECK(error.status == 400);
        return error.param;
    }
    return "none";
}

}  // namespace

TEST_CASE("server: fields have types and bounds, and null counts as absent") {
    const Json body = Json::parse(R"({"a": 3, "b": 3.5, "c": "x", "d": null, "e": [1], "f": 1e300, "g": true})");
    Fields fields(body, "outer");
    CHECK(fields.integer("a", 0, 3) == 3);
    CHECK(param_of([&] { return fields.integer("a", 0, 2); }) == "outer.a");
    CHECK(param_of([&] { return fields.integer("b", 0, 9); }) == "outer.b");
    CHECK(param_of([&] { return fields.integer("c", 0, 9); }) == "outer.c");
    CHECK(param_of([&] { return fields.integer("f", 0, 9); }) == "outer.f");
    CHECK(param_of([&] { return fields.integer("g", 0, 9); }) == "outer.g");
    CHECK(fields.number("b", 0, 4) == 3.5);
    CHECK(param_of([&] { return fields.text("a"); }) == "outer.a");
    CHECK(param_of([&] { return fields.word("c", {"y", "z"}); }) == "outer.c");
    CHECK(param_of([&] { return fields.texts("e", 3); }) == "outer.e");
    CHECK(!fields.integer("d", 0, 9));
    CHECK(fields.unread().n == 0);
}

TEST_CASE("server: the largest integers keep their bounds") {
    constexpr std::int64_t most = 0x7FFFFFFFFFFFFFFF;
    const Json body = Json::parse(R"({"a": 9223372036854775807, "b": 9223372036854775808, "c": 9.3e18, "d": -9.3e18,
        "e": -9223372036854775807, "f": 18446744073709551615, "g": 9007199254740993, "h": 3.0})");
    Fields fields(body);
    CHECK(fields.integer("a", -most, most) == most);
    CHECK(param_of([&] { return fields.integer("b", -most, most); }) == "b");
    CHECK(param_of([&] { return fields.integer("c", -most, most); }) == "c");
    CHECK(param_of([&] { return fields.integer("d", -most, most); }) == "d");
    CHECK(fields.integer("e", -most, most) == -most);
    CHECK(param_of([&] { return fields.integer("f", -most, most); }) == "f");
    CHECK(fields.integer("g", -most, most) == 9007199254740993);
    CHECK(fields.integer("h", 0, 3) == 3);
}

TEST_CASE("server: fields that nobody asked for are known") {
    const Json body{{"a", 1}, {"b", 2}, {"c", 3}};
    Fields fields(body);
    (void)fields.integer("a", 0, 9);
    fields.take({"b", "z"});
    CHECK(fields.unread().n == 1);
    CHECK(fields.unread().first.at(0).path == "c");
}

TEST_CASE("[V5] server: a body that is no JSON object is refused, however deep or damaged") {
    for (const std::string body : {"", " \n", "[]", "1", "{", "{\"a\":}", "{\"a\": \"\xff\"}", "{\"a\": \"\\ud800\"}"})
        CHECK_THROWS_AS((void)tinfer::server::parse_body(body), ApiError);
    const std::string deep = "{\"a\":" + std::string(200000, '[') + std::string(200000, ']') + "}";
    CHECK_THROWS_AS((void)tinfer::server::parse_body(deep), ApiError);
    CHECK(tinfer::server::parse_body("{\"a\": \"[[[[[[\\\"[[[[\"}", 2)["a"] == "[[[[[[\"[[[[");
    CHECK_THROWS_AS((void)tinfer::server::parse_body("{\"a\": [[]]}", 2), ApiError);
    CHECK(param_of([] { return tinfer::server::parse_body("\xEF\xBB\xBF{}"); }) == "none");  // a byte order mark
    try {
        (void)tinfer::server::parse_body("{\n  \"a\": x}");
        FAIL("it is no JSON");
    } catch (const ApiError& error) {
        CHECK(error.code == "invalid_json");
        CHECK(std::string_view(error.what()) ==
              "the body is no JSON: line 2, column 8 (byte 9): expected a value, found 'x'");
    }
}

TEST_CASE("server: a body is the document that another reader makes of it") {
    for (
        const std::string body : {
            R"({})",
            R"({"a": null, "b": [true, -1, 18446744073709551615, 1.5e3, "x", {}, [], [[{"c": [1]}]]], "d": {"e": {}}})",
            R"({"z": 1, "a": 2, "z": {"y": 3, "y": [4]}, "b": 5, "a": 6, "a": 7, "": 8, "": 9})",
        })
        CHECK(tinfer::server::parse_body(body).dump() == nlohmann::ordered_json::parse(body).dump());
    std::string body = "{";
    for (int i = 0; i < 400; ++i)
        body.append("\"")
            .append(std::to_string(i * 37 % 101))
            .append("\": 1")
            .append(std::to_string(i))
            .append(i < 399 ? "," : "}");
    CHECK(tinfer::server::parse_body(body).dump() == nlohmann::ordered_json::parse(body).dump());
}

TEST_CASE("server: a body takes no more memory than is counted for it") {
    for (const std::string item :
         {"[]", "{}", "0", "\"\"", "[0]", "{\"\":0}", "[[]]", "1.5", "null", "\"0123456789abcdef\""})
        for (const bool is_object : {false, true}) {
            CAPTURE(item);
            std::string body = "{\"a\":[";
            if (is_object) body = "{\"a\":{";
            while (body.size() < 200'000) body += (is_object ? "\"\":" : "") + item + ",";
            body.back() = is_object ? '}' : ']';
            const tinfer::test::AllocationScope scope;
            const Json document = tinfer::server::parse_body(body + "}");
            CHECK(static_cast<std::size_t>(scope.peak()) <= tinfer::server::kParseCost * body.size());
        }
}

TEST_CASE("server: names cost no more where there are many") {
    std::string body = "{\"logit_bias\": {";
    for (int i = 0; i < 500000; ++i) body.append("\"").append(std::to_string(i)).append("\": -1,");
    const Json document = tinfer::server::parse_body(body + "\"x\": 0}}");
    CHECK(document["logit_bias"].size() == 500001);
}

TEST_CASE("server: keys are known as a whole only") {
    const std::vector<std::string> keys{"abc", "longer key"};
    CHECK(tinfer::server::is_known_key(keys, "abc"));
    CHECK(tinfer::server::is_known_key(keys, "longer key"));
    for (const char* key : {"", "ab", "abcd", "abcabc", "abd", "longer keyx"})
        CHECK(!tinfer::server::is_known_key(keys, key));
    CHECK(!tinfer::server::is_known_key({}, ""));
}

TEST_CASE("server: names of this machine alone pass on its loopback") {
    for (const char* host : {"localhost", "localhost:8080", "127.0.0.1:1", "127.1.2.3", "[::1]:8080", "[::1]"})
        CHECK(tinfer::server::is_loopback_host(host));
    for (const char* host :
         {"", "evil.example", "localhost.evil.example:8080", "127.0.0.1.evil.example", "[::2]", "10.0.0.1"})
        CHECK(!tinfer::server::is_loopback_host(host));
}

TEST_CASE("server: a histogram counts each value in all bounds that hold it") {
    tinfer::server::Histogram histogram;
    histogram.add(0.0005);
    histogram.add(0.2);
    histogram.add(1000);
    tinfer::server::MetricFamilies families;
    families.add_histogram("t", "help", "model=\"m\"", histogram.kBounds, histogram.counts(), histogram.n(),
                           histogram.sum());
    const std::string text = families.text();
    CHECK(text.find("t_bucket{model=\"m\",le=\"0.001\"} 1\n") != text.npos);
    CHECK(text.find("t_bucket{model=\"m\",le=\"0.25\"} 2\n") != text.npos);
    CHECK(text.find("t_bucket{model=\"m\",le=\"300\"} 2\n") != text.npos);
    CHECK(text.find("t_bucket{model=\"m\",le=\"+Inf\"} 3\n") != text.npos);
    CHECK(text.find("t_count{model=\"m\"} 3\n") != text.npos);
    CHECK(tinfer::server::escape_label("a\"b\\c\nd") == "a\\\"b\\\\c\\nd");
}

TEST_CASE("server: errors of the library have a status and keep their field") {
    using tinfer::Error;
    using tinfer::ErrorCode;
    CHECK(tinfer::server::translate(Error(ErrorCode::no_room, "x")).code == "context_length_exceeded");
    CHECK(tinfer::server::translate(Error(ErrorCode::bad_schema, "x"), "tools").to_json()["error"]["param"] == "tools");
    CHECK(tinfer::server::translate(Error(ErrorCode::compute_failed, "x")).status == 500);
    CHECK(tinfer::server::translate(Error(ErrorCode::no_tokenizer, "x")).status == 400);
    CHECK(tinfer::server::translate(Error(ErrorCode::out_of_memory, "x")).status == 503);
}
