// SPDX-License-Identifier: MIT
#include "tinfer/tensor.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "quantize/encoders.hpp"
#include "support/code_of.hpp"
#include "support/golden.hpp"
#include "tinfer/json.hpp"

namespace tinfer::quantize {
namespace {

using test::code_of;

constexpr DType kTypes[] = {DType::q4_0,    DType::q4_1,   DType::q5_0,  DType::q5_1,    DType::q8_0,
                            DType::q2_k,    DType::q3_k,   DType::q4_k,  DType::q5_k,    DType::q6_k,
                            DType::iq4_nl,  DType::iq4_xs, DType::mxfp4, DType::nvfp4,   DType::q1_0,
                            DType::q2_0,    DType::tq1_0,  DType::tq2_0, DType::iq1_s,   DType::iq1_m,
                            DType::iq2_xxs, DType::iq2_xs, DType::iq2_s, DType::iq3_xxs, DType::iq3_s};

std::vector<std::byte> from_hex(std::string_view text) {
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2)
        bytes.push_back(static_cast<std::byte>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
    return bytes;
}

std::vector<float> floats_of(std::string_view text) {
    std::vector<float> values;
    for (std::size_t i = 0; i + 7 < text.size(); i += 8)
        values.push_back(
            std::bit_cast<float>(static_cast<std::uint32_t>(std::stoul(std::string(text.substr(i, 8)), nullptr, 16))));
    return values;
}

std::vector<std::byte> encoded(DType type, std::span<const float> row, const QuantizeOptions& options = {}) {
    std::vector<std::byte> bytes(quantized_bytes(type, static_cast<std::int64_t>(row.size())));
    quantize_rows(type, row, static_cast<std::int64_t>(row.size()), bytes, options);
    return bytes;
}

/// By the encoder alone: golden blocks hold scales that overflow, which quantize_rows refuses.
std::vector<std::byte> encoded_blocks(DType type, std::span<const float> row, BlockContext context) {
    const DTypeInfo& info = *find_dtype(type);
    const auto block = static_cast<std::size_t>(info.block_elems);
    std::vector<std::byte> bytes(row.size() / block * static_cast<std::size_t>(info.block_bytes));
    if (context.importance != nullptr) {
        float sum = 0;
        for (const float x : row) sum += x * x;
        context.row_mean_square = sum / static_cast<float>(row.size());
    }
    for (std::size_t b = 0; b < row.size() / block; ++b) {
        encoder_of(type)(row.data() + b * block, context,
                         bytes.data() + b * static_cast<std::size_t>(info.block_bytes));
        if (context.importance != nullptr) context.importance += block;
    }
    return bytes;
}

/// √ of the mean of w · (y − x)²; w is 1 where there is none.
double rmse(DType type, std::span<const float> x, std::span<const std::byte> bytes, std::span<const float> w = {}) {
    std::vector<float> y(x.size());
    dequantize_rows(type, bytes, static_cast<std::int64_t>(x.size()), y);
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double off = double{y[i]} - double{x[i]};
        sum += (w.empty() ? 1.0 : double{w[i]}) * off * off;
    }
    return std::sqrt(sum / static_cast<double>(x.size()));
}

std::vector<float> normal_values(std::size_t n, unsigned seed) {
    std::mt19937 generator(seed);
    std::vector<float> values(n);
    for (float& value : values) {  // twelve uniform numbers: the same on every platform
        double sum = -6;
        for (int k = 0; k < 12; ++k) sum += static_cast<double>(generator()) / 4294967296.0;
        value = static_cast<float>(sum);
    }
    return values;
}

std::string text_of(const Json& entry, const char* name) {
    const Json* value = entry.find(name);
    return value == nullptr ? std::string() : std::string(value->string());
}

}  // namespace

TEST_CASE("[Q1][golden] quantize: blocks are those of the golden files, byte for byte") {
    if (skip_without_golden()) return;
    std::size_t n_blocks = 0;
    for (const DType type : kTypes) {
        std::string name(to_string(type));
        std::ranges::transform(name, name.begin(), [](char c) { return static_cast<char>(std::toupper(c)); });
        const auto path = golden_file("quants/" + name + ".json");
        if (!path) continue;
        std::ifstream stream(*path);
        const Json file = Json::parse(std::string{std::istreambuf_iterator<char>(stream), {}});
        CAPTURE(name);
        for (const char* list : {"quant", "quant_search", "quant_imatrix"}) {
            const Json* entries = file.find(list);
            if (entries == nullptr) continue;
            CAPTURE(list);
            for (const Json& entry : *entries) {
                CAPTURE(text_of(entry, "name"));
                const auto x = floats_of(text_of(entry, "f32")), w = floats_of(text_of(entry, "weights"));
                const auto expected = from_hex(text_of(entry, "bytes"));
                const bool is_quick = type == DType::iq4_nl && list == std::string_view("quant");
                const auto search = is_quick ? QuantizeSearch::quick : QuantizeSearch::standard;
                const auto got =
                    encoded_blocks(type, x, {.importance = w.empty() ? nullptr : w.data(), .search = search});
                const bool is_same = got == expected || got == from_hex(text_of(entry, "bytes_fma"));
                CHECK(is_same);
                ++n_blocks;
            }
        }
    }
    expect_cases(n_blocks, 400, "blocks");
}

TEST_CASE("[Q1] quantize: the errors on normal values are those of the table in docs/tools.md") {
    struct Row {
        DType type;
        double rmse;
    };
    constexpr Row rows[] = {{DType::q4_0, 0.0856},  {DType::q4_1, 0.0778},   {DType::q5_0, 0.0426},
                            {DType::q5_1, 0.0378},  {DType::q8_0, 0.00533},  {DType::q2_k, 0.2953},
                            {DType::q3_k, 0.1495},  {DType::q4_k, 0.0709},   {DType::q5_k, 0.0360},
                            {DType::q6_k, 0.0177},  {DType::iq4_nl, 0.0759}, {DType::iq4_xs, 0.0764},
                            {DType::mxfp4, 0.1143}, {DType::nvfp4, 0.0954}};
    const auto x = normal_values(32768, 5);
    for (const Row& row : rows) {
        CAPTURE(to_string(row.type));
        const double standard = rmse(row.type, x, encoded(row.type, x));
        CHECK(standard == doctest::Approx(row.rmse).epsilon(0.03));  // other samples of the same distribution
        const double thorough = rmse(row.type, x, encoded(row.type, x, {.search = QuantizeSearch::thorough}));
        CHECK(thorough <= standard * 1.0001);
    }
}

TEST_CASE("[Q1] quantize: codebooks are nearer than other types of as many bits, and keep what they are given") {
    const auto x = normal_values(4096, 5);
    const auto error_of = [&](DType type) { return rmse(type, x, encoded(type, x)); };
    struct Row {
        DType type;
        double rmse;
    };
    constexpr Row rows[] = {{DType::iq1_s, 0.453},  {DType::iq1_m, 0.422}, {DType::iq2_xxs, 0.334},
                            {DType::iq2_xs, 0.288}, {DType::iq2_s, 0.239}, {DType::iq3_xxs, 0.181},
                            {DType::iq3_s, 0.131}};
    for (const Row& row : rows) {
        CAPTURE(to_string(row.type));
        CHECK(error_of(row.type) == doctest::Approx(row.rmse).epsilon(0.04));
        // What a block can say is said again with an error of a few thousandths, that of its half float.
        std::vector<float> once(x.size()), twice(x.size());
        dequantize_rows(row.type, encoded(row.type, x), static_cast<std::int64_t>(x.size()), once);
        CHECK(rmse(row.type, once, encoded(row.type, once)) < 0.1 * row.rmse);
        std::vector<float> huge(256, 9e18f);
        huge[3] = -9e18f;
        CHECK(code_of([&] { static_cast<void>(encoded(row.type, huge)); }) == ErrorCode::bad_tensor_data);
    }
    CHECK(error_of(DType::iq2_s) < 0.9 * error_of(DType::q2_k));
    CHECK(error_of(DType::iq3_s) < 0.95 * error_of(DType::q3_k));
}

TEST_CASE("[Q1] quantize: importance moves the error to the columns that do not matter") {
    auto x = normal_values(4096, 7);
    std::vector<float> w(x.size());
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = i % 8 == 0 ? 10.0f : 0.1f;
    for (const DType type : kTypes) {
        CAPTURE(to_string(type));
        const auto plain = encoded(type, x), weighted = encoded(type, x, {.importance = w});
        if (!uses_importance(type)) CHECK(plain == weighted);
        else CHECK(rmse(type, x, weighted, w) < rmse(type, x, plain, w));
    }
}

TEST_CASE("[Q1] quantize: a row does not depend on its neighbours, nor a block without importance on its row") {
    const auto x = normal_values(4 * 512, 11);
    for (const DType type : kTypes) {
        CAPTURE(to_string(type));
        const auto row_bytes = quantized_bytes(type, 512);
        std::vector<std::byte> all(4 * row_bytes), one(row_bytes);
        quantize_rows(type, x, 512, all);
        for (std::size_t r = 0; r < 4; ++r) {
            const auto row = std::span(x).subspan(512 * r, 512);
            quantize_rows(type, row, 512, one);
            CHECK(std::ranges::equal(one, std::span(all).subspan(r * row_bytes, row_bytes)));
            CHECK(encoded(type, row.first(256)) ==
                  std::vector(one.begin(), one.begin() + static_cast<std::ptrdiff_t>(row_bytes / 2)));
        }
    }
}

TEST_CASE("[Q1] quantize: every type has the same bytes on every machine, whatever vectors its searches have") {
    std::mt19937 random(7);
    const auto uniform = [&] { return static_cast<float>(random() >> 8) / 16777216.0f; };
    std::vector<float> rows(4 * 1024), importance(1024);
    for (float& x : rows) {
        const float a = uniform(), b = uniform(), c = uniform();
        x = (a + b + c - 1.5f) * 0.1f;
    }
    for (float& x : importance) x = uniform() + 0.01f;
    std::uint64_t hash = 1469598103934665603u;  // FNV-1a
    for (const bool weighted : {false, true})
        for (const QuantizeSearch search : {QuantizeSearch::standard, QuantizeSearch::thorough})
            for (const DType type : kTypes) {
                std::vector<std::byte> out(4 * quantized_bytes(type, 1024));
                const std::span<const float> weights(importance.data(), weighted ? importance.size() : 0);
                quantize_rows(type, rows, 1024, out, {.importance = weights, .search = search});
                for (const std::byte b : out) hash = (hash ^ static_cast<std::uint64_t>(b)) * 1099511628211u;
            }
    CHECK(hash == 7467282017925874691u);  // of x86-64 and, in an emulator, of aarch64
}

TEST_CASE("[Q1] quantize: zeros, tiny and huge values give blocks that can be read, without NaN") {
    for (const DType type : kTypes)
        for (const QuantizeSearch search : {QuantizeSearch::standard, QuantizeSearch::thorough})
            for (const float value : {0.0f, -0.0f, 1e-38f, 1e-45f, 3e-16f, 1e4f, -2e4f}) {
                CAPTURE(to_string(type));
                CAPTURE(value);
                std::vector<float> x(256, value), y(256), w(256, 0.0f);
                x[17] = 0;
                for (const std::span<const float> importance : {std::span<const float>(), std::span<const float>(w)}) {
                    const auto bytes = encoded(type, x, {.importance = importance, .search = search});
                    dequantize_rows(type, bytes, 256, y);
                    CHECK(std::ranges::all_of(y, [](float v) { return std::isfinite(v); }));
                    if (std::fabs(value) < 1e-30f)
                        CHECK(std::ranges::all_of(y, [](float v) { return std::fabs(v) < 1e-6f; }));
                }
            }
}

TEST_CASE("[Q1] quantize: what cannot be written is refused with row and column") {
    std::vector<float> x(512, 1.0f);
    std::vector<std::byte> out(2 * 144);
    const auto run = [&](DType type, std::int64_t n = 256, const QuantizeOptions& options = {}) {
        return code_of([&] { quantize_rows(type, x, n, out, options); });
    };
    CHECK(run(DType::f64) == ErrorCode::unsupported_tensor_type);
    CHECK(run(DType::i32) == ErrorCode::unsupported_tensor_type);
    CHECK(run(DType::x8_32) == ErrorCode::unsupported_tensor_type);
    std::ranges::fill(x, 1e7f);
    out.resize(512 / 32 * 18);
    CHECK(run(DType::q4_0) == ErrorCode::bad_tensor_data);
    std::ranges::fill(x, 1.0f);
    out.resize(2 * 144);
    CHECK(run(DType::q4_k, 100) == ErrorCode::bad_tensor_info);
    CHECK(run(DType::q4_k, 0) == ErrorCode::bad_tensor_info);
    CHECK(run(DType::q5_k) == ErrorCode::bad_parameter);  // 2 × 176 bytes
    const std::vector<float> few(255, 1.0f), negative(256, -1.0f);
    CHECK(run(DType::q4_k, 256, {.importance = few}) == ErrorCode::bad_parameter);
    CHECK(run(DType::q4_k, 256, {.importance = negative}) == ErrorCode::bad_parameter);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e20f}) {
        x[256 + 7] = bad;
        try {
            quantize_rows(DType::q4_k, x, 256, out);
            FAIL("it was quantized");
        } catch (const Error& error) {
            CHECK(error.code() == ErrorCode::non_finite);
            CHECK(std::string_view(error.what()).starts_with("row 1, column 7 is "));
        }
    }
}

}  // namespace tinfer::quantize
