// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.hpp"
#include "gguf/file.hpp"
#include "gguf/worked_example.hpp"
#include "support/gguf_copy.hpp"
#include "support/gguf_writer.hpp"
#include "support/golden.hpp"

namespace tinfer::gguf {
namespace {

using test::GgufArray;
using test::GgufValue;
using test::GgufWriter;

/// Fields of one RFC 4180 line.
std::vector<std::string> fields_of(const std::string& line) {
    std::vector<std::string> fields(1);
    bool quoted = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
        if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') fields.back() += line[++i];
        else if (line[i] == '"') quoted = !quoted;
        else if (line[i] == ',' && !quoted) fields.emplace_back();
        else fields.back() += line[i];
    }
    return fields;
}

std::vector<std::vector<std::string>> rows_of(const std::string& csv_text) {
    std::vector<std::vector<std::string>> rows;
    std::istringstream in(csv_text);
    for (std::string line; std::getline(in, line);) rows.push_back(fields_of(line));
    return rows;
}

}  // namespace

TEST_CASE("[L24] gguf: the CSV lists every tensor of the worked example with its place") {
    const auto bytes = test::worked_example();
    const auto file = File::open_memory(bytes, "test.gguf", {});
    CHECK(csv(*file) == "index,name,type,n_dims,ne0,ne1,ne2,ne3,elements,bytes,bits_per_weight,file,offset_in_data,"
                        "file_offset,file_end,"
                        "padding_before,layer,role,expert_count,bytes_per_expert\n"
                        "0,a,f32,1,3,1,1,1,3,12,32,0,0,256,268,0,65535,a,0,0\n"
                        "1,b.weight,q8_0,2,32,2,1,1,64,68,8.5,0,32,288,356,20,65535,b,0,0\n");
}

TEST_CASE("gguf: CSV rows give layer, role, experts and padding, whatever the names") {
    GgufWriter writer({.reverse_data = true});
    writer.tensor("blk.3.ffn_down_exps.weight", DType::f32, {4, 2, 5}, std::vector<float>(40));
    writer.tensor("blk.12.attn_q.bias", DType::f32, {3}, {1, 2, 3}).tensor("a,\"b\"\n\xff", DType::f32, {1}, {1});
    const auto bytes = writer.bytes();
    const auto file = File::open_memory(bytes, "test.gguf", {});
    const auto rows = rows_of(csv(*file));
    REQUIRE(rows.size() == 4);
    for (const auto& row : rows) CHECK(row.size() == 20);
    CHECK(rows[1][16] == "3");
    CHECK(rows[1][17] == "ffn_down_exps");
    CHECK(rows[1][18] == "5");
    CHECK(rows[1][19] == "32");
    CHECK(rows[1][15] == "20");  // the 12 bytes of the bias lie before it
    CHECK(rows[2][16] == "12");
    CHECK(rows[2][17] == "attn_q.bias");
    CHECK(rows[3][1] == "a,\"b\"\\x0a\\xff");
}

TEST_CASE("gguf: names split into layer and role") {
    const auto check = [](std::string_view name, int layer, std::string_view role) {
        CAPTURE(name);
        CHECK(split_name(name).layer == layer);
        CHECK(split_name(name).role == role);
    };
    check("blk.3.attn_q.weight", 3, "attn_q");
    check("blk.3.attn_q.bias", 3, "attn_q.bias");
    check("blk.0.ssm_a", 0, "ssm_a");
    check("output_norm.weight", kNoLayer, "output_norm");
    check("enc.blk.7.attn_k.weight", 7, "attn_k");
    check("a", kNoLayer, "a");
    check(".weight", kNoLayer, ".weight");
    for (const std::string_view name :
         {"blk.", "blk.3", "blk.3.", "blk.x.y", "blk.-1.y", "blk.65535.y", "blk.99999999999.y", "blk.3y.z"})
        check(name, kNoLayer, name);
}

TEST_CASE("gguf: the JSON document is valid and complete whatever the file holds") {
    GgufWriter writer;
    writer.kv("arch", "llama")
        .kv("bad utf8 \xff", "a\"\\\n\xc3(")
        .kv("u64", ~std::uint64_t{0})
        .kv("i64", std::numeric_limits<std::int64_t>::min());
    writer.kv("nan", std::numeric_limits<float>::quiet_NaN())
        .kv("inf", -std::numeric_limits<double>::infinity())
        .kv("f", 0.1f);
    writer.array("tokens", {"<s>", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82\xac", "\xc0\xaf"})
        .array("scores", {0.5f, -1.0f});
    writer.kv("nested",
              GgufValue{GgufArray{
                  9, {GgufValue{GgufWriter::array_of(std::vector<std::uint8_t>{1, 2})}, GgufValue{GgufArray{7, {}}}}}});
    writer.tensor("blk.0.x\xff", DType::f32, {2}, {1, 2}).tensor("y", DType::f16, {4}, std::vector<float>(2));
    const auto bytes = writer.bytes();
    const auto file = File::open_memory(bytes, "dir/test.gguf", {.overrides = {{"arch", std::string("other")}}});
    const auto document = nlohmann::json::parse(json(*file));

    CHECK(document["version"] == 3);
    CHECK(document["files"][0] == "test.gguf");
    const auto& metadata = document["metadata"];
    CHECK(metadata.size() == 10);
    CHECK(metadata["arch"]["type"] == "string");
    CHECK(metadata["arch"]["value"] == "llama");
    CHECK(metadata["bad utf8 \\xff"]["value"] == "a\"\\\n\\xc3(");
    CHECK(metadata["u64"]["value"] == ~std::uint64_t{0});
    CHECK(metadata["i64"]["value"] == std::numeric_limits<std::int64_t>::min());
    CHECK(metadata["nan"]["value"] == "NaN");
    CHECK(metadata["inf"]["value"] == "-Infinity");
    CHECK(metadata["f"]["value"].dump() == "0.1");
    CHECK(metadata["tokens"]["count"] == 5);
    CHECK(metadata["tokens"]["value"][1] == "\\xed\\xa0\\x80");       // a surrogate
    CHECK(metadata["tokens"]["value"][2] == "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
    CHECK(metadata["tokens"]["value"][3] == "€");
    CHECK(metadata["tokens"]["value"][4] == "\\xc0\\xaf");  // an overlong form
    CHECK(metadata["nested"]["value"] == nlohmann::json::parse("[[1,2],[]]"));
    CHECK(document["overrides"][0]["value"] == "other");
    REQUIRE(document["tensors"].size() == 2);
    CHECK(document["tensors"][0]["name"] == "blk.0.x\\xff");
    CHECK(document["tensors"][0]["layer"] == 0);
    CHECK(document["tensors"][1]["layer"].is_null());
    CHECK(document["tensors"][1]["type"] == "f16");
    CHECK(document["type_mix"].size() == 2);
}

TEST_CASE("[L20] gguf: the reported mix is the count of tensors by type") {
    GgufWriter writer;
    const std::vector<std::byte> block(144);
    writer.tensor("a", DType::f32, {1}, {1})
        .tensor("b", DType::q4_k, {256}, block)
        .tensor("c", DType::q4_k, {256}, block);
    writer.tensor("d", DType::f32, {3}, {1, 2, 3}).tensor("e", DType::q2_0, {64}, std::span(block).first(18));
    const auto bytes = writer.bytes();
    const auto mix = File::open_memory(bytes, "test.gguf", {})->type_mix();
    REQUIRE(mix.size() == 3);
    CHECK((mix[0].type == DType::f32 && mix[0].tensors == 2 && mix[0].bytes == 16));
    CHECK((mix[1].type == DType::q4_k && mix[1].tensors == 2 && mix[1].bytes == 288));
    CHECK((mix[2].type == DType::q2_0 && mix[2].tensors == 1 && mix[2].bytes == 18));
}

TEST_CASE("[L5][golden] gguf: every golden model opens, and its directory is what a parser of the tests' own reads") {
    if (skip_without_golden()) return;
    std::size_t models = 0;
    for (const auto& folder : golden_entries("models")) {
        const auto path = folder / "model.gguf";
        if (!std::filesystem::exists(path) || !std::filesystem::exists(folder / "case.json")) continue;
        CAPTURE(path.string());
        const auto file = File::open(std::span(&path, 1), {});
        file->load_data({.check_tensors = true});
        CHECK_FALSE(file->tensors().empty());
        const test::GgufWriter independent = test::gguf_copy(path);
        std::ifstream stream(path, std::ios::binary);
        REQUIRE(independent.tensors().size() == file->tensors().size());
        for (std::size_t i = 0; i < file->tensors().size(); ++i) {
            const TensorInfo& ours = file->tensors()[i];
            const GgufWriter::Tensor& theirs = independent.tensors()[i];
            CAPTURE(theirs.name);
            CHECK(ours.name == theirs.name);
            CHECK(ours.type == theirs.type);
            for (std::size_t d = 0; d < ours.ne.size(); ++d)
                CHECK(ours.ne[d] == (d < theirs.ne.size() ? theirs.ne[d] : 1));
            REQUIRE(ours.bytes == theirs.data.size());
            std::vector<char> bytes(theirs.data.size());  // at the offset that we say
            stream.seekg(static_cast<std::streamoff>(ours.file_offset));
            stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
            CHECK(std::memcmp(bytes.data(), theirs.data.data(), bytes.size()) == 0);
        }
        const auto document = nlohmann::json::parse(json(*file));
        CHECK(document["tensors"].size() == file->tensors().size());
        CHECK(rows_of(csv(*file)).size() == file->tensors().size() + 1);
        const auto described = nlohmann::json::parse(std::ifstream(folder / "case.json"));
        CHECK(file->find_string("general.architecture") == described.at("architecture").get<std::string>());
        ++models;
    }
    expect_cases(models, 163, "models");
}

}  // namespace tinfer::gguf
