// SPDX-License-Identifier: MIT
// The reference products against a double-precision evaluation and the golden dot products; lookup, activations,
// experts.
#include "kernels/reference/ops.hpp"

#include <array>
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
#include "kernels/quants/formats.hpp"
#include "op_support.hpp"
#include "support/golden.hpp"
#include "support/random_blocks.hpp"
#include "support/weight_types.hpp"

using namespace tinfer;
using namespace tinfer::kernels;
using tinfer::test::Extremes;
using tinfer::test::kInf;
using tinfer::test::kNaN;
using tinfer::test::kWeightTypes;
using tinfer::test::random_activations;
using tinfer::test::random_floats;
using tinfer::test::random_weights;

namespace {

constexpr double kU = 0x1p-24;  // unit roundoff of float32

DType partner(DType weights) { return find_dtype(weights)->activation; }

/// Bytes with the shape and strides that make them an operand; `gap` bytes lie between rows.
struct Array {
    std::vector<std::byte> bytes;
    Operand operand;

    Array(DType type, std::array<std::int64_t, 3> ne, std::int64_t gap = 0) {
        operand.type = type;
        operand.ne = {ne[0], ne[1], ne[2], 1};
        operand.nb[1] = row_bytes(type, ne[0]) + gap;
        operand.nb[2] = operand.nb[1] * ne[1];
        operand.nb[3] = operand.nb[2] * ne[2];
        bytes.assign(static_cast<std::size_t>(operand.nb[3]), std::byte{0xA5});
        bind();
    }
    Array(DType type, std::array<std::int64_t, 3> ne, std::vector<std::byte> data) : Array(type, ne) {
        REQUIRE(data.size() == bytes.size());
        bytes = std::move(data);
        bind();
    }
    template <class T>
    Array(DType type, std::array<std::int64_t, 3> ne, const std::vector<T>& data) : Array(type, ne) {
        REQUIRE(data.size() * sizeof(T) == bytes.size());
        std::memcpy(bytes.data(), data.data(), bytes.size());
    }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;

    [[nodiscard]] float at(std::int64_t i, std::int64_t row, std::int64_t slice = 0) const {
        return operand.row<const float>(row, slice)[i];
    }
    void bind() { operand.data = bytes.data(), operand.bytes = bytes.size(); }
};

void run_arrays(RunFn& kernel, std::initializer_list<const Array*> arrays, int n_threads = 1) {
    KernelCall call;
    std::size_t slot = 0;
    for (const Array* array : arrays) call.operands[slot++] = array->operand;
    call.n_threads = n_threads;
    for (int thread = n_threads - 1; thread >= 0; --thread) kernel(call, {thread, n_threads, nullptr});
}

bool same_bits(float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

/// Weights as the product sees them, their magnitude Σ-wise (|d·scale·q| + |dmin·min|), and how many float steps add
/// them up.
struct WideRow {
    std::vector<float> y;
    std::vector<double> magnitude;
    double steps = 0;
};

WideRow widen_weights(DType type, const std::byte* row, std::int64_t k) {
    WideRow wide{std::vector<float>(static_cast<std::size_t>(k)), std::vector<double>(static_cast<std::size_t>(k))};
    dequantize_row(type, row, k, wide.y.data());
    const bool quantized = with_format<reference>(type, [&](auto format) {
        using Format = decltype(format);
        constexpr int kUnits = Format::kBlockElems / Format::kUnit;
        for (std::int64_t u = 0; u < k / Format::kUnit; ++u) {
            std::conditional_t<Format::kUnit == 256, Codes256, Codes32> codes;
            const auto* block = reinterpret_cast<const std::uint8_t*>(row) + u / kUnits * Format::kBlockBytes;
            Format::template unpack<reference>(block, static_cast<int>(u % kUnits), codes);
            for (int e = 0; e < Format::kUnit; ++e) {
                double& magnitude = wide.magnitude[static_cast<std::size_t>(u * Format::kUnit + e)];
                if constexpr (Format::kUnit == 256) {
                    magnitude = std::fabs(double{codes.d} * codes.scale[e / 16] * codes.q[e]);
                    if (Format::kHasMin) magnitude += std::fabs(double{codes.dmin} * codes.min[e / 16]);
                } else {
                    magnitude = std::fabs(double{codes.d[e / 16]} * codes.q[e]);
                    if (Format::kHasMin) magnitude += std::fabs(double{codes.m});
                }
            }
            wide.steps += Format::kHasMin || (Format::kUnit == 32 && Format::kScaleElems == 16) ? 2 : 1;
        }
    });
    if (!quantized) {
        for (std::size_t i = 0; i < wide.y.size(); ++i) wide.magnitude[i] = std::fabs(double{wide.y[i]});
        wide.steps = static_cast<double>((k + 15) / 16) + 4;  // fmas of a lane, then the tree
    }
    return wide;
}

std::vector<double> widen_activations(DType type, const std::byte* row, std::int64_t k) {
    std::vector<double> x(static_cast<std::size_t>(k));
    if (type == DType::f32) {
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = reinterpret_cast<const float*>(row)[i];
        return x;
    }
    const Activations parts = activation_parts<reference>(type, k, const_cast<std::byte*>(row));
    const std::size_t n = type == DType::x8_32 ? 32 : 256;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = double{parts.d[i / n]} * parts.q[i];
    return x;
}

/// ⟨w, x⟩ in double, and how far a float product may be from it. Each of the `steps` additions of one accumulator
/// rounds once, relative to a partial sum that is never above A = Σ magnitude·|x|. A term itself is rounded at most
/// three times (p or n or s_x; the integer's conversion; the fused product, counted among the steps) and the weights of
/// formats with a minimum once when they are dequantized: (steps + 4)·u·A, and 1 % for products of such factors.
/// Results among the subnormals are further off by at most half their spacing per operation.
struct Exact {
    double value = 0, bound = 0;
};

Exact exact_product(const WideRow& w, const std::vector<double>& x) {
    Exact exact;
    double a = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        exact.value += double{w.y[i]} * x[i];
        a += w.magnitude[i] * std::fabs(x[i]);
    }
    // p = d·d_x may be subnormal and then off by 2^-150 before it meets S < 2^27.
    exact.bound = 1.01 * (w.steps + 4) * kU * a + w.steps * 0x1p-150 * 0x1p27;
    return exact;
}

std::vector<std::byte> random_inputs(DType weights, std::int64_t k, std::int64_t rows, std::uint64_t seed,
                                     Extremes extremes) {
    if (partner(weights) != DType::f32) return random_activations(partner(weights), k, rows, seed, extremes);
    const auto x = random_floats(k * rows, seed, extremes);
    std::vector<std::byte> bytes(x.size() * 4);
    std::memcpy(bytes.data(), x.data(), bytes.size());
    return bytes;
}

/// Compares every element with the double product; returns how many were finite and compared.
int check_product(DType type, std::array<std::int64_t, 3> knt, std::uint64_t seed, Extremes weights, Extremes inputs) {
    const std::int64_t k = knt[0], n = knt[1], t = knt[2];
    const Array w(type, {k, n, 1}, random_weights(type, k, n, seed, weights));
    const Array x(partner(type), {k, t, 1}, random_inputs(type, k, t, seed + 1, inputs));
    const Array out(DType::f32, {n, t, 1});
    run_arrays(ref::mul_mat, {&out, &w, &x});
    int compared = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        const WideRow wide = widen_weights(type, w.operand.row<std::byte>(i), k);
        for (std::int64_t j = 0; j < t; ++j) {
            const Exact exact = exact_product(wide, widen_activations(partner(type), x.operand.row<std::byte>(j), k));
            if (!(exact.bound < 1e30)) continue;  // overflow and what is not finite: tested by itself
            INFO("row ", i, ", token ", j);
            CHECK(std::fabs(out.at(i, j) - exact.value) <= exact.bound);
            ++compared;
        }
    }
    return compared;
}

}  // namespace

TEST_CASE("[K1] mul_mat: every weight type agrees with double precision within its rounding bound") {
    for (const DType type : kWeightTypes) {
        CAPTURE(to_string(type));
        const std::int64_t block = is_float(type) ? 1 : find_dtype(type)->block_elems;
        std::vector<std::int64_t> lengths{block, 2 * block, 5 * block};
        if (is_float(type)) lengths = {1, 15, 16, 17, 250};
        for (const std::int64_t k : lengths)
            for (const std::int64_t t : {1, 2, 17}) {
                CAPTURE(k);
                const auto seed = static_cast<std::uint64_t>(k + t);
                CHECK(check_product(type, {k, 5, t}, seed, Extremes::none, Extremes::none) == 5 * t);
            }
        // Not both extreme: d·d_x must not overflow, or a sum of zero times infinity would be a NaN, rightly.
        CHECK(check_product(type, {4 * block, 40, 8}, 99, Extremes::finite, Extremes::none) > 100);
        CHECK(check_product(type, {4 * block, 40, 8}, 98, Extremes::none, Extremes::finite) > 100);
    }
}

TEST_CASE("[golden] mul_mat: the golden dot products") {
    if (skip_without_golden()) return;
    int n_dots = 0;
    const auto bytes_at = [](const nlohmann::json& hex) {
        const auto text = hex.get<std::string>();
        std::vector<std::uint8_t> bytes;
        for (std::size_t i = 0; i < text.size(); i += 2)
            bytes.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
        return bytes;
    };
    for (const DType type : kWeightTypes) {
        if (is_float(type)) continue;
        std::string name{to_string(type)};
        for (char& c : name) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
        const auto file = golden_file("quants/" + name + ".json");
        if (!file) continue;
        const auto json = nlohmann::json::parse(std::ifstream(*file));
        const auto a_type = json.at("dot_activation_type").get<std::string>();
        for (const auto& dot : json.at("dot")) {
            CAPTURE(name);
            const auto k = dot.at("n").get<std::int64_t>();
            const double expected = std::stod(dot.at("expected").get<std::string>());
            const auto sum_abs = dot.at("sum_abs").get<double>();
            const auto weights = bytes_at(dot.at("w")), a = bytes_at(dot.at("a"));

            // Our activation row from their blocks: the codes and the scale as given.
            const Array x(partner(type), {k, 1, 1}), out(DType::f32, {1, 1, 1});
            const Activations parts = activation_parts<reference>(partner(type), k, x.operand.data);
            const bool q8_k = a_type == "Q8_K", q8_1 = a_type == "Q8_1";
            REQUIRE(q8_k == (partner(type) == DType::x8_256));
            const std::int64_t elems = q8_k ? 256 : 32, head = q8_k || q8_1 ? 4 : 2, stride = q8_k ? 292 : head + 32;
            REQUIRE(static_cast<std::int64_t>(a.size()) == k / elems * stride);
            for (std::int64_t b = 0; b < k / elems; ++b) {
                const std::uint8_t* block = a.data() + b * stride;
                std::memcpy(parts.q + b * elems, block + head, static_cast<std::size_t>(elems));
                parts.d[b] = q8_k ? std::bit_cast<float>(load_u32<reference>(block)) : load_f16<reference>(block);
                sum_block<reference>(partner(type), parts, b);
                if (q8_1) parts.s[b] = load_f16<reference>(block + 2);
            }
            std::vector<std::byte> row(weights.size());
            std::memcpy(row.data(), weights.data(), row.size());
            const Array w(type, {k, 1, 1}, std::move(row));
            run_arrays(ref::mul_mat, {&out, &w, &x});
            CHECK(std::fabs(out.at(0, 0) - expected) <= 1e-5 * sum_abs);
            ++n_dots;
        }
    }
    MESSAGE(n_dots << " dot products");
}

TEST_CASE("mul_mat: codes of -128 in q8_0 and the largest super-block sums are exact") {
    const std::int64_t k = 64;
    std::vector<std::byte> data(68, std::byte{0x80});
    for (std::size_t b = 0; b < 2; ++b) data[34 * b] = std::byte{0}, data[34 * b + 1] = std::byte{0x3C};  // d = 1
    const Array w(DType::q8_0, {k, 1, 1}, std::move(data)), out(DType::f32, {1, 1, 1});
    const Array x(DType::x8_32, {k, 1, 1});
    const std::vector<float> minus(static_cast<std::size_t>(k), -127.0f);
    quantize_activation<reference>(DType::x8_32, minus.data(), k, x.operand.data);
    run_arrays(ref::mul_mat, {&out, &w, &x});
    CHECK(out.at(0, 0) == 64.0f * 128 * 127);

    std::vector<std::byte> six(210, std::byte{0});  // q6_k: every code −32, every scale −128, d = 1
    std::fill(six.begin() + 192, six.begin() + 208, std::byte{0x80});
    six[209] = std::byte{0x3C};
    const Array w6(DType::q6_k, {256, 1, 1}, std::move(six)), x6(DType::x8_256, {256, 1, 1});
    const std::vector<float> plus(256, 127.0f);
    quantize_activation<reference>(DType::x8_256, plus.data(), 256, x6.operand.data);
    run_arrays(ref::mul_mat, {&out, &w6, &x6});
    CHECK(out.at(0, 0) == 256.0f * 32 * 128 * 127);
}

TEST_CASE("mul_mat: float products keep 16 lanes and their tree") {
    // 2^24 + 1 − 2^24 is 0 in one chain and 1 where the ones wait in another lane.
    std::vector<float> w(32, 0.0f), x(32, 1.0f);
    w[0] = 0x1p24f, w[16] = -0x1p24f, w[1] = 1.0f, w[17] = 1.0f;
    const Array weights(DType::f32, {32, 1, 1}, w), input(DType::f32, {32, 1, 1}, x), out(DType::f32, {1, 1, 1});
    run_arrays(ref::mul_mat, {&out, &weights, &input});
    CHECK(out.at(0, 0) == 2.0f);
    // Lanes 0 and 8 meet first: 2^24 − 2^24, then the 1 of lane 4 survives; with 4 first it would be lost.
    w.assign(32, 0.0f);
    w[0] = 0x1p24f, w[8] = -0x1p24f, w[4] = 1.0f;
    const Array tree(DType::f32, {32, 1, 1}, w);
    run_arrays(ref::mul_mat, {&out, &tree, &input});
    CHECK(out.at(0, 0) == 1.0f);
}

TEST_CASE("mul_mat: a value that is not finite stays in its row and its token") {
    for (const DType type : kWeightTypes) {
        CAPTURE(to_string(type));
        const std::int64_t k = is_float(type) ? 40 : 2 * find_dtype(type)->block_elems, n = 24, t = 3;
        const Array good(type, {k, n, 1}, random_weights(type, k, n, 5, Extremes::none));
        const Array bad(type, {k, n, 1}, random_weights(type, k, n, 5, Extremes::none));
        const auto* block = find_dtype(type);
        std::vector<float> x = random_floats(k * t, 6, Extremes::none);
        // Row 7: a whole block of 0xFF has NaN scales or values in most types, of 0x7C an infinity or a large number in
        // others.
        std::memset(bad.operand.row<std::byte>(7), 0xFF, static_cast<std::size_t>(block->block_bytes));
        const auto product = [&](const Array& w, const std::vector<float>& values, const Array& out) {
            const Array input(partner(type), {k, t, 1});
            for (std::int64_t j = 0; j < t; ++j) {
                const float* from = values.data() + j * k;
                std::byte* to = input.operand.row<std::byte>(j);
                if (partner(type) == DType::f32) std::memcpy(to, from, static_cast<std::size_t>(k) * 4);
                else quantize_activation<reference>(partner(type), from, k, to);
            }
            run_arrays(ref::mul_mat, {&out, &w, &input});
        };
        const Array expected(DType::f32, {n, t, 1}), out(DType::f32, {n, t, 1});
        product(good, x, expected);
        product(bad, x, out);
        const bool always_finite = type == DType::mxfp4 || type == DType::nvfp4;  // their scales cannot be NaN
        for (std::int64_t j = 0; j < t; ++j)
            for (std::int64_t i = 0; i < n; ++i)
                if (i != 7) CHECK(same_bits(out.at(i, j), expected.at(i, j)));
                else CHECK((always_finite || std::isnan(out.at(i, j))));
        for (const float value : {kNaN, kInf}) {
            x[static_cast<std::size_t>(k + 3)] = value;  // token 1
            product(good, x, out);
            for (std::int64_t i = 0; i < n; ++i) {
                CHECK(same_bits(out.at(i, 0), expected.at(i, 0)));
                CHECK_FALSE(std::isfinite(out.at(i, 1)));
                CHECK(same_bits(out.at(i, 2), expected.at(i, 2)));
            }
        }
    }
}

TEST_CASE("mul_mat: neither threads nor batch cuts nor strides change a bit") {
    for (const DType type : kWeightTypes) {
        CAPTURE(to_string(type));
        const std::int64_t k = is_float(type) ? 100 : 2 * find_dtype(type)->block_elems, n = 13, t = 21;
        const Array w(type, {k, n, 1}, random_weights(type, k, n, 21, Extremes::non_finite));
        const Array x(partner(type), {k, t, 1}, random_inputs(type, k, t, 22, Extremes::non_finite));
        const Array expected(DType::f32, {n, t, 1});
        run_arrays(ref::mul_mat, {&expected, &w, &x});
        for (const int threads : {2, 3, 5, 16}) {
            const Array out(DType::f32, {n, t, 1});
            run_arrays(ref::mul_mat, {&out, &w, &x}, threads);
            CHECK(out.bytes == expected.bytes);
        }
        const Array wide_x(partner(type), {k, t, 1}, 128), wide(DType::f32, {n, t, 1}, 12);
        const auto x_bytes = static_cast<std::size_t>(row_bytes(partner(type), k));
        for (std::int64_t j = 0; j < t; ++j)
            std::memcpy(wide_x.operand.row<std::byte>(j), x.operand.row<std::byte>(j), x_bytes);
        run_arrays(ref::mul_mat, {&wide, &w, &wide_x});
        for (std::int64_t j = 0; j < t; ++j) {
            Array one(DType::f32, {n, 1, 1});
            Array token(partner(type), {k, 1, 1});
            std::memcpy(token.bytes.data(), x.operand.row<std::byte>(j), token.bytes.size());
            run_arrays(ref::mul_mat, {&one, &w, &token});
            const auto size = static_cast<std::size_t>(n) * 4;
            CHECK(std::memcmp(one.bytes.data(), expected.operand.row<std::byte>(j), size) == 0);
            CHECK(std::memcmp(wide.operand.row<std::byte>(j), expected.operand.row<std::byte>(j), size) == 0);
            for (std::size_t gap = size; gap < size + 12; ++gap)
                REQUIRE(wide.operand.row<std::byte>(j)[gap] == std::byte{0xA5});
        }
    }
}

TEST_CASE("mul_mat_add: the product plus a bias or a residual, one addition") {
    const std::int64_t k = 256, n = 6, t = 18;
    const Array w(DType::q4_k, {k, n, 1}, random_weights(DType::q4_k, k, n, 1, Extremes::none));
    const Array x(DType::x8_256, {k, t, 1}, random_activations(DType::x8_256, k, t, 2, Extremes::none));
    const Array plain(DType::f32, {n, t, 1}), out(DType::f32, {n, t, 1});
    run_arrays(ref::mul_mat, {&plain, &w, &x});
    const Array bias(DType::f32, {n, 1, 1}, random_floats(n, 3, Extremes::none));
    const Array residual(DType::f32, {n, t, 1}, random_floats(n * t, 4, Extremes::none));
    run_arrays(ref::mul_mat_add, {&out, &w, &x, &bias}, 2);
    for (std::int64_t j = 0; j < t; ++j)
        for (std::int64_t i = 0; i < n; ++i) CHECK(same_bits(out.at(i, j), plain.at(i, j) + bias.at(i, 0)));
    run_arrays(ref::mul_mat_add, {&out, &w, &x, &residual}, 2);
    for (std::int64_t j = 0; j < t; ++j)
        for (std::int64_t i = 0; i < n; ++i) CHECK(same_bits(out.at(i, j), plain.at(i, j) + residual.at(i, j)));
}

TEST_CASE("mul_mat_id: each row is the product with the expert chosen for it") {
    const std::int64_t n = 5, n_experts = 4, used = 3, t = 19;
    for (const DType type : {DType::q4_0, DType::q6_k, DType::mxfp4, DType::f16}) {
        CAPTURE(to_string(type));
        const std::int64_t k = 256;
        const Array w(type, {k, n, n_experts}, random_weights(type, k, n * n_experts, 31, Extremes::none));
        std::vector<std::int32_t> chosen;
        test::Random random(8);
        for (std::int64_t i = 0; i < used * t; ++i)
            chosen.push_back(static_cast<std::int32_t>(random.below(3)) + (i % 7 == 0 ? 1 : 0));
        const Array ids(DType::i32, {used, t, 1}, chosen);
        for (const std::int64_t rows : {std::int64_t{1}, used}) {  // one input row per token, or one per chosen expert
            const Array x(partner(type), {k, rows, t}, random_inputs(type, k, rows * t, 32, Extremes::none));
            const Array out(DType::f32, {n, used, t});
            run_arrays(ref::mul_mat_id, {&out, &w, &x, &ids}, 2);
            for (std::int64_t j = 0; j < t; ++j)
                for (std::int64_t i = 0; i < used; ++i) {
                    Array expert(type, {k, n, 1}), input(partner(type), {k, 1, 1});
                    const std::int32_t id = chosen[static_cast<std::size_t>(j * used + i)];
                    std::memcpy(expert.bytes.data(), w.operand.row<std::byte>(0, id), expert.bytes.size());
                    std::memcpy(input.bytes.data(), x.operand.row<std::byte>(rows == 1 ? 0 : i, j), input.bytes.size());
                    const Array expected(DType::f32, {n, 1, 1});
                    run_arrays(ref::mul_mat, {&expected, &expert, &input});
                    const std::byte* got = out.operand.row<std::byte>(i, j);
                    CHECK(std::memcmp(got, expected.bytes.data(), expected.bytes.size()) == 0);
                }
        }
    }
}

TEST_CASE("mul_mat_heads: each row is the product with the matrix of its head") {
    const std::int64_t k = 256, n = 5, n_heads = 3, t = 4;
    for (const DType type : {DType::q4_0, DType::q6_k, DType::f16}) {
        CAPTURE(to_string(type));
        const Array w(type, {k, n, n_heads}, random_weights(type, k, n * n_heads, 41, Extremes::none));
        const Array x(partner(type), {k, n_heads, t}, random_inputs(type, k, n_heads * t, 42, Extremes::none));
        const Array out(DType::f32, {n, n_heads, t});
        run_arrays(ref::mul_mat_id, {&out, &w, &x}, 2);
        for (std::int64_t j = 0; j < t; ++j)
            for (std::int64_t h = 0; h < n_heads; ++h) {
                Array matrix(type, {k, n, 1}), input(partner(type), {k, 1, 1});
                std::memcpy(matrix.bytes.data(), w.operand.row<std::byte>(0, h), matrix.bytes.size());
                std::memcpy(input.bytes.data(), x.operand.row<std::byte>(h, j), input.bytes.size());
                const Array expected(DType::f32, {n, 1, 1});
                run_arrays(ref::mul_mat, {&expected, &matrix, &input});
                CHECK(std::memcmp(out.operand.row<std::byte>(h, j), expected.bytes.data(), expected.bytes.size()) == 0);
            }
    }
}

TEST_CASE("quantize: rows of any stride, cut by blocks over any number of threads") {
    for (const DType type : {DType::x8_32, DType::x8_256}) {
        const std::int64_t k = 1024, rows = 3, slices = 2;
        const Array x(DType::f32, {k, rows, slices}, 64);
        const auto values = random_floats(k * rows * slices, 77, Extremes::non_finite);
        for (std::int64_t r = 0; r < rows * slices; ++r)
            std::memcpy(x.operand.flat_row<float>(r), values.data() + r * k, static_cast<std::size_t>(k) * 4);
        const Array expected(type, {k, rows, slices});
        for (std::int64_t r = 0; r < rows * slices; ++r)
            quantize_activation<reference>(type, values.data() + r * k, k, expected.operand.flat_row<std::byte>(r));
        for (const int threads : {1, 2, 3, 7}) {
            const Array out(type, {k, rows, slices});
            run_arrays(ref::quantize, {&out, &x}, threads);
            CHECK(out.bytes == expected.bytes);
        }
    }
}

TEST_CASE("[A6][K6] get_rows: a row of each type equals its dequantization") {
    for (const DType type : kWeightTypes) {
        const std::int64_t k = is_float(type) ? 37 : 2 * find_dtype(type)->block_elems, n = 9;
        const Array matrix(type, {k, n, 1}, random_weights(type, k, n, 55, Extremes::non_finite));
        const std::vector<std::int32_t> wanted{8, 0, 3, 3, 7};
        const auto t = static_cast<std::int64_t>(wanted.size());
        const Array ids(DType::i32, {t, 1, 1}, wanted), out(DType::f32, {k, t, 1});
        run_arrays(ref::get_rows, {&out, &matrix, &ids}, 2);
        std::vector<float> row(static_cast<std::size_t>(k));
        for (std::int64_t j = 0; j < t; ++j) {
            dequantize_row(type, matrix.operand.row<std::byte>(wanted[static_cast<std::size_t>(j)]), k, row.data());
            CHECK_MESSAGE(std::memcmp(row.data(), out.operand.row<std::byte>(j), row.size() * 4) == 0, to_string(type));
        }
    }
    const Array table(DType::i32, {2, 3, 1}, std::vector<std::int32_t>{1, 2, 3, 16777217, 5, 6});
    const Array ids(DType::i32, {1, 1, 1}, std::vector<std::int32_t>{1});
    const Array raw(DType::i32, {2, 1, 1}), wide(DType::f32, {2, 1, 1});
    run_arrays(ref::get_rows, {&raw, &table, &ids});
    CHECK(raw.operand.row<std::int32_t>(0)[1] == 16777217);
    run_arrays(ref::get_rows, {&wide, &table, &ids});
    CHECK(wide.at(0, 0) == 3.0f);
}
