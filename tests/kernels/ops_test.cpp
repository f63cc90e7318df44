// SPDX-License-Identifier: MIT
// The reference kernels apart from products and attention, against formulas in double or long double, for strided
// operands and any number of threads.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/half.hpp"
#include "base/math.hpp"
#include "kernels/attention/kv_layout.hpp"
#include "kernels/quants/activation_q8.hpp"
#include "kernels/quants/format.hpp"
#include "op_support.hpp"

namespace kernels = tinfer::kernels;
using kernels::reference_table;
using tinfer::DType;
using tinfer::Op;
using tinfer::OpParams;
using tinfer::RopeParams;
using namespace tinfer::test;

TEST_CASE("[A7][K5] rms_norm: within 1e-6 of double for any width, rows strided or not, any thread count") {
    OpRandom random(1);
    for (const std::int64_t n : {1, 15, 16, 17, 64, 100, 4096}) {
        const Shape ne{n, 3, 2, 1};
        const std::vector<float> x = random.floats(count(ne), 3.0f),
                                 w = random.floats(static_cast<std::size_t>(n), 2.0f);
        OpParams params;
        params.eps = 1e-5f;
        const std::vector<float> y = packed(Op::rms_norm, ne, {f32(x, ne), f32(w, {n, 1, 1, 1})}, params);
        for (std::int64_t r = 0; r < 6; ++r) {
            double squares = 0.0;
            for (std::int64_t i = 0; i < n; ++i)
                squares += std::pow(static_cast<double>(x[static_cast<std::size_t>(r * n + i)]), 2);
            const double factor = 1.0 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(params.eps));
            for (std::int64_t i = 0; i < n; ++i) {
                const auto at = static_cast<std::size_t>(r * n + i);
                const double exact =
                    static_cast<double>(x[at]) * factor * static_cast<double>(w[static_cast<std::size_t>(i)]);
                CHECK(std::fabs(static_cast<double>(y[at]) - exact) <= 1e-6 * std::fabs(exact));
            }
        }
        const Strided spread(x, ne, 5);
        CHECK(same_bits(y, packed(Op::rms_norm, ne, {spread.x, f32(w, {n, 1, 1, 1})}, params)));
        for (const int threads : {2, 3, 5})
            CHECK(same_bits(y, packed(Op::rms_norm, ne, {f32(x, ne), f32(w, {n, 1, 1, 1})}, params, threads)));
    }
}

TEST_CASE("layer_norm: within 2e-6 of double, with and without weight and bias, shared or per head") {
    OpRandom random(21);
    for (const std::int64_t n : {1, 15, 16, 17, 100, 4096})
        for (const std::int64_t heads : {1, 3}) {
            const Shape ne{n, 3, 2, 1};
            std::vector<float> x = random.floats(count(ne), 3.0f);
            for (float& value : x) value += 2.0f;  // a mean that counts
            const std::vector<float> w = random.floats(static_cast<std::size_t>(n * heads), 2.0f),
                                     b = random.floats(static_cast<std::size_t>(n));
            OpParams params;
            params.eps = 1e-5f;
            for (const bool affine : {false, true}) {
                std::vector<kernels::Operand> inputs{f32(x, ne)};
                if (affine) inputs.insert(inputs.end(), {f32(w, {n, heads, 1, 1}), f32(b, {n, 1, 1, 1})});
                const std::vector<float> y = packed(Op::layer_norm, ne, inputs, params, 2);
                for (std::int64_t r = 0; r < 6; ++r) {
                    const float* row = x.data() + r * n;
                    double mean = 0.0, variance = 0.0;
                    for (std::int64_t i = 0; i < n; ++i) mean += static_cast<double>(row[i]) / static_cast<double>(n);
                    for (std::int64_t i = 0; i < n; ++i)
                        variance += std::pow(static_cast<double>(row[i]) - mean, 2) / static_cast<double>(n);
                    for (std::int64_t i = 0; i < n; ++i) {
                        double exact = (static_cast<double>(row[i]) - mean) /
                                       std::sqrt(variance + static_cast<double>(params.eps));
                        if (affine)
                            exact = exact * static_cast<double>(
                                                w[static_cast<std::size_t>((heads == 1 ? 0 : r % 3) * n + i)]) +
                                    static_cast<double>(b[static_cast<std::size_t>(i)]);
                        // c = x − mean loses up to |mean|·ε, which the factor ≤ 1/sqrt(var + eps) enlarges
                        const double bound = 2e-6 * (1.0 + std::abs(exact)) + (n == 1 ? 1e-4 : 0.0);
                        CHECK(std::abs(static_cast<double>(y[static_cast<std::size_t>(r * n + i)]) - exact) <= bound);
                    }
                }
            }
        }
}

TEST_CASE("rms_norm: a NaN stays in its row") {
    std::vector<float> x(40, 1.0f);
    x[7] = kNaN;
    const std::vector<float> w(20, 1.0f);
    const std::vector<float> y = packed(Op::rms_norm, {20, 2, 1, 1}, {f32(x, {20, 2, 1, 1}), f32(w, {20, 1, 1, 1})});
    CHECK(std::all_of(y.begin(), y.begin() + 20, [](float v) { return std::isnan(v); }));
    CHECK(std::all_of(y.begin() + 20, y.end(), [](float v) { return v == 1.0f; }));
}

TEST_CASE("fused norms and gates: rms_norm_quantize and silu_mul_quantize give the bits of their parts") {
    OpRandom random(2);
    const Shape ne{512, 3, 1, 1};
    const std::vector<float> x = random.floats(count(ne), 4.0f), u = random.floats(count(ne)), w = random.floats(512);
    OpParams params;
    params.eps = 1e-6f;
    const std::vector<float> norm = packed(Op::rms_norm, ne, {f32(x, ne), f32(w, {512, 1, 1, 1})}, params);
    const std::vector<float> gated = packed(Op::silu_mul, ne, {f32(x, ne), f32(u, ne)});
    CHECK(same_bits(
        gated, packed(Op::mul, ne, {operand(DType::f32, packed(Op::silu, ne, {f32(x, ne)}).data(), ne), f32(u, ne)})));
    for (const DType type : {DType::x8_32, DType::x8_256}) {
        const auto bytes = static_cast<std::size_t>(tinfer::row_bytes(type, 512));
        std::vector<std::byte> expected(3 * bytes), fused(3 * bytes);
        std::vector<float> also(count(ne));
        const auto quantized = [&](const std::vector<float>& rows) {
            for (std::size_t r = 0; r < 3; ++r)
                kernels::quantize_activation<kernels::reference>(type, rows.data() + r * 512, 512,
                                                                 expected.data() + r * bytes);
        };
        for (const int threads : {1, 2}) {
            quantized(norm);
            auto call = call_of({operand(type, fused.data(), ne), f32(x, ne), f32(w, {512, 1, 1, 1})}, params);
            run(reference_table, Op::rms_norm_quantize, type, call, threads);
            CHECK(fused == expected);
            call.operands[3] = f32(also, ne);
            run(reference_table, Op::rms_norm_quantize, type, call, threads);
            CHECK(fused == expected);
            CHECK(same_bits(also, norm));
            quantized(gated);
            call = call_of({operand(type, fused.data(), ne), f32(x, ne), f32(u, ne)});
            run(reference_table, Op::silu_mul_quantize, type, call, threads);
            CHECK(fused == expected);
        }
    }
}

TEST_CASE("[K4] elementwise: add, mul, scale, silu, sigmoid, copy equal their formulas for packed and strided inputs") {
    OpRandom random(3);
    for (const Shape& ne : {Shape{1, 1, 1, 1}, Shape{33, 5, 1, 1}, Shape{17, 3, 2, 2}}) {
        const std::vector<float> a = random.floats(count(ne), 20.0f), b = random.floats(count(ne), 20.0f);
        const Strided sa(a, ne, 3), sb(b, ne, 9);
        OpParams params;
        params.scale = 0.37f;
        const auto check = [&](Op op, auto formula, bool binary) {
            std::vector<float> expected(a.size());
            for (std::size_t i = 0; i < a.size(); ++i) expected[i] = formula(a[i], b[i]);
            for (const int threads : {1, 3}) {
                CHECK(same_bits(expected, binary ? packed(op, ne, {f32(a, ne), f32(b, ne)}, params, threads)
                                                 : packed(op, ne, {f32(a, ne)}, params, threads)));
                CHECK(same_bits(expected, binary ? packed(op, ne, {sa.x, sb.x}, params, threads)
                                                 : packed(op, ne, {sa.x}, params, threads)));
            }
        };
        check(
            Op::add, [](float x, float y) { return x + y; }, true);
        check(
            Op::mul, [](float x, float y) { return x * y; }, true);
        check(
            Op::scale, [](float x, float) { return x * 0.37f; }, false);
        check(
            Op::silu, [](float x, float) { return x / (1.0f + tinfer::math::exp(-x)); }, false);
        params.low = -3.0f;
        params.high = 7.5f;
        check(
            Op::div, [](float x, float y) { return x / y; }, true);
        check(
            Op::relu, [](float x, float) { return std::max(x, 0.0f); }, false);
        check(
            Op::tanh, [](float x, float) { return tinfer::math::tanh(x); }, false);
        check(
            Op::gelu, [](float x, float) { return tinfer::math::gelu(x); }, false);
        check(
            Op::clamp, [](float x, float) { return std::clamp(x, -3.0f, 7.5f); }, false);
        check(
            Op::sigmoid, [](float x, float) { return 1.0f / (1.0f + tinfer::math::exp(-x)); }, false);
        check(
            Op::copy, [](float x, float) { return x; }, false);
        check(
            Op::silu_mul, [](float x, float y) { return x / (1.0f + tinfer::math::exp(-x)) * y; }, true);
    }
}

TEST_CASE(
    "[K4] elementwise: the second operand repeats along every dimension where it is 1, and results may be strided") {
    OpRandom random(4);
    const Shape ne{7, 3, 2, 1};
    const std::vector<float> a = random.floats(count(ne));
    for (const Shape& nb :
         {Shape{7, 1, 1, 1}, Shape{1, 3, 2, 1}, Shape{1, 1, 1, 1}, Shape{7, 1, 2, 1}, Shape{7, 3, 1, 1}}) {
        const std::vector<float> b = random.floats(count(nb));
        const std::vector<float> y = packed(Op::mul, ne, {f32(a, ne), f32(b, nb)});
        Strided spread(std::vector<float>(count(ne)), ne, 2);
        auto call = call_of({spread.x, f32(a, ne), f32(b, nb)});
        run(reference_table, Op::mul, DType::none, call, 2);
        for (std::size_t i = 0; i < a.size(); ++i) {
            const std::size_t i0 = i % 7, i1 = i / 7 % 3, i2 = i / 21;
            const auto part = [&](std::size_t index, std::size_t d) { return nb[d] == 1 ? 0 : index; };
            const auto n0 = static_cast<std::size_t>(nb[0]), n1 = static_cast<std::size_t>(nb[1]);
            CHECK(y[i] == a[i] * b[part(i0, 0) + n0 * (part(i1, 1) + n1 * part(i2, 2))]);
            CHECK(spread.x.flat_row<float>(static_cast<std::int64_t>(i / 7))[i0] == y[i]);
        }
        CHECK(std::count(spread.data.begin(), spread.data.end(), 12345.0f) ==
              static_cast<std::ptrdiff_t>(spread.data.size() - a.size()));
    }
}

TEST_CASE("[A13][K5] softmax: rows sum to 1, follow the formula, and keep NaN to themselves") {
    OpRandom random(5);
    for (const std::int64_t n : {1, 8, 31, 500, 32000}) {
        const Shape ne{n, 3, 1, 1};
        std::vector<float> x = random.floats(count(ne), 30.0f);
        if (n > 8) x[3] = -kInf;
        const std::vector<float> p = packed(Op::softmax, ne, {f32(x, ne)});
        for (std::size_t r = 0; r < 3; ++r) {
            const auto first = r * static_cast<std::size_t>(n), end = first + static_cast<std::size_t>(n);
            long double total = 0.0L, sum = 0.0L;
            for (std::size_t i = first; i < end; ++i) total += std::exp(static_cast<long double>(x[i]));
            for (std::size_t i = first; i < end; ++i) {
                const long double exact = std::exp(static_cast<long double>(x[i])) / total;
                // Two exponentials, a subtraction of up to 60 (half an ulp: 1.9e-6), a sum, a product.
                CHECK(std::fabs(static_cast<long double>(p[i]) - exact) <= 5e-6L * exact + 1e-37L);
                sum += static_cast<long double>(p[i]);
            }
            CHECK(std::fabs(sum - 1.0L) < 1e-5L);
        }
        if (n > 8) CHECK(p[3] == 0.0f);
        const Strided spread(x, ne, 1);
        CHECK(same_bits(p, packed(Op::softmax, ne, {spread.x}, {}, 2)));
        x[0] = kNaN;
        const std::vector<float> poisoned = packed(Op::softmax, ne, {f32(x, ne)});
        CHECK(std::all_of(poisoned.begin(), poisoned.begin() + n, [](float v) { return std::isnan(v); }));
        CHECK(std::equal(poisoned.begin() + n, poisoned.end(), p.begin() + n));
    }
}

// ---- RoPE -----------------------------------------------------------------------------------------------------------

TEST_CASE("[A16] top_k: descending, ties by lower index, NaN last, against a stable sort") {
    OpRandom random(10);
    for (const std::int64_t n : {1, 5, 64, 200})
        for (const std::int64_t k : {1, 2, 8, 64}) {
            if (k > n) continue;
            const Shape ne{n, 4, 1, 1};
            std::vector<float> x(count(ne));
            for (float& value : x) value = static_cast<float>(random.below(7));  // many ties
            if (n > 5) x[static_cast<std::size_t>(n) + 2] = kNaN;
            std::vector<std::int32_t> ids(static_cast<std::size_t>(4 * k), -1);
            auto call = call_of({f32(ids, {k, 4, 1, 1}), f32(x, ne)});
            run(reference_table, Op::top_k, DType::none, call, 3);
            for (std::size_t r = 0; r < 4; ++r) {
                const float* row = x.data() + r * static_cast<std::size_t>(n);
                std::vector<std::int32_t> order(static_cast<std::size_t>(n));
                std::iota(order.begin(), order.end(), 0);
                std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
                    return !std::isnan(row[a]) && (std::isnan(row[b]) || row[a] > row[b]);
                });
                CHECK(std::equal(order.begin(), order.begin() + k, ids.begin() + static_cast<std::ptrdiff_t>(r) * k));
            }
        }
}

TEST_CASE("[A16] moe_weights: the chosen gate values, normalized by their sum in router order, floor 6.1e-5, scaled") {
    const std::vector<float> probs{0.5f, 0.25f, 0.125f, 0.125f, 1e-6f, 2e-6f, 0.0f, 0.0f};
    const std::vector<std::int32_t> ids{0, 1, 1, 0};
    const std::vector<kernels::Operand> inputs{f32(probs, {4, 2, 1, 1}), f32(ids, {2, 2, 1, 1})};
    OpParams params;
    CHECK(same_bits(packed(Op::moe_weights, {2, 2, 1, 1}, inputs, params),
                    std::vector<float>{0.5f, 0.25f, 2e-6f, 1e-6f}));
    params.normalize = 1;
    const std::vector<float> normalized = packed(Op::moe_weights, {2, 2, 1, 1}, inputs, params);
    CHECK(same_bits(normalized, std::vector<float>{0.5f / 0.75f, 0.25f / 0.75f, 2e-6f / 6.1e-5f, 1e-6f / 6.1e-5f}));
    params.scale = 2.5f;
    const std::vector<float> scaled = packed(Op::moe_weights, {2, 2, 1, 1}, inputs, params, 2);
    for (std::size_t i = 0; i < 4; ++i) CHECK(scaled[i] == normalized[i] * 2.5f);
}

TEST_CASE("[A16] keep_groups: groups ranked by the sum of their two largest scores, ties to the lower group") {
    constexpr float kHidden = -kInf;
    OpParams params;
    params.n_group = 3;
    params.k = 2;
    const std::vector<float> x{
        0.5f, 0.1f, 0.3f, 0.9f, -1.0f, 0.0f, 0.4f, 0.4f, 0.4f,  // 0.8, 0.9, 0.8: the tie goes to group 0
        1.0f, 2.0f, 3.0f, 0.0f, 0.0f,  0.0f, 9.0f, 0.0f, 0.0f};
    const std::vector<float> expected{0.5f, 0.1f, 0.3f, 0.9f,    -1.0f,   0.0f,    kHidden, kHidden, kHidden,
                                      1.0f, 2.0f, 3.0f, kHidden, kHidden, kHidden, 9.0f,    0.0f,    0.0f};
    CHECK(same_bits(packed(Op::keep_groups, {9, 2, 1, 1}, {f32(x, {9, 2, 1, 1})}, params, 2), expected));
    params.n_group = 9;  // groups of one
    params.k = 1;
    const std::vector<float> one = packed(Op::keep_groups, {9, 2, 1, 1}, {f32(x, {9, 2, 1, 1})}, params);
    for (std::size_t i = 0; i < 18; ++i) CHECK(one[i] == (i == 3 || i == 15 ? x[i] : kHidden));
}

TEST_CASE("add_id: the bias of the chosen expert, row by row") {
    OpRandom random(22);
    const std::vector<float> x = random.floats(7 * 2 * 3), b = random.floats(7 * 4);
    const std::vector<std::int32_t> ids{3, 0, 1, 1, 2, 3};
    const std::vector<float> y =
        packed(Op::add_id, {7, 2, 3, 1}, {f32(x, {7, 2, 3, 1}), f32(b, {7, 4, 1, 1}), f32(ids, {2, 3, 1, 1})}, {}, 2);
    for (std::size_t i = 0; i < y.size(); ++i)
        CHECK(y[i] == x[i] + b[static_cast<std::size_t>(ids[i / 7]) * 7 + i % 7]);
}

TEST_CASE("segment_sum: rows are added to what their segment has so far, one after the other") {
    OpRandom random(24);
    const std::vector<float> x = random.floats(9 * 5), sums = random.floats(9 * 3);
    const std::vector<std::int32_t> segments{1, 0, 1, 1, 0};
    for (const int threads : {1, 2, 4}) {
        const std::vector<float> y =
            packed(Op::segment_sum, {9, 3, 1, 1},
                   {f32(x, {9, 5, 1, 1}), f32(segments, {5, 1, 1, 1}), f32(sums, {9, 3, 1, 1})}, {}, threads);
        for (std::size_t i = 0; i < 9; ++i) {
            CHECK(y[i] == (sums[i] + x[9 + i]) + x[36 + i]);
            CHECK(y[9 + i] == ((sums[9 + i] + x[i]) + x[18 + i]) + x[27 + i]);
            CHECK(y[18 + i] == sums[18 + i]);
        }
    }
}

TEST_CASE("log_temperature: 1 + c ln(1 + floor((p + p0) / n)) in double, within one rounding") {
    OpParams params;
    params.scale = 0.1f;
    params.k = 8192;
    params.first = 1;
    const std::vector<std::int32_t> positions{0, 8190, 8191, 16382, 16383, 1000000, 2147483646};
    const std::vector<float> y = packed(Op::log_temperature, {1, 7, 1, 1}, {f32(positions, {7, 1, 1, 1})}, params, 2);
    CHECK(y[0] == 1.0f);
    CHECK(y[1] == 1.0f);
    for (std::size_t i = 0; i < y.size(); ++i) {
        const double exact =
            1.0 + static_cast<double>(0.1f) * std::log(1.0 + std::floor((positions[i] + 1.0) / 8192.0));
        CHECK(std::abs(y[i] - exact) <= 2.4e-7 * exact);  // the logarithm and the sum round once each
    }
}

TEST_CASE("concat: rows of b behind rows of a, one row of b for all heads of a token") {
    OpRandom random(23);
    const std::vector<float> a = random.floats(5 * 3 * 2), b = random.floats(4 * 3 * 2), one = random.floats(4 * 2);
    for (const bool shared : {false, true}) {
        const std::vector<float> y =
            packed(Op::concat, {9, 3, 2, 1},
                   {f32(a, {5, 3, 2, 1}), shared ? f32(one, {4, 1, 2, 1}) : f32(b, {4, 3, 2, 1})}, {}, 2);
        for (std::size_t r = 0; r < 6; ++r)
            for (std::size_t i = 0; i < 9; ++i)
                CHECK(y[r * 9 + i] == (i < 5 ? a[r * 5 + i] : shared ? one[r / 3 * 4 + i - 5] : b[r * 4 + i - 5]));
    }
}

TEST_CASE("moe_sum: one fma per expert from zero, in router order") {
    OpRandom random(11);
    const std::vector<float> y = random.floats(33 * 4 * 3), w = random.floats(4 * 3);
    for (const int threads : {1, 2}) {
        const std::vector<float> out =
            packed(Op::moe_sum, {33, 3, 1, 1}, {f32(y, {33, 4, 3, 1}), f32(w, {4, 3, 1, 1})}, {}, threads);
        for (std::size_t t = 0; t < 3; ++t)
            for (std::size_t i = 0; i < 33; ++i) {
                float acc = 0.0f;
                for (std::size_t j = 0; j < 4; ++j) acc = std::fma(w[t * 4 + j], y[(t * 4 + j) * 33 + i], acc);
                CHECK(out[t * 33 + i] == acc);
            }
    }
}

TEST_CASE("reference table: every op that computes has a kernel, found by its selecting type, with a unique name") {
    for (int i = static_cast<int>(Op::get_rows); i < static_cast<int>(Op::count_); ++i) {
        const auto op = static_cast<Op>(i);
        const bool found = std::any_of(reference_table.kernels, reference_table.kernels + reference_table.n_kernels,
                                       [&](const kernels::KernelDescriptor& kernel) { return kernel.op == op; });
        CHECK_MESSAGE(found, i);
    }
    for (std::size_t i = 0; i < reference_table.n_kernels; ++i) {
        const kernels::KernelDescriptor& kernel = reference_table.kernels[i];
        CHECK(reference_table.find(kernel.op, kernel.type) == &kernel);
        CHECK(kernel.name.substr(0, kernel.name.find('.')) == tinfer::to_string(kernel.op));  // "mul_mat.q4_k"
        for (std::size_t j = 0; j < i; ++j) CHECK(reference_table.kernels[j].name != kernel.name);
    }
    for (std::uint32_t id = 0; id < 64; ++id) {  // every type that can be a factor of a product has all five kernels
        const tinfer::DTypeInfo* info = tinfer::find_dtype(id);
        if (info == nullptr || info->activation == DType::none) continue;
        for (const Op op : {Op::mul_mat, Op::mul_mat_add, Op::mul_mat_id, Op::mul_mat_heads, Op::get_rows}) {
            const kernels::KernelDescriptor* kernel = reference_table.find(op, info->type);
            REQUIRE(kernel != nullptr);
            CHECK(kernel->name.ends_with(info->name));
        }
    }
    CHECK(reference_table.find(Op::mul_mat, DType::q8_k) == nullptr);
    CHECK(reference_table.find(Op::rms_norm, DType::f32) != nullptr);  // any type fits
}
