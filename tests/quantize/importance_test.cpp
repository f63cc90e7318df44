// SPDX-License-Identifier: MIT
#include "tinfer/observers.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <limits>

#include "support/code_of.hpp"
#include "support/gguf_copy.hpp"
#include "support/temp_folder.hpp"
#include "tinfer/model.hpp"

namespace tinfer {
namespace {

using test::code_of;
using test::TempFolder;

ImportanceFile example() {
    ImportanceFile file{.datasets = {"a.txt"}, .n_chunks = 3, .chunk_tokens = 8};
    file.weights.push_back({"blk.0.ffn_up.weight", 3, 1, {24, 0, 2.4}, {24}});
    file.weights.push_back({"blk.0.ffn_up_exps.weight", 2, 2, {8, 16, 0, 0}, {16, 0}});
    return file;
}

void check_equal(const ImportanceFile& a, const ImportanceFile& b) {
    CHECK(a.datasets == b.datasets);
    CHECK(a.n_chunks == b.n_chunks);
    CHECK(a.chunk_tokens == b.chunk_tokens);
    REQUIRE(a.weights.size() == b.weights.size());
    for (std::size_t i = 0; i < a.weights.size(); ++i) {
        CHECK(a.weights[i].name == b.weights[i].name);
        CHECK(a.weights[i].n_columns == b.weights[i].n_columns);
        CHECK(a.weights[i].n_matrices == b.weights[i].n_matrices);
        CHECK(a.weights[i].rows == b.weights[i].rows);
        for (std::size_t k = 0; k < a.weights[i].sum_squares.size(); ++k)
            CHECK(a.weights[i].sum_squares[k] == doctest::Approx(b.weights[i].sum_squares[k]));
    }
}

template <class T>
void put(std::string& out, T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out.append(bytes, sizeof value);
}

void save(const std::filesystem::path& path, std::string_view bytes) {
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

TEST_CASE("[Q2] importance: the GGUF form holds all there is, under the names that the field reads") {
    const TempFolder folder;
    const auto path = folder / "i.gguf";
    write_importance(path, example());
    check_equal(read_importance(path), example());
    auto raw = test::gguf_copy(path);
    CHECK(raw.keys()[0].key == "general.type");
    CHECK(std::get<std::string>(raw.keys()[0].value.value) == "imatrix");
    CHECK(std::get<std::uint32_t>(raw.keys()[2].value.value) == 3);  // imatrix.chunk_count
    const auto& sums = raw.tensor("blk.0.ffn_up_exps.weight.in_sum2");
    CHECK(sums.ne == std::vector<std::int64_t>{2, 2});
    CHECK(raw.tensor("blk.0.ffn_up_exps.weight.counts").ne == std::vector<std::int64_t>{1, 2});
}

TEST_CASE("[Q2] importance: sums of more digits than float32 are read back as they were") {
    const TempFolder folder;
    const auto path = folder / "i.gguf";
    ImportanceFile file = example();
    file.weights[0].sum_squares = {16777216.0 + 1.0 / 1024, 0, 3};
    write_importance(path, file);
    CHECK(read_importance(path).weights[0].sum_squares == file.weights[0].sum_squares);
    CHECK(test::gguf_copy(path).tensor("blk.0.ffn_up.weight.in_sum2").ne == std::vector<std::int64_t>{3, 1});

    const auto with_rests = [&](const std::vector<float>& rests) {  // beside sums of 24, 0, 2.4, 8, 16, 0, 0
        write_importance(path, example());
        const auto source = ModelFile::open(path);
        ModelWriter writer(folder / "r.gguf");
        writer.copy_metadata(source);
        writer.set("tinfer.imatrix.rests", rests);
        for (const auto& tensor : source.tensors()) writer.add_tensor(tensor);
        for (const auto& tensor : source.tensors()) writer.copy(tensor.id, source, tensor);
        return read_importance(writer.finish().front());
    };
    CHECK(with_rests({0, 0, 0x1p-26f, 0, 0, 0, 0}).weights[0].sum_squares[2] == double{2.4f} + 0x1p-26);
    for (const std::vector<float>& rests : {std::vector<float>{0, 0, 1e-8f, 0, 0, 0},
                                            std::vector<float>(8, 0.0f),
                                            {-1, 0, 0, 0, 0, 0, 0},
                                            {std::numeric_limits<float>::quiet_NaN(), 0, 0, 0, 0, 0, 0}})
        CHECK(code_of([&] { static_cast<void>(with_rests(rests)); }) == ErrorCode::damaged);
}

TEST_CASE("[Q2] importance: the older form gives the same means") {
    const TempFolder folder;
    const auto path = folder / "i.dat";
    std::string bytes;  // by hand: one entry, 2 calls, means 1, 0, 0.1
    put(bytes, std::int32_t{1});
    put(bytes, std::int32_t{19});
    bytes += "blk.0.ffn_up.weight";
    put(bytes, std::int32_t{2});
    put(bytes, std::int32_t{3});
    for (const float value : {2.0f, 0.0f, 0.2f}) put(bytes, value);
    save(path, bytes);
    CHECK(read_importance(path).n_chunks == 0);
    put(bytes, std::int32_t{7});
    put(bytes, std::int32_t{5});
    bytes += "a.txt";
    save(path, bytes);
    const auto file = read_importance(path);
    CHECK(file.n_chunks == 7);
    CHECK(file.datasets == std::vector<std::string>{"a.txt"});
    CHECK(file.weights[0].rows == std::vector<std::uint64_t>{2});
    CHECK(file.weights[0].sum_squares == std::vector<double>{2, 0, double{0.2f}});

    write_importance(path, example(), ImportanceFormat::binary);
    const auto back = read_importance(path);
    REQUIRE(back.weights.size() == 2);
    CHECK(back.weights[0].rows[0] == 3);
    CHECK(back.weights[0].sum_squares[2] / 3 == doctest::Approx(0.1));
    CHECK(back.weights[1].n_columns == 4);  // matrices are not told apart
    CHECK(back.weights[1].sum_squares[1] / static_cast<double>(back.weights[1].rows[0]) == doctest::Approx(1.0));
    for (std::size_t n = 0; n < bytes.size(); ++n) {  // cut anywhere: an error or the file without its last lines
        save(path, std::string_view(bytes).substr(0, n));
        try {
            const std::size_t n_weights = read_importance(path).weights.size();
            CHECK(n_weights == 1);
        } catch (const Error& error) {
            CHECK((error.code() == ErrorCode::damaged || error.code() == ErrorCode::io_error));
        }
    }
}

TEST_CASE("[Q2] importance: sums of two files are those of one run; other shapes are refused") {
    auto sum = example();
    merge_importance(sum, example());
    CHECK(sum.n_chunks == 6);
    CHECK(sum.datasets.size() == 1);
    CHECK(sum.weights[0].sum_squares[0] == 48);
    CHECK(sum.weights[1].rows == std::vector<std::uint64_t>{32, 0});
    auto other = example();
    other.weights[1].n_matrices = 1;
    CHECK(code_of([&] { merge_importance(sum, other); }) == ErrorCode::bad_parameter);
    CHECK(sum.weights[0].sum_squares[0] == 48);
}

TEST_CASE("[Q2] importance: damaged files are refused by weight and column") {
    const TempFolder folder;
    const auto path = folder / "i.gguf";
    write_importance(path, example());
    auto raw = test::gguf_copy(path);
    raw.erase_tensor("blk.0.ffn_up.weight.counts").save(path);
    CHECK(code_of([&] { (void)read_importance(path); }) == ErrorCode::damaged);
    raw.set("general.type", test::GgufValue{std::string("model")}).save(path);
    CHECK(code_of([&] { (void)read_importance(path); }) == ErrorCode::damaged);
    auto bad = example();
    bad.weights[0].sum_squares[1] = std::numeric_limits<double>::infinity();
    CHECK(code_of([&] { write_importance(path, bad); }) == ErrorCode::compute_failed);
    bad.weights[0].sum_squares.pop_back();
    CHECK(code_of([&] { write_importance(path, bad); }) == ErrorCode::bad_parameter);
    std::string huge;
    put(huge, std::int32_t{0x7FFFFFFF});
    save(path, huge);
    CHECK(code_of([&] { (void)read_importance(path); }) == ErrorCode::damaged);
}

}  // namespace tinfer
