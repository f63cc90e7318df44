// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/mapped_file.hpp"
#include "gguf/file.hpp"
#include "support/gguf_writer.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_folder.hpp"

namespace tinfer::gguf {
namespace {

using test::GgufWriter;
using test::TempFolder;

std::shared_ptr<File> open_path(const std::filesystem::path& path, const ModelOptions& options = {}) {
    return File::open(std::span(&path, 1), options);
}

/// A field of a /proc file in kB, e.g. "VmLck:".
long proc_kb(const char* file, const std::string& field) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
        std::istringstream words(line);
        std::string name;
        long value = 0;
        if (words >> name >> value && name == field) return value;
    }
    return -1;
}

/// Tensors of several sizes with recognizable content.
GgufWriter sample_writer() {
    GgufWriter writer;
    writer.kv("general.name", "sample");
    for (const std::int64_t n : {1, 7, 100, 5000, 1000000}) {
        std::vector<float> values(static_cast<std::size_t>(n));
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + static_cast<float>(n) / 8;
        writer.tensor("t" + std::to_string(n), DType::f32, {n}, values);
    }
    return writer;
}

std::vector<std::byte> content(const TensorInfo& tensor) {
    const auto* bytes = static_cast<const std::byte*>(tensor.address);
    return {bytes, bytes + tensor.bytes};
}

/// One huge tensor whose bytes are a hole in a sparse file.
std::filesystem::path sparse_model(const TempFolder& folder, std::int64_t bytes) {
    const GgufWriter writer = GgufWriter().tensor("big", DType::f32, {bytes / 4}, std::vector<float>{});
    const auto path = folder / "sparse.gguf";
    writer.save(path);
    std::filesystem::resize_file(path, writer.data_start() + static_cast<std::uintmax_t>(bytes));
    return path;
}

bool is_mapped_anywhere(std::string_view name) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        if (line.find(name) != std::string::npos) return true;
    return false;
}

}  // namespace

TEST_CASE("gguf: mapped and read tensors hold the same bytes, and reading maps nothing") {
    TempFolder folder;
    const auto path = folder / "sample-to-read.gguf";
    sample_writer().save(path);
    auto mapped = open_path(path);
    mapped->load_data({});
    CHECK(is_mapped_anywhere("sample-to-read.gguf"));
    std::vector<std::vector<std::byte>> expected;
    for (const TensorInfo& tensor : mapped->tensors()) expected.push_back(content(tensor));
    CHECK(mapped->copied_bytes() == 0);
    CHECK(mapped->mapped_bytes() == 4 * 1005108);

    SUBCASE("opened for reading") {
        mapped.reset();
        const ModelOptions options{.use_mmap = false};
        const auto read = open_path(path, options);
        read->load_data(options);
        CHECK_FALSE(is_mapped_anywhere("sample-to-read.gguf"));
        CHECK(read->mapped_bytes() == 0);
        CHECK(read->copied_bytes() == 64 + 64 + 448 + 20032 + 4000000);
        CHECK(read->copied_bytes() == read->read_buffer_bytes());
        for (const TensorInfo& tensor : read->tensors()) {
            CHECK(content(tensor) == expected[tensor.id]);
            CHECK(reinterpret_cast<std::uintptr_t>(tensor.address) % 64 == 0);
        }
    }
    SUBCASE("opened by map, loaded by reading") {
        const auto read = open_path(path);
        read->load_data({.use_mmap = false});
        CHECK(read->mapped_bytes() == 0);
        CHECK(read->copied_bytes() == read->read_buffer_bytes());
        for (const TensorInfo& tensor : read->tensors()) CHECK(content(tensor) == expected[tensor.id]);
        CHECK(read->find_string("general.name") == "sample");  // the header's pages are still there
    }
}

TEST_CASE("gguf: a long header is found whole by ordinary reads") {
    TempFolder folder;
    std::vector<std::string> tokens;
    for (int i = 0; i < 60000; ++i) tokens.push_back("token number " + std::to_string(i));
    GgufWriter writer;
    writer.array("tokens", tokens).kv("after", 5).tensor("t", DType::f32, {1}, {3.0f});
    writer.save(folder / "long.gguf");
    const ModelOptions options{.use_mmap = false};
    const auto file = open_path(folder / "long.gguf", options);
    file->load_data(options);
    CHECK(file->require_array("tokens", ValueType::string).string(59999) == "token number 59999");
    CHECK(file->find_int("after") == 5);
    CHECK(*static_cast<const float*>(file->find_tensor("t")->address) == 3.0f);
}

TEST_CASE("[L2] gguf: mapping a file of 1 GB takes next to no private memory") {
    TempFolder folder;
    constexpr std::int64_t bytes = std::int64_t{1} << 30;
    const auto path = sparse_model(folder, bytes);
    const auto private_kb = [] {
        return proc_kb("/proc/self/smaps_rollup", "Private_Clean:") +
               proc_kb("/proc/self/smaps_rollup", "Private_Dirty:");
    };
    const long before = private_kb();
    REQUIRE(before > 0);
    const auto file = open_path(path);
    file->load_data({});
    CHECK(file->mapped_bytes() == static_cast<std::uint64_t>(bytes));
    CHECK((private_kb() - before) * 1024 < bytes / 20);
}

TEST_CASE("[L15] gguf: after populate, touching every page takes no fault at all") {
    TempFolder folder;
    sample_writer().save(folder / "sample.gguf");
    const ModelOptions options{.populate = true};
    const auto file = open_path(folder / "sample.gguf", options);
    file->load_data(options);
    const auto faults = [] {
        ::rusage usage{};
        ::getrusage(RUSAGE_SELF, &usage);
        return std::pair(usage.ru_majflt, usage.ru_minflt);
    };
    const TensorInfo& big = *file->find_tensor("t1000000");
    const auto [major, minor] = faults();
    unsigned sum = 0;
    for (std::uint64_t i = 0; i < big.bytes; i += 512)
        sum += static_cast<unsigned>(static_cast<const std::uint8_t*>(big.address)[i]);
    const auto [major_after, minor_after] = faults();
    CHECK(sum != 0);
    CHECK(major_after == major);
    if (!test::kSanitized && !test::kEmulated)
        CHECK(minor_after - minor <
              8);  // shadow memory faults too; of 977 pages; a few of the test's own may fall in between
}

TEST_CASE("[L14] gguf: mlock raises the locked bytes by the weights, and its failure is one warning") {
    TempFolder folder;
    sample_writer().save(folder / "sample.gguf");
    for (const bool use_mmap : {true, false}) {
        CAPTURE(use_mmap);
        std::vector<std::string> warnings;
        const ModelOptions options{
            .use_mmap = use_mmap, .mlock = true, .log = [&](LogLevel level, std::string_view text) {
                if (level == LogLevel::warning) warnings.emplace_back(text);
            }};
        const long before = proc_kb("/proc/self/status", "VmLck:");
        {
            const auto file = open_path(folder / "sample.gguf", options);
            file->load_data(options);
            const long locked = proc_kb("/proc/self/status", "VmLck:") - before;
            if (test::kSanitized) MESSAGE("sanitizers turn mlock into nothing");
            else if (warnings.empty()) CHECK(locked * 1024 >= 4 * 1005108);
            else MESSAGE("this machine does not let the process lock 4 MB: " << warnings.front());
        }
        CHECK(proc_kb("/proc/self/status", "VmLck:") == before);
    }

    ::rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    const ::rlimit lowered{0, limit.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &lowered) == 0);
    int warnings = 0;
    const ModelOptions options{
        .mlock = true, .log = [&](LogLevel level, std::string_view) { warnings += level == LogLevel::warning; }};
    const auto file = open_path(folder / "sample.gguf", options);
    file->load_data(options);  // a privileged process may lock nevertheless
    CHECK(warnings <= 1);
    CHECK(file->data_loaded());
    ::setrlimit(RLIMIT_MEMLOCK, &limit);
}

TEST_CASE("[L19] gguf: progress is monotone from 0 to 1, and a stop ends the load and frees everything") {
    TempFolder folder;
    sample_writer().save(folder / "sample.gguf");
    for (const bool use_mmap : {true, false})
        for (const bool check : {false, true}) {
            CAPTURE(use_mmap);
            CAPTURE(check);
            std::vector<double> seen;
            ModelOptions options{.use_mmap = use_mmap, .populate = true, .check_tensors = check};
            options.progress = [&](double fraction) { return seen.push_back(fraction), true; };
            const auto file = open_path(folder / "sample.gguf", options);
            file->load_data(options);
            REQUIRE(seen.size() >= 5);
            CHECK(seen.front() == 0.0);
            CHECK(seen.back() == 1.0);
            for (std::size_t i = 1; i < seen.size(); ++i) CHECK(seen[i - 1] <= seen[i]);
            CHECK(std::count(seen.begin(), seen.end(), 1.0) == 1);

            const ModelOptions quiet{.use_mmap = use_mmap};
            for (std::size_t stop = 0; stop < seen.size(); ++stop) {
                std::size_t calls = 0;
                ModelOptions stopping = options;
                stopping.progress = [&](double) { return calls++ < stop; };
                const auto stopped = open_path(folder / "sample.gguf", stopping);
                ErrorCode code{};
                try {
                    stopped->load_data(stopping);
                } catch (const Error& error) {
                    code = error.code();
                }
                CHECK(code == ErrorCode::cancelled);
                CHECK(calls == stop + 1);  // not one call after "stop"
                CHECK_FALSE(stopped->data_loaded());
                CHECK(stopped->copied_bytes() == 0);
                CHECK(stopped->tensors()[0].address == nullptr);
                stopped->load_data(quiet);  // and nothing keeps it from loading after all
                CHECK(stopped->data_loaded());
            }
        }
}

TEST_CASE("gguf: a tensor is found by its name and by every address inside it, and by no other") {
    TempFolder folder;
    sample_writer().save(folder / "sample.gguf");
    for (const bool use_mmap : {true, false}) {
        const ModelOptions options{.use_mmap = use_mmap};
        const auto file = open_path(folder / "sample.gguf", options);
        CHECK(file->find_tensor(static_cast<const void*>(&options)) == nullptr);
        file->load_data(options);
        for (const TensorInfo& tensor : file->tensors()) {
            const auto* first = static_cast<const std::byte*>(tensor.address);
            CHECK(file->find_tensor(first) == &tensor);
            CHECK(file->find_tensor(first + tensor.bytes - 1) == &tensor);
            CHECK(file->find_tensor(first + tensor.bytes) != &tensor);
            CHECK(file->find_tensor(tensor.name) == &tensor);
        }
        CHECK(file->find_tensor(static_cast<const void*>(&options)) == nullptr);
        CHECK(file->find_tensor(static_cast<const std::byte*>(file->tensors()[0].address) - 1) == nullptr);
        CHECK(file->find_tensor("absent") == nullptr);
    }
}

TEST_CASE("[L18] gguf: a scale that is not finite is reported with tensor and block, when asked for") {
    TempFolder folder;
    std::vector<std::byte> blocks(34 * 100000);  // q8_0, several pieces of the scan
    blocks[34 * 77777 + 1] = std::byte{0x7e};    // NaN
    GgufWriter writer;
    writer.tensor("good", DType::f32, {4}, {1, 2, 3, 4})
        .tensor("blk.0.ffn_up.weight", DType::q8_0, {32, 100000}, blocks);
    writer.save(folder / "nan.gguf");
    const auto message_of = [](const auto& action) -> std::string {
        try {
            action();
        } catch (const Error& error) {
            CHECK(error.code() == ErrorCode::bad_tensor_data);
            return error.what();
        }
        return {};
    };
    for (const bool use_mmap : {true, false}) {
        const ModelOptions plain{.use_mmap = use_mmap}, checking{.use_mmap = use_mmap, .check_tensors = true};
        const auto file = open_path(folder / "nan.gguf", plain);
        CHECK(message_of([&] { file->check_data(); }).find("tensor 'blk.0.ffn_up.weight': block 77777 of 100000") !=
              std::string::npos);
        CHECK(message_of([&] { file->load_data(checking); }).find("block 77777") != std::string::npos);
        CHECK_FALSE(file->data_loaded());
        file->load_data(plain);
        CHECK(message_of([&] { file->check_data(); }).find("block 77777") != std::string::npos);
    }
}

TEST_CASE("gguf: a file that has become shorter is reported when it is read") {
    TempFolder folder;
    sample_writer().save(folder / "sample.gguf");
    const ModelOptions options{.use_mmap = false};
    const auto file = open_path(folder / "sample.gguf", options);
    std::filesystem::resize_file(folder / "sample.gguf", 100000);
    try {
        file->load_data(options);
        FAIL("the load must fail");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::truncated);
    }
}

}  // namespace tinfer::gguf
