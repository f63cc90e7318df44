// SPDX-License-Identifier: MIT
// Formats: half floats, dequantization against published examples and golden vectors, and the quantizer of activations.
#include "kernels/quants/formats.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "base/dtype.hpp"
#include "base/half.hpp"
#include "kernels/dequantize/dequantize.hpp"
#include "kernels/quants/activation_q8.hpp"
#include "support/golden.hpp"
#include "support/random_blocks.hpp"
#include "support/weight_types.hpp"

using namespace tinfer;
using namespace tinfer::kernels;
using tinfer::test::Extremes;
using tinfer::test::kBlockTypes;

namespace {

/// Bytes from hex digits; blanks are ignored.
std::vector<std::byte> from_hex(std::string_view text) {
    std::vector<std::byte> bytes;
    std::string digits;
    for (const char c : text) {
        if (c == ' ') continue;
        digits += c;
        if (digits.size() < 2) continue;
        bytes.push_back(static_cast<std::byte>(std::stoi(digits, nullptr, 16)));
        digits.clear();
    }
    return bytes;
}

std::string repeated(std::string_view text, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += text;
    return out;
}

/// Floats written as eight hex digits each, most significant first.
std::vector<float> floats_from_hex(std::string_view text) {
    std::vector<float> values;
    for (std::size_t i = 0; i + 8 <= text.size(); i += 8) {
        const unsigned long bits = std::stoul(std::string(text.substr(i, 8)), nullptr, 16);
        values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    }
    return values;
}

std::uint32_t bits_of(float value) {  // one pattern for all NaNs
    return std::isnan(value) ? 0x7FC00000u : std::bit_cast<std::uint32_t>(value);
}

std::vector<float> dequantized(DType type, const std::vector<std::byte>& bytes) {
    const DTypeInfo* info = find_dtype(type);
    REQUIRE(info != nullptr);
    const auto n = static_cast<std::int64_t>(bytes.size()) / info->block_bytes * info->block_elems;
    std::vector<float> out(static_cast<std::size_t>(n));
    dequantize_row(type, bytes.data(), n, out.data());
    return out;
}

/// The quantized row that quantize_activation makes of x.
struct QuantizedRow {
    std::vector<std::byte> data;
    Activations parts;
    QuantizedRow(DType type, const std::vector<float>& x) {
        const auto k = static_cast<std::int64_t>(x.size());
        data.resize(static_cast<std::size_t>(activation_layout(type, k).row_bytes));
        quantize_activation<reference>(type, x.data(), k, data.data());
        parts = activation_parts<reference>(type, k, data.data());
    }
};

}  // namespace

TEST_CASE("quants: every f16 widens exactly and comes back") {
    for (std::uint32_t h = 0; h < 0x10000; ++h) {
        const int exponent = static_cast<int>(h >> 10 & 31), mantissa = static_cast<int>(h & 1023);
        const float wide = f16_to_f32(static_cast<std::uint16_t>(h));
        if (exponent == 31 && mantissa != 0) {
            REQUIRE(std::isnan(wide));
            REQUIRE(f32_to_f16(wide) == (0x7E00 | (h & 0x8000)));
            continue;
        }
        double expected = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
        if (exponent == 31) expected = std::numeric_limits<double>::infinity();
        REQUIRE(bits_of(wide) == bits_of(static_cast<float>((h & 0x8000) != 0 ? -expected : expected)));
        REQUIRE(f32_to_f16(wide) == h);
    }
}

TEST_CASE("quants: f32 to f16 and bf16 round to nearest, ties to even") {
    // Between neighbouring halves a < b the middle goes to the even one, everything else to the nearer one.
    for (std::uint32_t h = 0; h < 0x7C00; ++h) {
        const auto low = static_cast<std::uint16_t>(h), high = static_cast<std::uint16_t>(h + 1);
        const std::uint16_t even = (h & 1) != 0 ? high : low;
        const double a = f16_to_f32(low), b = h == 0x7BFF ? 65536.0 : f16_to_f32(high);
        const auto middle = static_cast<float>((a + b) / 2);
        REQUIRE(static_cast<double>(middle) == (a + b) / 2);
        REQUIRE(f32_to_f16(middle) == even);
        REQUIRE(f32_to_f16(std::nextafter(middle, 0.0f)) == low);
        REQUIRE(f32_to_f16(std::nextafter(middle, 1e9f)) == high);
        REQUIRE(f32_to_f16(-middle) == (even | 0x8000));
    }
    CHECK(f32_to_f16(std::bit_cast<float>(0x477FEFFFu)) == 0x7BFF);
    CHECK(f32_to_f16(std::bit_cast<float>(0x477FF000u)) == 0x7C00);
    CHECK(f32_to_f16(-std::numeric_limits<float>::infinity()) == 0xFC00);
    CHECK(f32_to_f16(0x1p-25f) == 0);
    CHECK(f32_to_f16(std::bit_cast<float>(0x00000001u)) == 0);

    for (std::uint32_t h = 0; h < 0x7F80; ++h) {
        const std::uint32_t middle = h << 16 | 0x8000u;
        REQUIRE(bits_of(bf16_to_f32(static_cast<std::uint16_t>(h))) == h << 16);
        REQUIRE(f32_to_bf16(std::bit_cast<float>(middle)) == h + (h & 1));
        REQUIRE(f32_to_bf16(std::bit_cast<float>(middle - 1)) == h);
        REQUIRE(f32_to_bf16(std::bit_cast<float>(middle + 1)) == h + 1);
    }
    CHECK(f32_to_bf16(std::bit_cast<float>(0xFF800001u)) == 0xFFC0);  // NaN stays NaN
}

TEST_CASE("quants: the list of formats is the list of weight types, with the sizes of the table") {
    int n_formats = 0;
    for (std::uint32_t id = 0; id < 64; ++id) {
        const DTypeInfo* info = find_dtype(id);
        const auto type = static_cast<DType>(id);
        const bool found = with_format<reference>(type, [&](auto format) {
            using Format = decltype(format);
            REQUIRE(info != nullptr);
            CHECK(Format::kBlockElems == info->block_elems);
            CHECK(Format::kBlockBytes == info->block_bytes);
            CHECK(info->activation == (Format::kUnit == 256 ? DType::x8_256 : DType::x8_32));
            ++n_formats;
        });
        CHECK_MESSAGE(found == (info != nullptr && is_activation(info->activation)), "type ", id);
        CHECK_MESSAGE(can_dequantize(type) == (info != nullptr), "type ", id);
    }
#define TINFER_ONE_FORMAT(type, Format) +1
    CHECK(n_formats == 0 TINFER_BLOCK_FORMATS(TINFER_ONE_FORMAT));  // none has an id from 64 on
#undef TINFER_ONE_FORMAT
    CHECK_FALSE(can_dequantize(DType::x8_32));
    CHECK_FALSE(can_dequantize(DType::none));
}

TEST_CASE("quants: codes and scales keep the ranges that products rely on") {
    for (const DType type : kBlockTypes)
        with_format<reference>(type, [&](auto format) {
            using Format = decltype(format);
            const std::int64_t n_blocks = 200;
            const auto data = test::random_weights(type, Format::kBlockElems, n_blocks, 7, Extremes::finite);
            const auto* block = reinterpret_cast<const std::uint8_t*>(data.data());
            int largest = 0;
            for (std::int64_t b = 0; b < n_blocks; ++b, block += Format::kBlockBytes)
                for (int unit = 0; unit < Format::kBlockElems / Format::kUnit; ++unit) {
                    std::conditional_t<Format::kUnit == 256, Codes256, Codes32> codes;
                    Format::template unpack<reference>(block, unit, codes);
                    for (const std::int8_t q : codes.q) largest = std::max(largest, std::abs(int{q}));
                    if constexpr (Format::kUnit == 256)
                        for (int j = 0; j < 16; ++j) {
                            REQUIRE(std::abs(codes.scale[j]) <= 128);
                            if (Format::kScaleElems >= 32) REQUIRE(codes.scale[j] == codes.scale[j & ~1]);
                            if (Format::kScaleElems == 256) REQUIRE(codes.scale[j] == 1);
                            if (Format::kHasMin) REQUIRE((codes.min[j] >= 0 && codes.min[j] <= 63));
                        }
                    else if (Format::kScaleElems == 32) REQUIRE(bits_of(codes.d[0]) == bits_of(codes.d[1]));
                }
            CHECK_MESSAGE(largest == Format::kMaxCode, to_string(type));
        });
}

TEST_CASE("quants: words of sixteen bits stand for the rows of codebooks") {
    // Places of values as quants/codebook.hpp tells them; every level is met.
    const auto check = [](const auto& grid, const auto& words, int n_values, const std::vector<int>& levels) {
        REQUIRE(std::size(grid) == std::size(words));
        const int bits = n_values == 4 ? 3 : 2;
        for (std::size_t row = 0; row < std::size(grid); ++row) {
            int rest = words[row];
            for (int j = 0; j < n_values; ++j) {
                const int at = 8 * (j % 2) + 16 / n_values * (j / 2), number = words[row] >> at & ((1 << bits) - 1);
                REQUIRE(number < static_cast<int>(levels.size()));
                CHECK(levels[static_cast<std::size_t>(number)] == static_cast<std::int8_t>(grid[row] >> 8 * j & 255u));
                rest &= ~(number << at);
            }
            CHECK(rest == 0);
        }
    };
    const std::vector<int> three{8, 25, 43};
    check(kIq2XxsGrid, kIq2XxsWords, 8, three);
    check(kIq2XsGrid, kIq2XsWords, 8, three);
    check(kIq2SGrid, kIq2SWords, 8, three);
    check(kIq3XxsGrid, kIq3XxsWords, 4, {4, 12, 20, 28, 36, 44, 52, 62});
    check(kIq3SGrid, kIq3SWords, 4, {1, 3, 5, 7, 9, 11, 13, 15});
    check(kIq1Grid, kIq1Words, 8, {-1, 0, 1});
}

TEST_CASE("quants: the worked examples of the formats") {
    struct Value {
        std::size_t index;
        float y;
    };
    struct Example {
        DType type;
        std::string bytes;
        std::vector<Value> values;
        double sum = std::nan("");
    };
    const std::string nibbles = "0f 1e 2d 3c 4b 5a 69 78 87 96 a5 b4 c3 d2 e1 f0", ramp = "10 32 54 76 98 ba dc fe";
    const std::string scales = "c1 82 43 04 45 86 c7 08 21 43 65 87";
    const std::vector<Example> examples{
        {DType::q4_0, "00 34" + nibbles, {{0, 1.75f}, {1, 1.5f}, {15, -2}, {16, -2}, {17, -1.75f}, {31, 1.75f}}, -4},
        {DType::q4_1, "00 28 00 bc" + nibbles, {{0, -0.53125f}, {1, -0.5625f}, {16, -1}, {31, -0.53125f}}},
        {DType::q5_0, "00 34 01 00 00 80" + nibbles, {{0, 3.75f}, {1, -0.5f}, {16, -4}, {31, 3.75f}}},
        {DType::q5_1, "00 28 00 bc 01 00 00 80" + nibbles, {{0, -0.03125f}, {1, -0.5625f}, {16, -1}, {31, -0.03125f}}},
        {DType::q8_0,
         "00 28 7f 80 01 ff" + repeated("00", 28),
         {{0, 3.96875f}, {1, -4}, {2, 0.03125f}, {3, -0.03125f}, {4, 0}}},
        {DType::iq4_nl, "00 24" + nibbles, {{0, 1.765625f}, {1, 1.390625f}, {16, -1.984375f}}},
        {DType::mxfp4, "7f" + nibbles, {{0, -6}, {1, -4}, {8, 6}, {16, 0}, {17, 0.5f}}},
        {DType::mxfp4,
         "00" + nibbles,
         {{17, std::bit_cast<float>(0x00200000u)}, {0, std::bit_cast<float>(0x81400000u)}}},
        {DType::nvfp4,
         "38 40 48 30" + repeated("10 32 54 76", 8),
         {{0, 0}, {1, 1}, {2, 2}, {3, 4}, {8, 0.5f}, {9, 1.5f}, {24, 1}},
         270},
        {DType::q1_0, "00 3c 01 80" + repeated("00", 13) + "ff", {{0, 1}, {1, -1}, {15, 1}, {120, 1}, {127, 1}}},
        {DType::q2_0, "00 3c" + repeated("e4", 16), {{0, -1}, {1, 0}, {2, 1}, {3, 2}}, 32},
        {DType::tq1_0,
         repeated("ff", 32) + repeated("80", 16) + "aa 55 00 12 00 3c",
         {{0, 1}, {32, 1}, {128, 1}, {160, 0}, {176, 0}, {240, 0}, {241, -1}, {244, 1}, {248, 1}, {252, 1}, {255, 1}},
         160},
        {DType::tq2_0, repeated("18", 64) + "00 3c", {{0, -1}, {32, 1}, {64, 0}, {96, -1}}},
        {DType::q2_k,
         "1e 2d 3c 4b 5a 69 78 87 96 a5 b4 c3 d2 e1 f0 0f" + repeated("e4 1b", 32) + "00 34 00 30",
         {{0, -0.125f}, {1, 10.375f}, {16, -0.25f}, {17, 9.5f}, {32, 2.625f}, {64, 4.375f}, {128, -1.125f}},
         480},
        {DType::q3_k,
         repeated("f0 0f", 16) + repeated("e4 1b", 32) + "10 32 54 76 98 ba dc fe 1b e4 55 aa 00 34",
         {{0, -16}, {1, 12}, {16, 30}, {32, 9}, {64, -4}, {96, 1}, {128, -0.0f}, {255, -15}},
         16},
        {DType::q4_k,
         "00 38 00 34" + scales + repeated(ramp, 16),
         {{0, -1.25f}, {31, 5.75f}, {32, -0.5f}, {63, 13.5f}, {128, -4.5f}, {160, 8.5f}, {192, -13.5f}, {255, 50.5f}},
         13296},
        {DType::q5_k,
         "00 38 00 34" + scales + repeated("80 01", 16) + repeated(ramp, 16),
         {{0, -1.25f}, {1, 7.75f}, {32, -0.5f}, {33, 1.5f}, {255, 50.5f}},
         14320},
        {DType::q6_k,
         repeated(ramp, 16) + repeated("e4 1b", 32) + "01 ff 02 fe 03 fd 04 fc 05 fb 06 fa 07 f9 7f 80 00 34",
         {{0, -8}, {1, 4.5f}, {16, 8}, {32, -8}, {33, 1}, {64, 0.75f}, {96, 17}, {128, -40}, {255, 544}}},
        {DType::iq4_xs,
         "00 28 e4 1b 10 32 54 76" + repeated(ramp, 16),
         {{0, 127}, {1, 83}, {16, 104}, {31, -113}, {32, 59.53125f}, {64, -7.9375f}, {255, -88.28125f}}},
    };
    for (const Example& example : examples) {
        CAPTURE(to_string(example.type));
        const auto bytes = from_hex(example.bytes);
        REQUIRE(bytes.size() == static_cast<std::size_t>(find_dtype(example.type)->block_bytes));
        const auto y = dequantized(example.type, bytes);
        for (const Value& value : example.values) {
            CAPTURE(value.index);
            CHECK(bits_of(y[value.index]) == bits_of(value.y));
        }
        double sum = 0;
        for (const float value : y) sum += value;
        if (!std::isnan(example.sum)) CHECK(sum == example.sum);
    }
}

TEST_CASE("[golden] quants: every block of the golden files dequantizes bit for bit") {
    if (skip_without_golden()) return;
    std::size_t n_files = 0, n_blocks = 0;
    for (const auto& path : golden_entries("quants")) {
        if (path.extension() != ".json") continue;
        const auto json = nlohmann::json::parse(std::ifstream(path));
        const auto type = static_cast<DType>(json.at("type_id").get<std::uint32_t>());
        CAPTURE(to_string(type));
        ++n_files;
        for (const auto& block : json.at("dequant")) {
            CAPTURE(block.at("name").get<std::string>());
            const auto y = dequantized(type, from_hex(block.at("bytes").get<std::string>()));
            const auto expected = floats_from_hex(block.at("f32").get<std::string>());
            REQUIRE(y.size() == expected.size());
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < y.size(); ++i) wrong += bits_of(y[i]) != bits_of(expected[i]);
            CHECK(wrong == 0);
            ++n_blocks;
        }
    }
    expect_cases(n_files, 30, "types");
    expect_cases(n_blocks, 570, "blocks");
}

TEST_CASE("[golden] quants: f16 and bf16 round as the golden files say") {
    if (skip_without_golden()) return;
    for (const char* name : {"F16", "BF16"}) {
        const auto file = golden_file("quants/" + std::string(name) + ".json");
        if (!file) continue;
        const auto json = nlohmann::json::parse(std::ifstream(*file));
        for (const auto& entry : json.at("quant")) {
            const auto x = floats_from_hex(entry.at("f32").get<std::string>());
            const auto bytes = from_hex(entry.at("bytes").get<std::string>());
            REQUIRE(bytes.size() == 2 * x.size());
            for (std::size_t i = 0; i < x.size(); ++i) {
                const int low = std::to_integer<int>(bytes[2 * i]), high = std::to_integer<int>(bytes[2 * i + 1]);
                const auto expected = static_cast<std::uint16_t>(low | high << 8);
                const bool f16 = name[0] == 'F';
                const std::uint16_t got = f16 ? f32_to_f16(x[i]) : f32_to_bf16(x[i]);
                if (f16 && std::isnan(x[i])) CHECK(std::isnan(f16_to_f32(got)));
                else CHECK(got == expected);
            }
        }
    }
}

TEST_CASE("quants: rows need no alignment and blocks do not depend on their place in the row") {
    for (const DType type : kBlockTypes) {
        const DTypeInfo& info = *find_dtype(type);
        const std::int64_t k = 3 * info.block_elems;
        const auto row = test::random_weights(type, k, 1, 11, Extremes::finite);
        std::vector<float> whole(static_cast<std::size_t>(k)), moved(whole);
        std::vector<float> block(static_cast<std::size_t>(info.block_elems));
        dequantize_row(type, row.data(), k, whole.data());
        std::vector<std::byte> shifted(row.size() + 1);
        std::memcpy(shifted.data() + 1, row.data(), row.size());
        dequantize_row(type, shifted.data() + 1, k, moved.data());
        CHECK_MESSAGE(std::memcmp(whole.data(), moved.data(), whole.size() * 4) == 0, to_string(type));
        dequantize_row(type, row.data() + info.block_bytes, info.block_elems, block.data());
        const float* second = whole.data() + info.block_elems;
        CHECK_MESSAGE(std::memcmp(second, block.data(), block.size() * 4) == 0, to_string(type));
    }
}

namespace {

/// The sums of 32 codes and the two bounds of super-block b, counted from its codes.
void check_max_partial_sum(const Activations& parts, std::size_t b) {
    int largest_side = 0, largest_magnitude = 0;
    for (std::size_t j = 0; j < 16; ++j) {
        int positive[2] = {0, 0}, negative[2] = {0, 0}, magnitude = 0;  // of 16 codes from j on, and of the next 16
        for (std::size_t i = 0; i < 32; ++i) {
            const int q = parts.q[256 * b + 16 * (j & ~std::size_t{1}) + i];
            if (q > 0) positive[i / 16] += q;
            else negative[i / 16] -= q;
        }
        for (std::size_t i = 0; i < 16; ++i) magnitude += std::abs(parts.q[256 * b + 16 * j + i]);
        largest_magnitude = std::max(largest_magnitude, magnitude);
        largest_side = std::max({largest_side, positive[0] + positive[1], negative[0] + negative[1]});
        REQUIRE(parts.sum32[8 * b + j / 2] == positive[0] + positive[1] - negative[0] - negative[1]);
    }
    REQUIRE(parts.max_partial_sum[2 * b] == largest_side);
    REQUIRE(parts.max_partial_sum[2 * b + 1] == largest_magnitude);
}

}  // namespace

TEST_CASE("quants: activations are quantized by amax/127, half to even") {
    for (const DType type : {DType::x8_32, DType::x8_256}) {
        const int n = type == DType::x8_32 ? 32 : 256;
        const auto x = test::random_floats(8 * 256, 3, Extremes::finite);
        const QuantizedRow row(type, x);
        for (std::size_t first = 0, b = 0; first < x.size(); first += static_cast<std::size_t>(n), ++b) {
            float amax = 0;
            for (int i = 0; i < n; ++i) amax = std::max(amax, std::fabs(x[first + i]));
            const float d = amax / 127.0f, inverse = d >= std::numeric_limits<float>::min() ? 1.0f / d : 0.0f;
            REQUIRE(row.parts.d[b] == d);
            for (int i = 0; i < n; ++i) REQUIRE(row.parts.q[first + i] == std::nearbyint(x[first + i] * inverse));
            for (int j = 0; j < n; j += type == DType::x8_32 ? 32 : 16) {
                int sum = 0;
                for (int i = j; i < j + (type == DType::x8_32 ? 32 : 16); ++i) sum += row.parts.q[first + i];
                if (type == DType::x8_256) {
                    REQUIRE(row.parts.sum16[(first + j) / 16] == sum);
                    continue;
                }
                REQUIRE(row.parts.sum[b] == sum);
                REQUIRE(bits_of(row.parts.s[b]) == bits_of(d * static_cast<float>(sum)));
            }
            if (type == DType::x8_256) check_max_partial_sum(row.parts, b);
        }
    }
}

TEST_CASE("quants: ties, zeros, subnormals and values that are not finite in activations") {
    for (const DType type : {DType::x8_32, DType::x8_256}) {
        const std::size_t n = type == DType::x8_32 ? 32 : 256;
        std::vector<float> x(n, 0.0f);
        x[0] = 127.0f;  // d = 1: the codes are the values
        x[1] = 0.5f, x[2] = 1.5f, x[3] = -2.5f, x[4] = -3.5f, x[5] = 126.5f, x[6] = -127.0f;
        QuantizedRow row(type, x);
        const std::int8_t expected[] = {127, 0, 2, -2, -4, 126, -127, 0};
        CHECK(std::memcmp(row.parts.q, expected, sizeof expected) == 0);

        row = QuantizedRow(type, std::vector<float>(n, -0.0f));
        CHECK(bits_of(row.parts.d[0]) == 0);
        CHECK(row.parts.q[n - 1] == 0);

        row = QuantizedRow(type, std::vector<float>(n, std::numeric_limits<float>::min()));  // d is subnormal
        CHECK(row.parts.d[0] == std::numeric_limits<float>::min() / 127.0f);
        CHECK(row.parts.q[0] == 0);

        row = QuantizedRow(type, std::vector<float>(n, 128 * std::numeric_limits<float>::min()));  // d is just normal
        CHECK(row.parts.q[0] == 127);
        row = QuantizedRow(type, std::vector<float>(n, -std::numeric_limits<float>::max()));
        CHECK(row.parts.q[0] == -127);

        constexpr float kInfinite = std::numeric_limits<float>::infinity();
        for (const float bad : {kInfinite, -kInfinite, std::nanf("")}) {
            std::vector<float> two(2 * n, 3.0f);
            two[n - 1] = bad;
            row = QuantizedRow(type, two);
            CHECK(std::isnan(row.parts.d[0]));
            CHECK(row.parts.d[1] == 3.0f / 127.0f);
            for (std::size_t i = 0; i < n; ++i) REQUIRE((row.parts.q[i] == 0 && row.parts.q[n + i] == 127));
            if (type == DType::x8_32) CHECK(std::isnan(row.parts.s[0]));
            else CHECK(row.parts.sum16[0] == 0);
        }
    }
}
