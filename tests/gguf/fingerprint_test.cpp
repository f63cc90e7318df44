// SPDX-License-Identifier: MIT
// Fingerprints of files: by the definition, computed here from the bytes of files made for it; the same however a file
// is opened, and another one whenever metadata, directory, length or sampled data differ.
#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <set>

#include "support/gguf_writer.hpp"
#include "support/temp_folder.hpp"
#include "tinfer/tinfer.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

using Fingerprint = std::array<std::uint8_t, 16>;

/// One file with `n` floats.
GgufWriter file_of(std::int64_t n, float last = 1.0f) {
    std::vector<float> values(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1009);
    values.back() = last;
    return GgufWriter()
        .kv("general.name", "sample")
        .kv("some.number", 7u)
        .tensor("a", DType::f32, {3}, {1.0f, 2.0f, 3.0f})
        .tensor("b", DType::f32, {n}, values);
}

/// First 16 bytes of SHA-256 over metadata and directories, length of all data, and 64 pieces of 4096 bytes at even
/// distances.
Fingerprint by_definition(const std::vector<GgufWriter>& shards) {
    std::vector<std::byte> text, data;
    for (const GgufWriter& shard : shards) {
        const auto front = shard.front(), all = shard.bytes();
        text.insert(text.end(), front.begin() + 24, front.end());
        data.insert(data.end(), all.begin() + static_cast<std::ptrdiff_t>(shard.data_start()), all.end());
    }
    const std::uint64_t length = data.size();
    for (int i = 0; i < 8; ++i) text.push_back(static_cast<std::byte>(length >> (8 * i)));
    if (length <= 64 * 4096) text.insert(text.end(), data.begin(), data.end());
    else
        for (std::uint64_t i = 0; i < 64; ++i) {
            const auto at = data.begin() + static_cast<std::ptrdiff_t>(i * (length - 4096) / 63);
            text.insert(text.end(), at, at + 4096);
        }
    const auto digest = sha256(text);
    Fingerprint out;
    std::copy_n(digest.begin(), 16, out.begin());
    return out;
}

Fingerprint of(const std::filesystem::path& path, const ModelOptions& options = {}) {
    return ModelFile::open(path, options).fingerprint();
}

}  // namespace

TEST_CASE("gguf: a fingerprint is what its definition says, for small files and for those that are sampled") {
    const TempFolder folder;
    for (const std::int64_t n : {1, 5, 1024, 65000, 65536 - 8, 65536, 70000, 1000003}) {
        CAPTURE(n);
        const GgufWriter writer = file_of(n);
        writer.save(folder / "m.gguf");
        CHECK(to_hex(of(folder / "m.gguf")) == to_hex(by_definition({writer})));
    }
    for (const int version : {1, 2}) {  // another length of the header
        CAPTURE(version);
        GgufWriter writer({.version = version});
        writer.kv("general.name", "sample").tensor("a", DType::f32, {3}, {1.0f, 2.0f, 3.0f});
        writer.save(folder / "old.gguf");
        const auto fingerprint = of(folder / "old.gguf");
        if (version == 2) CHECK(fingerprint == by_definition({writer}));
        CHECK(fingerprint == of(folder / "old.gguf", {.use_mmap = false}));
    }
}

TEST_CASE("gguf: a fingerprint does not depend on how the file is opened, and overrides do not change it") {
    const TempFolder folder;
    file_of(300000).save(folder / "m.gguf");
    const auto expected = of(folder / "m.gguf");
    CHECK(of(folder / "m.gguf", {.use_mmap = false}) == expected);
    CHECK(of(folder / "m.gguf", {.check_tensors = true}) == expected);
    CHECK(of(folder / "m.gguf", {.use_mmap = false, .check_tensors = true}) == expected);
    CHECK(of(folder / "m.gguf", {.overrides = {{"some.number", std::int64_t{8}}}}) == expected);
    std::filesystem::copy_file(folder / "m.gguf", folder / "other name.gguf");
    CHECK(of(folder / "other name.gguf") == expected);
}

TEST_CASE("gguf: files of different contents have different fingerprints") {
    const TempFolder folder;
    std::set<Fingerprint> seen;
    const auto add = [&](const GgufWriter& writer) {
        writer.save(folder / "m.gguf");
        CHECK(seen.insert(of(folder / "m.gguf")).second);
    };
    add(file_of(300000));
    add(file_of(300001));
    add(file_of(300000, 2.0f));  // the last bytes are in the sample
    add(file_of(300000).kv("another.key", 1u));
    add(file_of(300000).set("some.number", 8u));
    GgufWriter renamed = file_of(300000);
    renamed.tensor("b").name = "c";
    add(renamed);
    GgufWriter first = file_of(300000);
    first.tensor("a").data[0] = std::byte{1};
    add(first);
}

TEST_CASE("gguf: the fingerprint of a split set is that of all shards") {
    const TempFolder folder;
    std::vector<GgufWriter> shards;
    std::vector<std::filesystem::path> paths;
    for (int no = 0; no < 3; ++no) {
        std::vector<float> values(40000, static_cast<float>(no + 1));
        GgufWriter writer;
        if (no == 0) writer.kv("general.architecture", "llama");
        writer.kv("split.no", static_cast<std::uint16_t>(no))
            .kv("split.count", std::uint16_t{3})
            .kv("split.tensors.count", 3);
        writer.tensor("t" + std::to_string(no), DType::f32, {static_cast<std::int64_t>(values.size())}, values);
        paths.push_back(folder / ("m-0000" + std::to_string(no + 1) + "-of-00003.gguf"));
        writer.save(paths.back());
        shards.push_back(std::move(writer));
    }
    const auto fingerprint = ModelFile::open(paths).fingerprint();
    CHECK(to_hex(fingerprint) == to_hex(by_definition(shards)));
    CHECK(of(paths[0]) == fingerprint);
}

TEST_CASE("gguf: a file that has become shorter has no fingerprint but an error") {
    const TempFolder folder;
    file_of(300000).save(folder / "m.gguf");
    const auto file = ModelFile::open(folder / "m.gguf");
    (void)file.fingerprint();
    std::filesystem::resize_file(folder / "m.gguf", std::filesystem::file_size(folder / "m.gguf") - 100);
    try {
        (void)file.fingerprint();
        FAIL("no error");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::truncated);
        CHECK(std::string_view(error.what()).find("m.gguf") != std::string_view::npos);
    }
}
