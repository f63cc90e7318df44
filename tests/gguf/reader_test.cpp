// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <string>

#include "base/error.hpp"
#include "gguf/file.hpp"
#include "gguf/worked_example.hpp"
#include "support/gguf_writer.hpp"
#include "support/small_stack.hpp"

namespace tinfer::gguf {
namespace {

using test::GgufArray;
using test::GgufValue;
using test::GgufWriter;
using test::worked_example;

std::shared_ptr<File> parse_bytes(const std::vector<std::byte>& bytes) {
    return File::open_memory(bytes, "test.gguf", {});
}

/// The code a file is refused with, or nothing when it is accepted; the message must name the file.
std::optional<ErrorCode> refusal(const std::vector<std::byte>& bytes, std::string* message = nullptr) {
    try {
        static_cast<void>(parse_bytes(bytes));
        return std::nullopt;
    } catch (const Error& error) {
        CHECK(std::string_view(error.what()).starts_with("test.gguf: "));
        if (message != nullptr) *message = error.what();
        return error.code();
    }
}

std::vector<std::byte> mutated(std::size_t at, std::initializer_list<int> values) {
    auto bytes = worked_example();
    for (const int value : values) bytes.at(at++) = static_cast<std::byte>(value);
    return bytes;
}

struct Mutation {
    std::size_t at;
    std::initializer_list<int> values;
    ErrorCode code;
};

}  // namespace

TEST_CASE("[L4][L5] gguf: the worked example is read as described") {
    const auto bytes = worked_example();
    const auto file = parse_bytes(bytes);
    CHECK(file->version() == 3);
    CHECK(file->alignment() == 32);
    CHECK(file->n_keys() == 3);
    CHECK(file->key(0) == "general.architecture");
    CHECK(file->find_string("general.architecture") == "llama");
    CHECK(file->find_u32("general.alignment") == 32u);
    const auto tokens = file->require_array("tokenizer.ggml.tokens", ValueType::string);
    REQUIRE(tokens.size() == 2);
    CHECK(tokens.string(0) == "<s>");
    CHECK(tokens.string(1) == "hi");

    REQUIRE(file->tensors().size() == 2);
    const TensorInfo& a = file->tensors()[0];
    CHECK(a.name == "a");
    CHECK(a.type == DType::f32);
    CHECK(a.n_dims == 1);
    CHECK(a.ne == std::array<std::int64_t, 4>{3, 1, 1, 1});
    CHECK(a.file_offset == 256);
    CHECK(a.bytes == 12);
    const TensorInfo& b = file->tensors()[1];
    CHECK(b.id == 1);
    CHECK(b.name == "b.weight");
    CHECK(b.role == "b");
    CHECK(b.type == DType::q8_0);
    CHECK(b.ne == std::array<std::int64_t, 4>{32, 2, 1, 1});
    CHECK(b.data_offset == 32);
    CHECK(b.file_offset == 288);
    CHECK(b.row_bytes == 34);
    CHECK(b.bytes == 68);

    file->load_data({});
    const auto* row1 = static_cast<const std::uint8_t*>(file->tensors()[1].address) + 34;
    CHECK(row1[1] == 0x38);
    CHECK(0.5 * static_cast<std::int8_t>(row1[2 + 5]) == 18.5);  // element (row 1, column 5)
}

TEST_CASE("gguf: every damaged form of the worked example is refused by its own code") {
    const Mutation mutations[] = {
        {0, {0x46, 0x55, 0x47, 0x47}, ErrorCode::not_gguf},
        {4, {0x04}, ErrorCode::unsupported_version},
        {4, {0x00}, ErrorCode::unsupported_version},
        {4, {0x01}, ErrorCode::bad_tensor_info},  // read as version 1: a first name of three NUL bytes, 5120 dimensions
        {4, {0, 0, 0, 3}, ErrorCode::wrong_endianness},
        {8, {255, 255, 255, 255, 255, 255, 255, 255}, ErrorCode::limit_exceeded},
        {0x10, {0, 0, 0, 0, 0, 0, 0, 0x80}, ErrorCode::limit_exceeded},
        {0x18, {255, 255, 255, 255, 255, 255, 255, 255}, ErrorCode::limit_exceeded},
        {0x18, {0}, ErrorCode::bad_metadata},
        {0x34, {0x0d}, ErrorCode::bad_metadata},
        {0x62, {0, 0, 0, 0}, ErrorCode::bad_alignment},
        {0x62, {3, 0, 0, 0}, ErrorCode::bad_alignment},
        {0x62, {4, 0, 0, 0}, ErrorCode::bad_alignment},
        {0x62, {0, 0, 0, 0x80}, ErrorCode::bad_alignment},
        {0x5e, {0x05}, ErrorCode::bad_metadata},
        {0x8b, {255, 255, 255, 255, 255, 255, 255, 0x0f}, ErrorCode::limit_exceeded},
        {0x8b, {255, 255, 0, 0, 0, 0, 0, 0}, ErrorCode::truncated},
        {0x62, {0x40}, ErrorCode::bad_offset},
        {0xb1, {5}, ErrorCode::bad_tensor_info},
        {0xb5, {0}, ErrorCode::bad_tensor_info},
        {0xb5, {255, 255, 255, 255, 255, 255, 255, 0x3f}, ErrorCode::size_overflow},
        {0xb5, {255, 255, 255, 255, 255, 255, 255, 0xff}, ErrorCode::bad_tensor_info},
        {0xbd, {0x04}, ErrorCode::unsupported_tensor_type},
        {0xbd, {0x1f}, ErrorCode::unsupported_tensor_type},
        {0xbd, {0x2b}, ErrorCode::unsupported_tensor_type},
        {0xbd, {255, 255, 255, 255}, ErrorCode::unsupported_tensor_type},
        {0xbd, {0x00, 0x10}, ErrorCode::unsupported_tensor_type},  // an internal type id is no file's business
        {0xbd, {0x08}, ErrorCode::bad_tensor_info},
        {0xc1, {0x01}, ErrorCode::bad_offset},
        {0xf1, {0x00}, ErrorCode::tensor_overlap},
        {0xf1, {0xe0, 255, 255, 255, 255, 255, 255, 255}, ErrorCode::tensor_out_of_file},
    };
    for (const Mutation& mutation : mutations) {
        CAPTURE(mutation.at);
        CHECK(refusal(mutated(mutation.at, mutation.values)) == mutation.code);
    }
    const auto nested = refusal(mutated(0x87, {0x09}));
    CHECK((nested == ErrorCode::truncated || nested == ErrorCode::limit_exceeded || nested == ErrorCode::bad_metadata));
}

TEST_CASE("gguf: a file cut at any length is refused unless only padding is missing") {
    const auto whole = worked_example();
    for (std::size_t length = 0; length <= whole.size(); ++length) {
        CAPTURE(length);
        const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
        const auto code = refusal(cut);
        CHECK(code.has_value() == (length < 356));
        if (length < 4) CHECK(code == ErrorCode::not_gguf);
        if (length >= 4 && length < 256) CHECK(code == ErrorCode::truncated);
        if (length >= 256 && length < 356) CHECK(code == ErrorCode::tensor_out_of_file);
    }
}

TEST_CASE("[L6] gguf: a repeated tensor name is refused by name") {
    GgufWriter writer;
    writer.tensor("blk.0.attn_q.weight", DType::f32, {1}, {1.0f}).tensor("other", DType::f32, {1}, {1.0f});
    writer.tensor("blk.0.attn_q.weight", DType::f32, {1}, {2.0f});
    std::string message;
    CHECK(refusal(writer.bytes(), &message) == ErrorCode::bad_tensor_info);
    CHECK(message.find("'blk.0.attn_q.weight'") != std::string::npos);
    CHECK(message.find("tensor 2 has the name of tensor 0") != std::string::npos);

    SUBCASE("even where a later entry is broken too") {
        writer.tensor("bad", static_cast<DType>(97), {1}, {1.0f});
        CHECK(refusal(writer.bytes()) == ErrorCode::bad_tensor_info);
    }
}

TEST_CASE("gguf: a repeated key, an empty tensor name and over-long names are refused") {
    std::string message;
    CHECK(refusal(GgufWriter().kv("a", 1).kv("b", 2).kv("a", 3).bytes(), &message) == ErrorCode::bad_metadata);
    CHECK(message.find("key 'a'") != std::string::npos);
    CHECK(refusal(GgufWriter().tensor("", DType::f32, {1}, {1.0f}).bytes()) == ErrorCode::bad_tensor_info);
    CHECK_FALSE(refusal(GgufWriter().tensor(std::string(64, 'n'), DType::f32, {1}, {1.0f}).bytes()).has_value());
    CHECK(refusal(GgufWriter().tensor(std::string(65, 'n'), DType::f32, {1}, {1.0f}).bytes()) ==
          ErrorCode::bad_tensor_info);
    CHECK_FALSE(refusal(GgufWriter().kv(std::string(65535, 'k'), 1).bytes()).has_value());
    CHECK(refusal(GgufWriter().kv(std::string(65536, 'k'), 1).bytes()) == ErrorCode::limit_exceeded);
}

TEST_CASE("gguf: names in messages cannot forge a terminal sequence") {
    std::string message;
    GgufWriter writer;
    writer.tensor("\x1b[2J\xff'x", static_cast<DType>(5), {1}, {1.0f});
    CHECK(refusal(writer.bytes(), &message) == ErrorCode::unsupported_tensor_type);
    CHECK(message.find("\\x1b[2J\\xff\\'x") != std::string::npos);
    CHECK(message.find("type id 5") != std::string::npos);
}

TEST_CASE("gguf: bools must be 0 or 1") {
    auto bytes = GgufWriter().kv("flag", true).bytes();
    CHECK_FALSE(refusal(bytes).has_value());
    bytes[24 + 8 + 4 + 4] = std::byte{2};
    CHECK(refusal(bytes) == ErrorCode::bad_metadata);
    bytes = GgufWriter().array("flags", std::vector<std::uint8_t>{0, 1, 7}).bytes();
    bytes[24 + 8 + 5 + 4] = std::byte{7};  // element type: bool
    CHECK(refusal(bytes) == ErrorCode::bad_metadata);
}

namespace {

/// An array of arrays, `depth` levels in all, the innermost holding one u32.
GgufValue nested(int depth) {
    if (depth == 1) return {GgufArray{4, {GgufValue{std::uint32_t{7}}}}};
    return {GgufArray{9, {nested(depth - 1)}}};
}

}  // namespace

TEST_CASE("gguf: arrays nest four deep and no deeper, whatever the depth asked for") {
    for (int depth = 1; depth <= 4; ++depth) {
        const auto bytes = GgufWriter().kv("deep", nested(depth)).bytes();
        const auto file = parse_bytes(bytes);
        ArrayView view = *file->find_array("deep");
        for (int level = 1; level < depth; ++level) view = view.array(0);
        CHECK(view.integer(0) == 7);
    }
    CHECK(refusal(GgufWriter().kv("deep", nested(5)).bytes()) == ErrorCode::bad_metadata);
    CHECK(refusal(GgufWriter().kv("deep", nested(400)).bytes()) == ErrorCode::bad_metadata);
}

TEST_CASE("gguf: counts larger than the file are refused before they size anything") {
    // An array of 2^27 empty strings would take a gigabyte of file; here it has none.
    GgufWriter writer;
    writer.kv("strings", GgufValue{GgufArray{8, {}}});
    auto bytes = writer.bytes();
    const std::uint64_t count = std::uint64_t{1} << 27;
    std::memcpy(bytes.data() + 24 + 8 + 7 + 4 + 4, &count, 8);
    CHECK(refusal(bytes) == ErrorCode::truncated);
    const std::uint64_t more = count + 1;
    std::memcpy(bytes.data() + 24 + 8 + 7 + 4 + 4, &more, 8);
    CHECK(refusal(bytes) == ErrorCode::limit_exceeded);
}

TEST_CASE("gguf: sizes whose product wraps are refused") {
    const auto refuse = [](DType type, std::vector<std::int64_t> ne) {
        return refusal(GgufWriter().tensor("t", type, std::move(ne), {1.0f}).bytes());
    };
    constexpr std::int64_t big = std::int64_t{1} << 32;
    CHECK(refuse(DType::f32, {big, big}) == ErrorCode::size_overflow);
    CHECK(refuse(DType::f32, {4, big, big, 1}) == ErrorCode::size_overflow);
    CHECK(refuse(DType::f64, {std::int64_t{1} << 60}) == ErrorCode::size_overflow);  // bytes = 2^63
    CHECK(refuse(DType::i8, {std::numeric_limits<std::int64_t>::max()}) == ErrorCode::tensor_out_of_file);
    CHECK(refuse(DType::q8_0, {32, (std::int64_t{1} << 58) - 1}) ==
          ErrorCode::size_overflow);  // the elements fit, their bytes do not
    CHECK(refuse(DType::f32, {2, -1}) == ErrorCode::bad_tensor_info);
}

TEST_CASE("gguf: sizes that fit one by one and wrap together are refused at the first that is not in the file") {
    GgufWriter writer;
    writer.tensor("small", DType::f32, {1}, {1.0f});
    for (const char* name : {"a", "b", "c", "d", "e"})  // five times 2^62 - 32 is 2^62 - 160
        writer.tensor(name, DType::i8, {(std::int64_t{1} << 62) - 32}, {1.0f});
    CHECK(refusal(writer.bytes()) == ErrorCode::tensor_out_of_file);
}

TEST_CASE("gguf: tensors may lie in any order and with gaps, and a scalar has no dimensions") {
    GgufWriter writer({.alignment = 128, .reverse_data = true, .gap = 300});
    writer.tensor("x", DType::f32, {2}, {1, 2})
        .tensor("scalar", DType::f32, {}, {5})
        .tensor("y", DType::f32, {3}, {6, 7, 8});
    const auto bytes = writer.bytes();
    const auto file = parse_bytes(bytes);
    CHECK(file->alignment() == 128);
    const auto offsets = writer.offsets();
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(file->tensors()[i].data_offset == offsets[i]);
        CHECK(file->tensors()[i].file_offset == writer.data_start() + offsets[i]);
    }
    CHECK(file->find_tensor("scalar")->n_dims == 0);
    CHECK(file->find_tensor("scalar")->bytes == 4);
    file->load_data({});
    CHECK(*static_cast<const float*>(file->find_tensor("scalar")->address) == 5);
}

TEST_CASE("gguf: a file without tensors may end right after its keys") {
    auto bytes = GgufWriter().kv("general.architecture", "llama").bytes();
    bytes.resize(24 + 8 + 20 + 4 + 8 + 5);
    const auto file = parse_bytes(bytes);
    CHECK(file->tensors().empty());
    CHECK(file->find_string("general.architecture") == "llama");
    file->load_data({});
    CHECK(file->data_loaded());
    CHECK(file->copied_bytes() == 0);
}

TEST_CASE("gguf: keys are found among many, and among keys of equal hash") {
    GgufWriter writer;
    for (int i = 0; i < 20000; ++i) writer.kv("k" + std::to_string(i), static_cast<std::uint8_t>(i));
    // Pairs with the same 32-bit FNV-1a hash.
    writer.kv("costarring", 1).kv("liquid", 2).kv("declinate", 3).kv("macallums", 4).kv("altarage", 5).kv("zinke", 6);
    const auto bytes = writer.bytes();
    const auto file = parse_bytes(bytes);
    CHECK(file->n_keys() == 20006);
    CHECK(file->find_u32("k19999") == (19999u & 255u));
    CHECK_FALSE(file->find_u32("k20000").has_value());
    CHECK(file->find_int("costarring") == 1);
    CHECK(file->find_int("liquid") == 2);
    CHECK(file->find_int("declinate") == 3);
    CHECK(file->find_int("macallums") == 4);
    CHECK(file->find_int("altarage") == 5);
    CHECK(file->find_int("zinke") == 6);
}

TEST_CASE("[L8] gguf: arrays inside arrays fit into a small stack, and have a limit") {
    const auto said = [](int n) {
        const auto bytes = GgufWriter().kv("deep", nested(n)).bytes();
        std::uint64_t n_keys = 0;
        const std::string refusal = test::refusal_on_small_stack([&] { n_keys = parse_bytes(bytes)->n_keys(); });
        CHECK(n_keys == (refusal.empty() ? 1 : 0));
        return refusal;
    };
    CHECK(said(4) == "");
    for (const int n : {5, 100, 2'000}) CHECK(said(n).find("arrays nested deeper than 4") != std::string::npos);
}

}  // namespace tinfer::gguf
