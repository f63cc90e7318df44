// SPDX-License-Identifier: MIT
// The library's writer, judged by the writer and the parser of the tests' own, which share no line with it.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>

#include "gguf/file.hpp"
#include "support/code_of.hpp"
#include "support/gguf_copy.hpp"
#include "support/gguf_writer.hpp"
#include "support/temp_folder.hpp"
#include "tinfer/model.hpp"

namespace tinfer::gguf {
namespace {

using test::code_of;
using test::GgufArray;
using test::GgufValue;
using test::GgufWriter;
using test::TempFolder;

std::vector<std::byte> bytes_of_file(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

std::vector<float> ramp(std::size_t n, float first) {
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = first + static_cast<float>(i);
    return values;
}

std::size_t n_files(const TempFolder& folder) {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator()));
}

/// Every value type, alone and in arrays, and tensors of odd sizes.
GgufWriter example(std::uint32_t alignment = 32) {
    GgufWriter w({.alignment = alignment});
    w.kv("a.u8", std::uint8_t{200}).kv("a.i8", std::int8_t{-3}).kv("a.u16", std::uint16_t{40000});
    w.kv("a.i16", std::int16_t{-4}).kv("a.u32", 7u).kv("a.i32", -7).kv("a.u64", ~std::uint64_t{0});
    w.kv("a.i64", std::int64_t{-1}).kv("a.f32", 0.1f).kv("a.f64", 0.1).kv("a.yes", true).kv("a.text", "");
    w.kv("b.text", std::string("a\0\xff", 3));
    w.array<std::uint8_t>("c.u8", {1, 2}).array<std::int8_t>("c.i8", {-1}).array<std::uint16_t>("c.u16", {3});
    w.array<std::int16_t>("c.i16", {-3}).array<std::uint32_t>("c.u32", {}).array<std::int32_t>("c.i32", {-1, 1});
    w.array<std::uint64_t>("c.u64", {9}).array<std::int64_t>("c.i64", {-9}).array<float>("c.f32", {0.5f});
    w.array<double>("c.f64", {0.25}).array("c.text", {"<s>", "", "hi"});
    w.kv("c.bool", GgufValue{GgufArray{7, {GgufValue{true}, GgufValue{false}}}});
    w.tensor("x", DType::f32, {3}, ramp(3, 0)).tensor("blk.0.y.weight", DType::f32, {4, 2}, ramp(8, 3));
    w.tensor("z", DType::q8_0, {32, 1, 2}, std::vector<std::byte>(68, std::byte{5}));
    return w;
}

void say_example(ModelWriter& w, std::uint32_t alignment = 32) {
    if (alignment != 32) w.set("general.alignment", alignment);
    w.set("a.u8", std::uint8_t{200});
    w.set("a.i8", std::int8_t{-3});
    w.set("a.u16", std::uint16_t{40000});
    w.set("a.i16", std::int16_t{-4});
    w.set("a.u32", std::uint32_t{7});
    w.set("a.i32", std::int32_t{-7});
    w.set("a.u64", ~std::uint64_t{0});
    w.set("a.i64", std::int64_t{-1});
    w.set("a.f32", 0.1f);
    w.set("a.f64", 0.1);
    w.set("a.yes", true);
    w.set("a.text", "");
    w.set("b.text", std::string("a\0\xff", 3));
    w.set("c.u8", std::vector<std::uint8_t>{1, 2});
    w.set("c.i8", std::vector<std::int8_t>{-1});
    w.set("c.u16", std::vector<std::uint16_t>{3});
    w.set("c.i16", std::vector<std::int16_t>{-3});
    w.set("c.u32", std::vector<std::uint32_t>{});
    w.set("c.i32", std::vector<std::int32_t>{-1, 1});
    w.set("c.u64", std::vector<std::uint64_t>{9});
    w.set("c.i64", std::vector<std::int64_t>{-9});
    w.set("c.f32", std::vector<float>{0.5f});
    w.set("c.f64", std::vector<double>{0.25});
    w.set("c.text", std::vector<std::string>{"<s>", "", "hi"});
    w.set("c.bool", std::vector<bool>{true, false});
    w.add_tensor("x", DType::f32, {3});
    w.add_tensor("blk.0.y.weight", DType::f32, {4, 2, 1, 1});
    w.add_tensor("z", DType::q8_0, {32, 1, 2});
}

}  // namespace

TEST_CASE("[Q3] gguf: what is written is byte for byte what an independent writer makes, in any order of tensors") {
    const TempFolder folder;
    for (const std::uint32_t alignment : {32u, 8u, 128u}) {
        CAPTURE(alignment);
        const auto path = folder / "out.gguf";
        ModelWriter writer(path);
        say_example(writer, alignment);
        const auto expected = example(alignment).bytes();
        CHECK(writer.total_bytes() == expected.size());
        const auto x = ramp(3, 0), y = ramp(8, 3);
        const auto y_bytes = std::as_bytes(std::span(y));
        const std::vector<std::byte> z(68, std::byte{5});
        writer.write(1, y_bytes.first(5));
        writer.write(2, z);
        writer.write(1, {});
        writer.write(1, y_bytes.subspan(5));
        writer.write(0, std::as_bytes(std::span(x)));
        CHECK(writer.finish() == std::vector{path});
        CHECK(bytes_of_file(path) == expected);
        CHECK(n_files(folder) == 1);
    }
}

TEST_CASE("[Q3] gguf: keys are replaced in their place and removed; a copy of a file is the file") {
    const TempFolder folder;
    auto source = example(64);
    source.kv("d.nested", GgufValue{GgufArray{9,
                                              {GgufValue{GgufWriter::array_of(std::vector<std::uint8_t>{1, 2})},
                                               GgufValue{GgufArray{8, {GgufValue{std::string("deep")}}}}}}});
    source.tensor("one", DType::f32, {4, 1}, ramp(4, 1)).save(folder / "in.gguf");
    const auto file = ModelFile::open(folder / "in.gguf");
    const auto copy = [&](ModelWriter& writer) {
        for (const TensorInfo& tensor : file.tensors()) writer.copy(writer.add_tensor(tensor), file, tensor);
        writer.finish();
    };
    ModelWriter same(folder / "same.gguf");
    same.copy_metadata(file);
    for (const TensorInfo& tensor : file.tensors()) same.add_tensor(tensor);
    for (const TensorInfo& tensor : file.tensors()) same.copy(tensor.id, file, tensor);
    same.finish();
    CHECK(bytes_of_file(folder / "same.gguf") == bytes_of_file(folder / "in.gguf"));

    ModelWriter other(folder / "other.gguf");
    other.copy_metadata(file);
    other.set("a.i8", "other");
    other.remove("a.u8");
    other.remove("no such key");
    other.remove("general.alignment");
    other.finish();
    const auto read = test::gguf_copy(folder / "other.gguf");
    CHECK(read.keys().size() == source.keys().size() - 2);
    CHECK(read.keys()[0].key == "a.i8");
    CHECK(std::get<std::string>(read.keys()[0].value.value) == "other");
    CHECK(ModelFile::open(folder / "other.gguf").alignment() == 32);
    ModelWriter late(folder / "late.gguf");
    CHECK(code_of([&] { copy(late); }) == ErrorCode::bad_parameter);  // the directory ends with the first bytes
}

TEST_CASE("[Q3] gguf: a set of shards keeps to its limits, and its tensors are those of one file") {
    const TempFolder folder;
    const auto write = [&](const ModelWriterOptions& options) {
        ModelWriter writer(folder / "m.gguf", options);
        writer.set("general.alignment", std::uint32_t{64});
        writer.set("general.architecture", "llama");
        for (int i = 0; i < 7; ++i) writer.add_tensor("t" + std::to_string(i), DType::f32, {i == 3 ? 1000 : 20});
        for (int i = 6; i >= 0; --i) {
            const auto values = ramp(i == 3 ? 1000 : 20, static_cast<float>(i));
            writer.write(static_cast<std::size_t>(i), std::as_bytes(std::span(values)));
        }
        return writer.finish();
    };
    const auto check = [&](const std::vector<std::filesystem::path>& paths) {
        const auto file = ModelFile::open(paths[0]);
        CHECK(file.paths() == paths);
        CHECK(file.metadata_value("split.count") == std::to_string(paths.size()));
        REQUIRE(file.tensors().size() == 7);
        for (const TensorInfo& tensor : file.tensors()) {
            std::vector<float> values(static_cast<std::size_t>(tensor.ne[0]));
            read_tensor(file, tensor, 0, std::as_writable_bytes(std::span(values)));
            CHECK(tensor.name == "t" + std::to_string(tensor.id));
            CHECK(values == ramp(values.size(), static_cast<float>(tensor.id)));
        }
    };
    const auto by_count = write({.max_file_tensors = 3});
    CHECK(by_count == std::vector{folder / "m-00001-of-00003.gguf", folder / "m-00002-of-00003.gguf",
                                  folder / "m-00003-of-00003.gguf"});
    check(by_count);
    for (const std::uint64_t limit : {700u, 900u, 100000u}) {
        CAPTURE(limit);
        const auto by_size = write({.max_file_bytes = limit});
        check(by_size);
        for (const auto& path : by_size)  // the one that holds t3 alone may be larger
            CHECK((std::filesystem::file_size(path) <= limit || std::filesystem::file_size(path) > 4000));
        if (limit == 100000) CHECK(by_size == std::vector{folder / "m-00001-of-00001.gguf"});
    }
}

TEST_CASE("[Q3] gguf: what cannot be a file is refused by name, and leaves nothing behind") {
    const TempFolder folder;
    const auto path = folder / "out.gguf";
    ModelWriter w(path);
    CHECK(code_of([&] { w.set("", "x"); }) == ErrorCode::bad_metadata);
    CHECK(code_of([&] { w.set(std::string(65536, 'k'), "x"); }) == ErrorCode::bad_metadata);
    CHECK(code_of([&] { w.set("split.no", std::uint16_t{0}); }) == ErrorCode::bad_metadata);
    CHECK(code_of([&] { w.set("general.alignment", 32); }) == ErrorCode::bad_metadata);
    for (const std::uint32_t alignment : {0u, 4u, 48u, 131072u})
        CHECK(code_of([&] { w.set("general.alignment", alignment); }) == ErrorCode::bad_alignment);
    w.add_tensor("a", DType::f32, {4});
    CHECK(code_of([&] { w.add_tensor("a", DType::f32, {4}); }) == ErrorCode::bad_tensor_info);
    CHECK(code_of([&] { w.add_tensor("", DType::f32, {4}); }) == ErrorCode::bad_tensor_info);
    CHECK(code_of([&] { w.add_tensor(std::string(64, 'n'), DType::f32, {4}); }) == ErrorCode::bad_tensor_info);
    CHECK(code_of([&] { w.add_tensor("b", DType::f32, {}); }) == ErrorCode::bad_tensor_info);
    CHECK(code_of([&] { w.add_tensor("b", DType::f32, {4, 0}); }) == ErrorCode::bad_tensor_info);
    CHECK(code_of([&] { w.add_tensor("b", DType::f32, {1, 2, 3, 4, 5}); }) == ErrorCode::bad_tensor_info);
    CHECK(code_of([&] { w.add_tensor("b", DType::q4_k, {255}); }) == ErrorCode::bad_tensor_info);
    CHECK(code_of([&] { w.add_tensor("b", DType::x8_32, {256}); }) == ErrorCode::unsupported_tensor_type);
    CHECK(code_of([&] { w.add_tensor("b", static_cast<DType>(4), {256}); }) == ErrorCode::unsupported_tensor_type);
    CHECK(code_of([&] {
              w.add_tensor("b", DType::f32, {std::int64_t{1} << 40, std::int64_t{1} << 40});
          }) == ErrorCode::size_overflow);
    CHECK(code_of([&] { w.write(1, {}); }) == ErrorCode::index_out_of_range);
    const std::vector<std::byte> bytes(17);
    CHECK(code_of([&] { w.write(0, bytes); }) == ErrorCode::bad_parameter);
    w.write(0, std::span(bytes).first(15));
    CHECK(code_of([&] { w.set("late", "x"); }) == ErrorCode::bad_parameter);
    CHECK(code_of([&] { w.finish(); }) == ErrorCode::bad_parameter);
    CHECK_FALSE(std::filesystem::exists(path));
    { const ModelWriter gone = std::move(w); }
    CHECK(n_files(folder) == 0);
    CHECK(code_of([&] { ModelWriter(folder / "no" / "folder.gguf").finish(); }) == ErrorCode::io_error);
    CHECK(code_of([&] { const ModelWriter directory(folder.path()); }) == ErrorCode::io_error);
    CHECK(code_of([&] { const ModelWriter device("/dev/null"); }) == ErrorCode::io_error);
}

TEST_CASE("[Q3] gguf: a disk without the room is an error with both numbers, and the old file stays") {
    const TempFolder folder;
    const auto path = folder / "out.gguf";
    example().save(path);
    const auto before = bytes_of_file(path);
    ModelWriter w(path);
    const auto weight = w.add_tensor("t", DType::f32, {std::int64_t{1} << 50});
    try {
        w.write(weight, {});
        FAIL("a petabyte was written");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::io_error);
        CHECK(std::string_view(error.what()).find("4503599627370") != std::string_view::npos);
        CHECK(std::string_view(error.what()).find("are free") != std::string_view::npos);
    }
    CHECK(bytes_of_file(path) == before);
    CHECK(n_files(folder) == 1);
}

}  // namespace tinfer::gguf
