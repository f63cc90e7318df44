// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "gguf/file.hpp"
#include "support/gguf_writer.hpp"

namespace tinfer::gguf {
namespace {

using test::GgufArray;
using test::GgufValue;
using test::GgufWriter;

/// Keeps the bytes that an in-memory File points into.
struct Parsed {
    std::vector<std::byte> bytes;
    std::shared_ptr<File> file;
    explicit Parsed(const GgufWriter& writer, const ModelOptions& options = {})
        : bytes(writer.bytes()), file(File::open_memory(bytes, "test.gguf", options)) {}
    const File* operator->() const { return file.get(); }
};

template <class Action>
std::optional<ErrorCode> code_of(const Action& action, std::string* message = nullptr) {
    try {
        action();
        return std::nullopt;
    } catch (const Error& error) {
        if (message != nullptr) *message = error.what();
        return error.code();
    }
}

template <class T>
void write_integers(GgufWriter& writer, const std::string& name) {
    writer.kv(name, std::numeric_limits<T>::min()).kv(name + ".max", std::numeric_limits<T>::max());
    writer.array(name + ".array", std::vector<T>{std::numeric_limits<T>::min(), T{1}, T{100}});
}

template <class T>
void check_integers(const Parsed& parsed, const std::string& name, ValueType type) {
    CHECK(parsed->find_int(name) == static_cast<std::int64_t>(std::numeric_limits<T>::min()));
    if constexpr (!std::is_same_v<T, std::uint64_t>)
        CHECK(parsed->find_int(name + ".max") == static_cast<std::int64_t>(std::numeric_limits<T>::max()));
    const auto array = parsed->require_array(name + ".array", type);
    REQUIRE(array.size() == 3);
    CHECK(array.integer(0) == static_cast<std::int64_t>(std::numeric_limits<T>::min()));
    CHECK(array.integer(1) == 1);
    CHECK(array.integer(2) == 100);
}

}  // namespace

TEST_CASE("[L4] gguf: every value of an independent writer is read back equal, all 13 types, versions 1 to 3") {
    for (const int version : {1, 2, 3}) {
        CAPTURE(version);
        GgufWriter writer({.version = version});
        write_integers<std::uint8_t>(writer, "u8");
        write_integers<std::int8_t>(writer, "i8");
        write_integers<std::uint16_t>(writer, "u16");
        write_integers<std::int16_t>(writer, "i16");
        write_integers<std::uint32_t>(writer, "u32");
        write_integers<std::int32_t>(writer, "i32");
        write_integers<std::uint64_t>(writer, "u64");
        write_integers<std::int64_t>(writer, "i64");
        writer.kv("f32", 0.1f).kv("f64", 0.1).array("f32s", {1.5f, -0.0f, 3e38f}).array("f64s", {1e300, -2.5});
        writer.kv("f32.nan", std::numeric_limits<float>::quiet_NaN()).kv("true", true).kv("false", false);
        writer.kv("bools", GgufValue{GgufArray{7, {GgufValue{true}, GgufValue{false}, GgufValue{true}}}});
        const std::string raw("a\0b\xff\xc3", 5);
        writer.kv("text", raw).kv("text.empty", "").array("texts", std::vector<std::string>{"", raw, "héllo", ""});
        writer.kv("empty", GgufValue{GgufArray{8, {}}});
        const GgufArray inner1 = GgufWriter::array_of(std::vector<std::string>{"x", "yz"}), inner2{5, {}};
        const GgufArray inner3 = GgufWriter::array_of(std::vector<double>{0.25});
        writer.kv("nested",
                  GgufValue{GgufArray{
                      9, {GgufValue{inner1}, GgufValue{inner2}, GgufValue{GgufArray{9, {GgufValue{inner3}}}}}}});
        writer.kv("last", "end").tensor("t", DType::f32, {2, 1}, {4, 5});
        const Parsed parsed(writer);

        CHECK(parsed->version() == version);
        check_integers<std::uint8_t>(parsed, "u8", ValueType::u8);
        check_integers<std::int8_t>(parsed, "i8", ValueType::i8);
        check_integers<std::uint16_t>(parsed, "u16", ValueType::u16);
        check_integers<std::int16_t>(parsed, "i16", ValueType::i16);
        check_integers<std::uint32_t>(parsed, "u32", ValueType::u32);
        check_integers<std::int32_t>(parsed, "i32", ValueType::i32);
        check_integers<std::uint64_t>(parsed, "u64", ValueType::u64);
        check_integers<std::int64_t>(parsed, "i64", ValueType::i64);
        CHECK(parsed->find_number("f32") == static_cast<double>(0.1f));
        CHECK(parsed->find_number("f64") == 0.1);
        CHECK(std::isnan(*parsed->find_number("f32.nan")));
        const auto f32s = parsed->require_array("f32s", ValueType::f32);
        CHECK(f32s.number(0) == 1.5);
        CHECK(std::signbit(f32s.number(1)));
        CHECK(f32s.number(2) == static_cast<double>(3e38f));
        CHECK(parsed->require_array("f64s", ValueType::f64).number(1) == -2.5);
        CHECK(parsed->find_bool("true") == true);
        CHECK(parsed->find_bool("false") == false);
        const auto bools = parsed->require_array("bools", ValueType::boolean);
        CHECK((bools.boolean(0) && !bools.boolean(1) && bools.boolean(2)));
        CHECK(parsed->find_string("text") == raw);
        CHECK(parsed->find_string("text.empty") == "");
        const auto texts = parsed->require_array("texts", ValueType::string);
        REQUIRE(texts.size() == 4);
        CHECK(texts.string(0).empty());
        CHECK(texts.string(1) == raw);
        CHECK(texts.string(2) == "héllo");
        CHECK(texts.string(3).empty());
        CHECK(parsed->require_array("empty", ValueType::string).size() == 0);
        const auto nested = parsed->require_array("nested", ValueType::array);
        REQUIRE(nested.size() == 3);
        CHECK(nested.array(0).string(1) == "yz");
        CHECK(nested.array(1).size() == 0);
        CHECK(nested.array(1).element_type() == ValueType::i32);
        CHECK(nested.array(2).array(0).number(0) == 0.25);
        CHECK(parsed->find_string("last") == "end");
        CHECK(parsed->find_tensor("t")->ne == std::array<std::int64_t, 4>{2, 1, 1, 1});
    }
}

TEST_CASE("gguf: accessors accept any integer width, refuse other families, and check the range") {
    GgufWriter writer;
    writer.kv("small", std::uint8_t{200})
        .kv("wide", std::uint64_t{1} << 40)
        .kv("huge", ~std::uint64_t{0})
        .kv("negative", -1);
    writer.kv("flag", true)
        .kv("float", 1.0f)
        .kv("text", "7")
        .array("list", {1, 2, 3})
        .array("bytes", std::vector<std::uint8_t>{1, 2});
    const Parsed parsed(writer);
    CHECK(parsed->find_u32("small") == 200u);
    CHECK(parsed->find_int("wide") == std::int64_t{1} << 40);
    CHECK(parsed->find_int("negative") == -1);
    CHECK_FALSE(parsed->find_int("absent").has_value());
    CHECK(code_of([&] { static_cast<void>(parsed->find_u32("wide")); }) == ErrorCode::bad_key);
    CHECK(code_of([&] { static_cast<void>(parsed->find_u32("negative")); }) == ErrorCode::bad_key);
    CHECK(code_of([&] { static_cast<void>(parsed->find_int("huge")); }) == ErrorCode::bad_key);
    for (const char* key : {"flag", "float", "text", "list"}) {
        CAPTURE(key);
        CHECK(code_of([&] { static_cast<void>(parsed->find_int(key)); }) == ErrorCode::wrong_type);
    }
    CHECK(code_of([&] { static_cast<void>(parsed->find_number("small")); }) == ErrorCode::wrong_type);
    CHECK(code_of([&] { static_cast<void>(parsed->find_bool("small")); }) == ErrorCode::wrong_type);
    CHECK(code_of([&] { static_cast<void>(parsed->find_string("list")); }) == ErrorCode::wrong_type);
    CHECK(code_of([&] { static_cast<void>(parsed->find_array("text")); }) == ErrorCode::wrong_type);
    std::string message;
    CHECK(code_of([&] { static_cast<void>(parsed->require_u32("absent")); }, &message) == ErrorCode::missing_key);
    CHECK(message == "test.gguf: key 'absent' is missing");

    // Storage of another element type is never reinterpreted: one-byte scores would otherwise be read four bytes wide.
    CHECK(code_of([&] { static_cast<void>(parsed->find_array("bytes", ValueType::f32)); }) == ErrorCode::wrong_type);
    const auto bytes = *parsed->find_array("bytes");
    CHECK(bytes.raw().size() == 2);
    CHECK(code_of([&] { static_cast<void>(bytes.number(0)); }) == ErrorCode::wrong_type);
    CHECK(code_of([&] { static_cast<void>(bytes.string(0)); }) == ErrorCode::wrong_type);
    CHECK(code_of([&] { static_cast<void>(bytes.array(0)); }) == ErrorCode::wrong_type);
    CHECK(code_of([&] { static_cast<void>(parsed->find_array("list")->raw()); }) == ErrorCode::wrong_type);
    CHECK(code_of([&] { static_cast<void>(bytes.integer(2)); }) == ErrorCode::index_out_of_range);
}

TEST_CASE("gguf: a per-layer key is one number for all or one for each") {
    GgufWriter writer;
    writer.kv("scalar", 3u).array("three", {1, 2, 3}).array("signed", {1, -2, 3}).array("floats", {1.f, 2.f, 3.f});
    const Parsed parsed(writer);
    CHECK(*parsed->find_u32_or_array("scalar", 3) == std::vector<std::uint32_t>{3, 3, 3});
    CHECK(*parsed->find_u32_or_array("three", 3) == std::vector<std::uint32_t>{1, 2, 3});
    CHECK_FALSE(parsed->find_u32_or_array("absent", 3).has_value());
    CHECK(code_of([&] { static_cast<void>(parsed->find_u32_or_array("three", 4)); }) == ErrorCode::bad_key);
    CHECK(code_of([&] { static_cast<void>(parsed->find_u32_or_array("signed", 3)); }) == ErrorCode::bad_key);
    CHECK(code_of([&] { static_cast<void>(parsed->find_u32_or_array("floats", 3)); }) == ErrorCode::wrong_type);
}

TEST_CASE("[L17] gguf: an override changes the accessor, one of the wrong type or of an array is refused") {
    GgufWriter writer;
    writer.kv("n", 3u).kv("x", 1.0f).kv("on", false).kv("name", "old").array("list", {1, 2}).kv("untouched", 9u);
    const ModelOptions options{.overrides = {{"n", std::int64_t{5}},
                                             {"x", 2.5},
                                             {"on", true},
                                             {"name", std::string("new")},
                                             {"added", std::int64_t{7}},
                                             {"list", std::int64_t{1}},
                                             {"nobody", true}}};
    const Parsed parsed(writer, options);
    CHECK(parsed->unused_overrides().size() == 7);
    CHECK(parsed->find_u32("n") == 5u);
    CHECK(parsed->find_number("x") == 2.5);
    CHECK(parsed->find_bool("on") == true);
    CHECK(parsed->find_string("name") == "new");
    CHECK(parsed->find_u32("added") == 7u);  // a key the file lacks
    CHECK(parsed->contains("added"));
    CHECK(parsed->find_u32("untouched") == 9u);
    CHECK(*parsed->find_u32_or_array("n", 2) == std::vector<std::uint32_t>{5, 5});
    CHECK(parsed->entry(0).value == "5");
    CHECK(parsed->value_text("added") == "7");
    CHECK(parsed->unused_overrides() == std::vector<std::string>{"list", "nobody"});

    std::string message;
    CHECK(code_of([&] { static_cast<void>(parsed->find_number("n")); }, &message) == ErrorCode::bad_override);
    CHECK(message == "override of 'n' has type int, loader needs float");
    CHECK(code_of([&] { static_cast<void>(parsed->find_int("x")); }) == ErrorCode::bad_override);
    CHECK(code_of([&] { static_cast<void>(parsed->find_bool("n")); }) == ErrorCode::bad_override);
    CHECK(code_of([&] { static_cast<void>(parsed->find_string("on")); }) == ErrorCode::bad_override);
    CHECK(code_of([&] { static_cast<void>(parsed->find_array("list")); }) == ErrorCode::bad_override);
    CHECK(code_of([&] { static_cast<void>(parsed->find_u32_or_array("list", 2)); }) == ErrorCode::bad_override);
    CHECK(parsed->unused_overrides() == std::vector<std::string>{"nobody"});

    const auto load_with = [&](std::size_t length) {
        Parsed(writer, {.overrides = {{"name", std::string(length, 'x')}}});
    };
    CHECK_FALSE(code_of([&] { load_with(127); }).has_value());
    CHECK(code_of([&] { load_with(128); }) == ErrorCode::bad_override);
}

TEST_CASE("gguf: entries for display show types, counts and the first eight elements") {
    GgufWriter writer;
    writer.kv("f", 0.1f).kv("s", "text").array("a", {1, 2, 3, 4, 5, 6, 7, 8, 9}).array("t", {"x\n", "y"});
    const Parsed parsed(writer);
    CHECK(parsed->entry(0).type == "f32");
    CHECK(parsed->entry(0).value == "0.1");
    CHECK(parsed->entry(1).value == "text");
    CHECK(parsed->entry(2).type == "array of i32");
    CHECK(parsed->entry(2).count == 9);
    CHECK(parsed->entry(2).value == "[1, 2, 3, 4, 5, 6, 7, 8, …]");
    CHECK(parsed->entry(3).value == "['x\\x0a', 'y']");
    CHECK(parsed->value_text("f") == "0.1");
    CHECK_FALSE(parsed->value_text("a").has_value());
}

}  // namespace tinfer::gguf
