// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "gguf/file.hpp"
#include "support/gguf_writer.hpp"
#include "support/temp_folder.hpp"

namespace tinfer::gguf {
namespace {

using test::GgufWriter;
using test::TempFolder;

/// Shard `no` of `count`; shard 0 carries the metadata, shard k the tensor "t<k>" = {k}. Alignments differ on purpose.
GgufWriter shard_writer(int no, int count, int total) {
    GgufWriter writer({.alignment = no == 1 ? 64u : 32u});
    if (no == 0) writer.kv("general.architecture", "llama");
    writer.kv("split.no", static_cast<std::uint16_t>(no))
        .kv("split.count", static_cast<std::uint16_t>(count))
        .kv("split.tensors.count", total);
    const auto value = static_cast<float>(no);
    writer.tensor("t" + std::to_string(no), DType::f32, {1}, {value})
        .tensor("u" + std::to_string(no), DType::f32, {2}, {value, -value});
    return writer;
}

std::string shard_name(int no, int count) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05d-of-%05d.gguf", no + 1, count);
    return name;
}

std::shared_ptr<File> open_paths(std::initializer_list<std::filesystem::path> paths, const ModelOptions& options = {}) {
    const std::vector<std::filesystem::path> list(paths);
    return File::open(list, options);
}

std::optional<ErrorCode> code_of_open(std::initializer_list<std::filesystem::path> paths,
                                      std::string* message = nullptr) {
    try {
        static_cast<void>(open_paths(paths));
        return std::nullopt;
    } catch (const Error& error) {
        if (message != nullptr) *message = error.what();
        return error.code();
    }
}

void check_three_shards(File& file, const ModelOptions& options) {
    CHECK(file.find_string("general.architecture") == "llama");
    REQUIRE(file.tensors().size() == 6);
    REQUIRE(file.paths().size() == 3);
    file.load_data(options);
    for (int k = 0; k < 3; ++k) {
        CAPTURE(k);
        const TensorInfo* tensor = file.find_tensor("t" + std::to_string(k));
        REQUIRE(tensor != nullptr);
        CHECK(tensor->file_index == k);
        CHECK(tensor->id == static_cast<std::uint32_t>(2 * k));
        CHECK(*static_cast<const float*>(tensor->address) == static_cast<float>(k));
        CHECK(file.find_tensor(tensor->address) == tensor);
    }
}

}  // namespace

TEST_CASE("[L7] gguf: a model cut in shards opens from the first alone, mapped or read") {
    TempFolder folder;
    for (int k = 0; k < 3; ++k) shard_writer(k, 3, 6).save(folder / shard_name(k, 3));
    for (const bool use_mmap : {true, false}) {
        CAPTURE(use_mmap);
        const ModelOptions options{.use_mmap = use_mmap};
        const auto file = open_paths({folder / shard_name(0, 3)}, options);
        check_three_shards(*file, options);
        CHECK(file->copied_bytes() == (use_mmap ? 0 : 6 * 64));
        CHECK(file->read_buffer_bytes() == 6 * 64);
        CHECK(file->mapped_bytes() == (use_mmap ? 3 * 12 : 0));
    }
}

TEST_CASE("[L7] gguf: a missing shard is named") {
    TempFolder folder;
    for (const int k : {0, 2}) shard_writer(k, 3, 6).save(folder / shard_name(k, 3));
    std::string message;
    CHECK(code_of_open({folder / shard_name(0, 3)}, &message) == ErrorCode::io_error);
    CHECK(message.find(shard_name(1, 3)) != std::string::npos);
}

TEST_CASE("gguf: inconsistent split sets are refused") {
    TempFolder folder;
    for (int k = 0; k < 3; ++k) shard_writer(k, 3, 6).save(folder / shard_name(k, 3));
    std::string message;
    SUBCASE("opened from another shard than the first, with a hint") {
        CHECK(code_of_open({folder / shard_name(1, 3)}, &message) == ErrorCode::bad_split);
        CHECK(message.find("-00001-of-00003.gguf") != std::string::npos);
    }
    SUBCASE("first shard renamed") {
        std::filesystem::rename(folder / shard_name(0, 3), folder / "renamed.gguf");
        CHECK(code_of_open({folder / "renamed.gguf"}) == ErrorCode::bad_split);
    }
    SUBCASE("numbers swapped") {
        shard_writer(2, 3, 6).save(folder / shard_name(1, 3));
        CHECK(code_of_open({folder / shard_name(0, 3)}) == ErrorCode::bad_split);
    }
    SUBCASE("another count") {
        shard_writer(1, 4, 6).save(folder / shard_name(1, 3));
        CHECK(code_of_open({folder / shard_name(0, 3)}) == ErrorCode::bad_split);
    }
    SUBCASE("another number of tensors") {
        shard_writer(0, 3, 7).save(folder / shard_name(0, 3));
        CHECK(code_of_open({folder / shard_name(0, 3)}, &message) == ErrorCode::bad_split);
        CHECK(message.find("split.tensors.count is 7, the shards hold 6") != std::string::npos);
    }
    SUBCASE("no split keys in a later shard") {
        GgufWriter().tensor("t1", DType::f32, {1}, {1.0f}).save(folder / shard_name(1, 3));
        CHECK(code_of_open({folder / shard_name(0, 3)}) == ErrorCode::bad_split);
    }
    SUBCASE("a split key that is no integer") {
        GgufWriter().kv("split.no", 1.0f).save(folder / shard_name(1, 3));
        CHECK(code_of_open({folder / shard_name(0, 3)}) == ErrorCode::bad_metadata);
    }
}

TEST_CASE("[L6] gguf: a tensor name repeated in another shard is refused by name") {
    TempFolder folder;
    shard_writer(0, 2, 5).save(folder / shard_name(0, 2));
    auto second = shard_writer(1, 2, 5);
    second.tensor("t0", DType::f32, {1}, {9.0f}).save(folder / shard_name(1, 2));
    std::string message;
    CHECK(code_of_open({folder / shard_name(0, 2)}, &message) == ErrorCode::bad_tensor_info);
    CHECK(message.find("'t0'") != std::string::npos);
}

TEST_CASE("[L8] gguf: shards of any name open when given in order") {
    TempFolder folder;
    const auto path = [&](int k) { return folder / ("piece " + std::to_string(9 - k)); };
    for (int k = 0; k < 3; ++k) shard_writer(k, 3, 6).save(path(k));
    const auto file = open_paths({path(0), path(1), path(2)});
    check_three_shards(*file, {});
    CHECK(code_of_open({path(0), path(2), path(1)}) == ErrorCode::bad_split);
    CHECK(code_of_open({path(0), path(1)}) == ErrorCode::bad_split);
    CHECK(code_of_open({path(0)}) == ErrorCode::bad_split);
    GgufWriter().kv("general.architecture", "llama").save(folder / "single");
    CHECK(code_of_open({folder / "single", path(1)}) == ErrorCode::bad_split);
}

TEST_CASE("gguf: the first shard may hold metadata only, and split.count may be 0 or 1") {
    TempFolder folder;
    GgufWriter().kv("split.no", 0u).kv("split.count", 2u).kv("split.tensors.count", 2u).save(folder / shard_name(0, 2));
    shard_writer(1, 2, 2).save(folder / shard_name(1, 2));
    CHECK(open_paths({folder / shard_name(0, 2)})->tensors().size() == 2);
    for (const std::uint16_t count : {0, 1}) {
        GgufWriter().kv("split.count", count).tensor("t", DType::f32, {1}, {1.0f}).save(folder / "any.gguf");
        CHECK(open_paths({folder / "any.gguf"})->tensors().size() == 1);
    }
}

TEST_CASE("gguf: what is no regular file is refused") {
    TempFolder folder;
    CHECK(code_of_open({folder.path()}) == ErrorCode::io_error);
    CHECK(code_of_open({folder / "absent.gguf"}) == ErrorCode::io_error);
    CHECK(code_of_open({"/dev/zero"}) == ErrorCode::io_error);
    std::string message;
    CHECK(code_of_open({""}, &message) == ErrorCode::io_error);
    CHECK(message.starts_with("\"\": cannot open"));
    CHECK(code_of_open({}) == ErrorCode::bad_parameter);
    std::ofstream(folder / "empty.gguf").close();
    CHECK(code_of_open({folder / "empty.gguf"}) == ErrorCode::not_gguf);
}

}  // namespace tinfer::gguf
