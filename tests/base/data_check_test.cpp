// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/data_check.hpp"
#include "base/dtype.hpp"
#include "support/random_blocks.hpp"

namespace tinfer {
namespace {

struct Field {
    DType type;
    std::size_t offset;
    std::uint64_t bad, good;
    std::size_t width;
};

}  // namespace

TEST_CASE("[L18] base: the data check finds a bad value in every field that must be finite, and names its block") {
    // Bad: NaN or Inf patterns; good: the largest finite number of the field, every other bit set.
    std::vector<Field> fields{
        {DType::f32, 0, 0x7f800000, 0x7f7fffff, 4},
        {DType::f32, 0, 0xffc00001, 0xff7fffff, 4},
        {DType::f64, 0, 0x7ff0000000000000, 0x7fefffffffffffff, 8},
        {DType::bf16, 0, 0x7f80, 0x7f7f, 2},
        {DType::f16, 0, 0xfc00, 0xfbff, 2},
        {DType::q8_k, 0, 0x7fc00000, 0x7f7fffff, 4},
        {DType::mxfp4, 0, 255, 254, 1},
    };
    const auto halves = [&](DType type, std::size_t offset) {
        fields.push_back({type, offset, 0x7c00, 0x7bff, 2});
        fields.push_back({type, offset, 0xfe01, 0xfbff, 2});
    };
    halves(DType::q8_1, 0);
    std::size_t n_formats = 0;
    for (std::uint32_t id = 0; id < 256; ++id) {
        const DTypeInfo* info = find_dtype(id);
        if (info == nullptr || !is_activation(info->activation)) continue;
        const auto [d, min] = test::scale_offsets(info->type);
        if (d >= 0) halves(info->type, static_cast<std::size_t>(d));
        if (min >= 0) halves(info->type, static_cast<std::size_t>(min));
        n_formats += d >= 0 ? 1 : 0;
    }
    CHECK(n_formats >= 22);

    for (const Field& field : fields) {
        CAPTURE(std::string(to_string(field.type)));
        CAPTURE(field.offset);
        const auto block = static_cast<std::size_t>(find_dtype(field.type)->block_bytes);
        std::vector<std::byte> bytes(block * 9);
        for (std::size_t i = 0; i < 9; ++i)
            std::memcpy(bytes.data() + i * block + field.offset, &field.good, field.width);
        CHECK_FALSE(first_bad_block(field.type, bytes).has_value());
        std::memcpy(bytes.data() + 7 * block + field.offset, &field.bad, field.width);
        CHECK(first_bad_block(field.type, bytes) == 7u);
        std::memcpy(bytes.data() + 2 * block + field.offset, &field.bad, field.width);
        CHECK(first_bad_block(field.type, bytes) == 2u);
    }
}

TEST_CASE("base: iq1_m is judged by the scale assembled from four nibbles") {
    std::vector<std::byte> bytes(56 * 3, std::byte{0x0f});  // low nibbles belong to other fields
    for (std::size_t i = 0; i < bytes.size(); i += 56)
        for (std::size_t k = 48; k < 56; ++k) bytes[i + k] = std::byte{0x0f};
    CHECK_FALSE(first_bad_block(DType::iq1_m, bytes).has_value());
    bytes[56 + 53] = std::byte{0xcf};  // third nibble c: 0x0c00
    bytes[56 + 55] = std::byte{0x7f};  // fourth nibble 7: 0x7c00 together
    CHECK(first_bad_block(DType::iq1_m, bytes) == 1u);
    bytes[56 + 53] = std::byte{0x8f};  // 0x7800: finite
    CHECK_FALSE(first_bad_block(DType::iq1_m, bytes).has_value());
}

TEST_CASE("base: what has no scale is never bad") {
    const std::vector<std::byte> ones(36 * 8, std::byte{0xff});
    for (const DType type : {DType::i8, DType::i16, DType::i32, DType::i64, DType::nvfp4})
        CHECK_FALSE(first_bad_block(type, ones).has_value());
    CHECK_FALSE(first_bad_block(DType::f32, {}).has_value());
    // s of q8_1 is not looked at.
    std::vector<std::byte> q8_1(36);
    q8_1[3] = std::byte{0x7e};
    CHECK_FALSE(first_bad_block(DType::q8_1, q8_1).has_value());
}

}  // namespace tinfer
