// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "support/alloc_counter.hpp"
#include "support/random_blocks.hpp"
#include "tinfer/json.hpp"

namespace tinfer {

namespace {

using test::Random;
using Theirs = nlohmann::ordered_json;

// Nested so deep that one call for each level would not fit on a stack.
Json deep_value(int depth) {
    Json value;
    for (int i = 0; i < depth; ++i) {
        Json outer = i % 2 == 0 ? Json::array() : Json::object();
        if (i % 2 == 0) outer.push_back(std::move(value));
        else outer.append("k", std::move(value));
        value = std::move(outer);
    }
    return value;
}

template <class Value>
Value conversation() {
    return {
        {"messages", {{{"role", "user"}, {"content", "a \"b\"\n\x01\x7F \xC3\xBC \xF0\x9F\xA6\x8A"}}, {{"role", "x"}}}},
        {"numbers", {1, -2, 18446744073709551615u, 0.5, 1e300, 2.0, -0.0, 100.0f, 1e15, 1e-5, 123456789012345.0}},
        {"words", {"only", "texts"}},
        {"nothing", nullptr},
        {"list", Value::array({"a", 1})},
        {"empty", {Value::array(), Value::object()}},
        {"truth", true}};
}

}  // namespace

TEST_CASE("json value: braced lists and texts are those of another implementation, to the byte") {
    const Json ours = conversation<Json>();
    const auto theirs = conversation<Theirs>();
    CHECK(ours.dump() == theirs.dump());
    CHECK(ours.dump({.indent = 2}) == theirs.dump(2));
    CHECK(ours.dump({.ascii = true}) == theirs.dump(-1, ' ', true));
    CHECK(Json::parse(theirs.dump(3)) == ours);
    CHECK(Json::parse(ours.dump()).dump() == ours.dump());
}

TEST_CASE("json value: any bytes are written as another implementation writes them, with U+FFFD for what is no UTF-8") {
    Random random(17);
    constexpr std::string_view kBytes = "\x1F\"\\a\x7F\x80\xBF\xC0\xC3\xE0\xA0\xED\x9F\xEF\xF0\x90\xF4\x8F\xF5\xFF";
    for (int i = 0; i < 5000; ++i) {
        std::string text;
        for (auto n = random.below(9); n > 0; --n)
            text += random.below(4) == 0 ? static_cast<char>(random.bits()) : kBytes[random.below(kBytes.size())];
        for (const bool ascii : {false, true})
            REQUIRE(Json(text).dump({.ascii = ascii}) ==
                    Theirs(text).dump(-1, ' ', ascii, Theirs::error_handler_t::replace));
    }
}

TEST_CASE("json value: numbers stay integers where they are, and doubles read back equal with the fewest digits") {
    for (const char* text : {"0", "-1", "9223372036854775807", "-9223372036854775808", "18446744073709551615"}) {
        CHECK(Json::parse(text).is_integer());
        CHECK(Json::parse(text).dump() == text);
    }
    CHECK_FALSE(Json::parse("18446744073709551616").is_integer());
    CHECK(Json(5u).dump() == "5");
    CHECK(Json(5u) == Json(5));
    CHECK(Json(5.0) == Json(5));
    CHECK_FALSE(Json(9007199254740993) == Json(9007199254740992.0));
    CHECK_FALSE(Json(18446744073709551615u) == Json(-1));
    CHECK(Json(-1.9).get<int>() == -1);
    CHECK(Json(255).get<std::uint8_t>() == 255);
    CHECK_THROWS_AS((void)Json(256).get<std::uint8_t>(), Error);
    CHECK_THROWS_AS((void)Json(-1).get<std::uint64_t>(), Error);
    CHECK_THROWS_AS((void)Json(0x1p63).get<std::int64_t>(), Error);
    CHECK(Json(std::numeric_limits<double>::infinity()).dump() == "null");
    Random random(18);
    for (int i = 0; i < 5000; ++i) {
        const double value = i % 2 == 0 ? std::bit_cast<double>(random.bits())
                                        : static_cast<double>(random.below(2'000'000)) / std::pow(10.0, i % 19);
        if (!std::isfinite(value)) continue;
        const std::string ours = Json(value).dump(), theirs = Theirs(value).dump();
        REQUIRE(Json::parse(ours).get<double>() == value);
        if (ours.size() == theirs.size()) continue;  // theirs has a digit too many now and then
        REQUIRE(ours.size() < theirs.size());
    }
    CHECK(Json(0.0001).dump() == "0.0001");
    CHECK(Json(0.00001).dump() == "1e-05");
    CHECK(Json(-1.5e20).dump() == "-1.5e+20");
}

TEST_CASE("json value: elements and members are found, added, replaced and removed, in their order") {
    Json list;
    list.push_back(2);
    list.insert(0, "first");
    list.insert(2, {{"role", "user"}});
    CHECK(list.dump() == R"(["first",2,{"role":"user"}])");
    CHECK(list.back().text("role") == "user");
    CHECK(list.back().text("no").empty());
    list.erase(0, 2);
    CHECK(list.size() == 1);
    CHECK_THROWS_AS((void)list.at(1), Error);
    CHECK_THROWS_AS(list.insert(3, 1), Error);
    Json object;
    object["b"] = 1;
    object["a"] = object;
    object["b"] = object["a"]["b"];  // of the object itself
    object.update({{"c", 3}, {"a", nullptr}});
    CHECK(object.dump() == R"({"b":1,"a":null,"c":3})");
    object.erase("a");
    CHECK(std::as_const(object)["a"].is_null());
    CHECK(std::as_const(object)["a"]["b"].is_null());
    CHECK(object.find("a") == nullptr);
    CHECK(object == Json{{"c", 3}, {"b", 1}});
    CHECK_FALSE(object == Json{{"c", 3}, {"d", 1}});
    CHECK_THROWS_AS((void)object.at("a"), Error);
    CHECK_THROWS_AS(object.push_back(1), Error);
    CHECK_THROWS_AS((void)object.string(), Error);
    CHECK(Json(std::vector<float>{0.5f, 1}).dump() == "[0.5,1.0]");
    CHECK(Json(std::map<std::string, int>{{"x", 1}}).dump() == R"({"x":1})");
    CHECK(Json::parse(R"({"a":1,"b":2,"a":3,"c":4,"b":5})").dump() == R"({"a":3,"b":5,"c":4})");
}

TEST_CASE("json value: what is no JSON, or too much, is refused with its place") {
    const auto message = [](std::string_view text, const JsonOptions& options = {}) -> std::string {
        try {
            return Json::parse(text, "f", options).dump();
        } catch (const Error& error) {
            return error.what();
        }
    };
    CHECK(message("{\n  \"a\": }") == "f: line 2, column 8 (byte 9): expected a value, found '}'");
    CHECK(message("[[1]]", {.max_depth = 1}).find("nested deeper than 1") != std::string::npos);
    CHECK(message("[1,2]", {.max_bytes = 4}).find("limit 4") != std::string::npos);
    CHECK_FALSE(Json::try_parse("[").has_value());
    CHECK(Json::try_parse("[]") == Json::array());
}

TEST_CASE("[N3] json value: destroying one allocates nothing; depth costs no stack") {
    constexpr int kDepth = 1'000'000;
    {
        Json value = deep_value(kDepth);
        const Json copy = value;
        CHECK(copy == value);
        CHECK(value.dump().size() > kDepth);
        const test::AllocationScope scope;
        test::fail_allocation_at(1);
        value = nullptr;
        CHECK_FALSE(test::allocation_failed());
        test::fail_allocation_at(0);
        CHECK(scope.count() == 0);
    }
    const std::string text = conversation<Json>().dump();
    const Json value = Json::parse(text);
    for (std::uint64_t n = 1;; ++n) {
        test::fail_allocation_at(n);
        try {
            Json read = Json::parse(text), copy = value;
            copy["messages"].push_back({{"role", "tool"}, {"content", read}});
            (void)copy.dump();
        } catch (const std::bad_alloc&) {
        } catch (const Error& error) {
            CHECK(error.code() == ErrorCode::out_of_memory);
        }
        const bool failed = test::allocation_failed();
        test::fail_allocation_at(0);
        REQUIRE(value.dump() == text);
        if (!failed) break;
    }
}

}  // namespace tinfer
