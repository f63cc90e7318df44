// SPDX-License-Identifier: MIT
// Fingerprints of files: by the definition, computed here from the bytes of files made for it; the same however a file
// is opened, and another one whenever metadata, directory, length or sampled data differ; full ones whenever any byte
// does.
#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include "base/xxhash.hpp"
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

namespace {

void add_number(std::vector<std::byte>& to, std::uint64_t number) {
    for (int i = 0; i < 8; ++i) to.push_back(static_cast<std::byte>(number >> (8 * i)));
}

std::vector<std::byte> bytes_of(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::vector<std::byte> bytes(std::filesystem::file_size(path));
    in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return bytes;
}

/// Of every byte: SHA-256 over each file's length and the two XXH64 of each 16 MiB of it.
Fingerprint full_by_definition(const std::vector<std::filesystem::path>& paths) {
    std::vector<std::byte> text;
    for (const auto& path : paths) {
        const auto bytes = bytes_of(path);
        add_number(text, bytes.size());
        for (std::size_t at = 0; at < bytes.size(); at += std::size_t{16} << 20)
            for (const std::uint64_t seed : {0, 1}) {
                Xxh64 hash(seed);
                hash.update(std::span(bytes).subspan(at).first(std::min(bytes.size() - at, std::size_t{16} << 20)));
                add_number(text, hash.value());
            }
    }
    const auto digest = sha256(text);
    Fingerprint out;
    std::copy_n(digest.begin(), 16, out.begin());
    return out;
}

void flip(const std::filesystem::path& path, std::uint64_t at) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(at));
    const char changed = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(changed);
}

}  // namespace

TEST_CASE("xxh64: with a seed, by values of the reference program") {
    const auto of_text = [](std::string_view text, std::uint64_t seed) {
        Xxh64 hash(seed);
        hash.update(std::as_bytes(std::span(text)));
        return hash.value();
    };
    CHECK(of_text("", 0) == 0xEF46DB3751D8E999u);
    CHECK(of_text("", 1) == 0xD5AFBA1336A3BE4Bu);
    CHECK(of_text("a", 1) == 0xDEC2BC81C3CD46C6u);
    CHECK(of_text("abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz", 1) == 0x74D6EB5641E37F87u);
}

TEST_CASE("gguf: a full fingerprint is what its definition says, and sees every byte") {
    const TempFolder folder;
    const auto path = folder / "m.gguf";
    for (const std::int64_t n : {1, 1000, 300000, 5 << 20}) {
        CAPTURE(n);
        file_of(n).save(path);
        const auto file = ModelFile::open(path);
        REQUIRE(file.full_fingerprint());
        CHECK(to_hex(*file.full_fingerprint()) == to_hex(full_by_definition({path})));
        CHECK(file.compute_full_fingerprint() == *file.full_fingerprint());
        CHECK(ModelFile::open(path, {.use_mmap = false}).full_fingerprint() == file.full_fingerprint());
    }
    file_of(300000).save(path);
    const auto sample = of(path);
    std::set<Fingerprint> seen{*ModelFile::open(path).full_fingerprint()};
    for (std::uint64_t at = std::filesystem::file_size(path) - 5000; at < std::filesystem::file_size(path) - 4200;
         at += 97) {
        flip(path, at);
        CHECK(of(path) == sample);  // between two pieces of the sample
        CHECK(seen.insert(*ModelFile::open(path).full_fingerprint()).second);
        flip(path, at);
    }
}

TEST_CASE("gguf: a full fingerprint of a large file is computed where it is asked for, kept, and known again") {
    const TempFolder folder;
    const auto path = folder / "m.gguf", kept = folder / "kept";
    file_of(3).save(path);
    std::filesystem::resize_file(path, (std::uint64_t{256} << 20) + 12345);  // a hole
    const auto settle = [&] {  // a file that has just changed might change again unnoticed, so nothing is kept for it
        std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) - std::chrono::hours(1));
        std::this_thread::sleep_for(std::chrono::milliseconds(2200));
    };
    const auto file = ModelFile::open(path);
    CHECK(!file.full_fingerprint());
    CHECK(!file.full_fingerprint(kept));
    double last = 0;
    try {
        file.compute_full_fingerprint({.folder = kept, .progress = [&](double done) { return (last = done) < 0.5; }});
        FAIL("not cancelled");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::cancelled);
    }
    CHECK((last >= 0.5 && last < 0.6));
    CHECK(!file.full_fingerprint(kept));
    settle();
    const auto full = file.compute_full_fingerprint({.folder = kept});
    CHECK(to_hex(full) == to_hex(full_by_definition({path})));
    CHECK(file.full_fingerprint() == full);
    const auto again = ModelFile::open(path);
    CHECK(!again.full_fingerprint());
    CHECK(again.full_fingerprint(kept) == full);
    CHECK(again.full_fingerprint() == full);
    REQUIRE(std::distance(std::filesystem::directory_iterator(kept), {}) == 1);
    const auto entry = std::filesystem::directory_iterator(kept)->path();
    const std::uint64_t n = std::filesystem::file_size(entry);
    for (const std::uint64_t at : {std::uint64_t{3}, std::uint64_t{30}, n - 40, n - 20, n - 3}) {
        flip(entry, at);  // damaged: as if it were not there
        CHECK(!ModelFile::open(path).full_fingerprint(kept));
        flip(entry, at);
    }
    CHECK(ModelFile::open(path).full_fingerprint(kept) == full);
    std::filesystem::resize_file(entry, n - 1);
    CHECK(!ModelFile::open(path).full_fingerprint(kept));
    const auto nowhere = path / "no folder";
    CHECK(ModelFile::open(path).compute_full_fingerprint({.folder = nowhere}) == full);
    CHECK(ModelFile::open(path).compute_full_fingerprint({.folder = kept}) == full);  // written over
    CHECK(ModelFile::open(path).full_fingerprint(kept) == full);
    flip(path, std::uint64_t{200} << 20);  // another file, though of the same size and, soon, of the same time
    settle();
    const auto changed = ModelFile::open(path);
    CHECK(!changed.full_fingerprint(kept));
    CHECK(changed.compute_full_fingerprint({.folder = kept}) != full);
}

TEST_CASE("gguf: a file that has become shorter has no fingerprint but an error") {
    const TempFolder folder;
    file_of(300000).save(folder / "m.gguf");
    const auto file = ModelFile::open(folder / "m.gguf");
    (void)file.fingerprint();
    std::filesystem::resize_file(folder / "m.gguf", std::filesystem::file_size(folder / "m.gguf") - 100);
    for (const bool full : {false, true}) try {
            if (full) (void)file.full_fingerprint();
            else (void)file.fingerprint();
            FAIL("no error");
        } catch (const Error& error) {
            CHECK(error.code() == ErrorCode::truncated);
            CHECK(std::string_view(error.what()).find("m.gguf") != std::string_view::npos);
        }
}
