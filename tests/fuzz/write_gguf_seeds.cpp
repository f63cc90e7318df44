// SPDX-License-Identifier: MIT
// Writes small GGUF files as seeds for fuzz_gguf into the folder given as argument: every version, value type and
// tensor type, nesting, odd alignments. Generated, because binaries in a repository cannot be reviewed.
#include <cstdio>
#include <filesystem>

#include "base/dtype.hpp"
#include "gguf/worked_example.hpp"
#include "support/gguf_writer.hpp"

namespace {

using namespace tinfer;
using test::GgufArray;
using test::GgufValue;
using test::GgufWriter;

GgufWriter all_values(int version) {
    GgufWriter w({.version = version});
    w.kv("a.u8", std::uint8_t{1})
        .kv("a.i8", std::int8_t{-1})
        .kv("a.u16", std::uint16_t{2})
        .kv("a.i16", std::int16_t{-2});
    w.kv("a.u32", 3u).kv("a.i32", -3).kv("a.f32", 0.5f).kv("a.bool", true).kv("a.string", "text");
    w.kv("a.u64", std::uint64_t{4}).kv("a.i64", std::int64_t{-4}).kv("a.f64", 0.25);
    w.array("b.strings", {"<s>", "", "\xff\"x"}).array("b.floats", {1.f, 2.f}).array("b.ints", {1, 2, 3});
    w.kv("b.bools", GgufValue{GgufArray{7, {GgufValue{true}, GgufValue{false}}}})
        .kv("b.empty", GgufValue{GgufArray{8, {}}});
    const GgufArray inner = GgufWriter::array_of(std::vector<std::string>{"x", "y"});
    w.kv("c.nested", GgufValue{GgufArray{9, {GgufValue{inner}, GgufValue{GgufArray{9, {GgufValue{inner}}}}}}});
    w.tensor("blk.0.attn_q.weight", DType::f32, {2, 2}, std::vector<float>{1, 2, 3, 4});
    return w;
}

GgufWriter all_types() {
    GgufWriter w({.alignment = 64});
    for (std::uint32_t id = 0; id < 43; ++id)
        if (const DTypeInfo* info = find_dtype(id); info != nullptr)
            w.tensor("blk." + std::to_string(id) + ".ffn_up_exps.weight", info->type, {info->block_elems, 1, 2},
                     std::vector<std::byte>(static_cast<std::size_t>(2 * info->block_bytes)));
    return w;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return std::fprintf(stderr, "usage: write_gguf_seeds FOLDER\n"), 2;
    const std::filesystem::path folder = argv[1];
    std::filesystem::create_directories(folder);
    for (const int version : {1, 2, 3}) all_values(version).save(folder / ("values-v" + std::to_string(version)));
    all_types().save(folder / "types");
    GgufWriter().save(folder / "empty");
    GgufWriter({.alignment = 8, .reverse_data = true, .gap = 40})
        .tensor("x", DType::f32, {}, std::vector<float>{1})
        .tensor("y", DType::f32, {3}, std::vector<float>{1, 2, 3})
        .save(folder / "reversed");
    GgufWriter()
        .kv("split.no", std::uint16_t{0})
        .kv("split.count", std::uint16_t{1})
        .kv("split.tensors.count", 0)
        .save(folder / "split");
    const auto example = test::worked_example();
    std::FILE* file = std::fopen((folder / "example").c_str(), "wb");
    const bool written = file != nullptr && std::fwrite(example.data(), 1, example.size(), file) == example.size();
    return file != nullptr && std::fclose(file) == 0 && written ? 0 : 1;
}
