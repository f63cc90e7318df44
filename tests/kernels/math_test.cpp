// SPDX-License-Identifier: MIT
// Our own mathematics against the C library's long double, in units of the last place of the float result. The sweep
// takes every 1021st float (all exponents, both signs); the slow cases take every one.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/math.hpp"
#include "base/reduce.hpp"
#include "op_support.hpp"

namespace math = tinfer::math;
using tinfer::test::kInf;
using tinfer::test::kNaN;

namespace {

/// Distance of `value` from `exact` in ulps of the float nearest to exact (subnormal ulp at the bottom).
double ulps(float value, long double exact) {
    const auto nearest = static_cast<float>(exact);
    if (value == nearest)
        return static_cast<double>(std::fabs(static_cast<long double>(value) - exact) > 0 ? 0.5 : 0.0);
    if (std::isinf(nearest) || std::isinf(value))
        return std::isinf(nearest) && value == std::numeric_limits<float>::max() ? 1.0 : 1e9;
    const int exponent = std::max(std::ilogb(exact), -126);
    return static_cast<double>(std::fabs(static_cast<long double>(value) - exact) / std::ldexp(1.0L, exponent - 23));
}

struct Worst {
    double ulp = 0.0;
    float at = 0.0f;
};

/// The largest error over every `step`-th float of [low, high], both included; NaN results count as infinitely wrong.
template <class Ours, class Exact>
Worst worst_error(Ours ours, Exact exact, float low, float high, std::uint32_t step) {
    Worst worst;
    const auto look = [&](float x) {
        if (!(x >= low && x <= high)) return;
        const float value = ours(x);
        const double error = value != value ? 1e9 : ulps(value, exact(static_cast<long double>(x)));
        if (error > worst.ulp) worst = {error, x};
    };
    for (std::uint64_t bits = 0; bits <= 0xFFFFFFFF; bits += step)
        look(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    for (const float x : {low, high, 0.0f, -0.0f, 1.0f, -1.0f}) look(x);
    return worst;
}

void check_all(std::uint32_t step) {
    const auto check = [&](const char* name, auto ours, auto exact, float low, float high, double bound) {
        const Worst worst = worst_error(ours, exact, low, high, step);
        INFO(name, ": ", worst.ulp, " ulp at ", worst.at);
        CHECK(worst.ulp <= bound);
    };
    using L = long double;
    check(
        "exp", [](float x) { return math::exp(x); }, [](L x) { return std::exp(x); }, -kInf, 88.7228f, 1.1);
    check(
        "log", [](float x) { return math::log(x); }, [](L x) { return std::log(x); },
        std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max(), 1.0);
    check(
        "log1p", [](float x) { return math::log1p(x); }, [](L x) { return std::log1p(x); }, -0.9999999f,
        std::numeric_limits<float>::max(), 3.0);
    check(
        "softplus", [](float x) { return math::softplus(x); },
        [](L x) { return (x > 0 ? x : 0) + std::log1p(std::exp(-std::fabs(x))); }, -100.0f, 1e30f, 3.0);
    check(
        "tanh", [](float x) { return math::tanh(x); }, [](L x) { return std::tanh(x); }, -kInf, kInf, 2.0);
    check(
        "erf", [](float x) { return math::erf(x); }, [](L x) { return std::erf(x); }, -kInf, kInf, 2.0);
    check(
        "sigmoid", [](float x) { return math::sigmoid(x); }, [](L x) { return 1 / (1 + std::exp(-x)); }, -87.0f, kInf,
        2.5);
    check(
        "silu", [](float x) { return math::silu(x); }, [](L x) { return x / (1 + std::exp(-x)); }, -87.0f, 3e38f, 2.5);
    check(
        "sin", [](float x) { return math::sin(x); }, [](L x) { return std::sin(x); }, -1048576.0f, 1048576.0f, 0.51);
    check(
        "cos", [](float x) { return math::cos(x); }, [](L x) { return std::cos(x); }, -1048576.0f, 1048576.0f, 0.51);
}

}  // namespace

TEST_CASE("math: float functions stay within their stated ulps over a sweep of all floats") { check_all(1021); }

TEST_CASE("math: float functions stay within their stated ulps over every float [slow]") { check_all(1); }

TEST_CASE("math: gelu is its tanh form within 2e-7 · max(1, |x|), and reaches its limits") {
    using L = long double;
    for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 10007) {
        const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
        if (!std::isfinite(x) || std::fabs(x) > 1e12f) continue;
        const L exact =
            L{0.5} * x * (1 + std::tanh(std::sqrt(2 / L{3.14159265358979323846}) * (x + L{0.044715} * x * x * x)));
        REQUIRE(std::fabs(static_cast<L>(math::gelu(x)) - exact) <=
                2e-7L * std::max<L>(1, std::fabs(static_cast<L>(x))));
    }
    CHECK(math::gelu(1e30f) == 1e30f);
    CHECK(math::gelu(-1e30f) == 0.0f);
    CHECK(math::gelu(kInf) == kInf);
    CHECK(std::isnan(math::gelu(kNaN)));
}

TEST_CASE("math: exp is exact at 0, saturates above, vanishes below and keeps NaN") {
    CHECK(math::exp(0.0f) == 1.0f);
    CHECK(math::exp(-0.0f) == 1.0f);
    CHECK(math::exp(88.72284f) == kInf);  // the first float whose exponential exceeds the largest float
    CHECK(math::exp(88.73f) == kInf);
    CHECK(math::exp(kInf) == kInf);
    CHECK(std::isfinite(math::exp(88.722835f)));
    CHECK(math::exp(-103.0f) > 0.0f);  // subnormal, not flushed
    CHECK(math::exp(-104.0f) == 0.0f);
    CHECK(math::exp(-kInf) == 0.0f);
    CHECK(std::isnan(math::exp(kNaN)));
    CHECK(std::isnan(math::exp(-kNaN)));
}

TEST_CASE("math: NaN stays NaN and limits are limits") {
    for (float (*function)(float) noexcept : {static_cast<float (*)(float) noexcept>(math::log), math::log1p,
                                              math::softplus, math::tanh, math::erf, math::sigmoid, math::silu})
        CHECK(std::isnan(function(kNaN)));
    CHECK(std::isnan(math::sin(kInf)));
    CHECK(std::isnan(math::cos(kNaN)));
    CHECK(math::log(0.0f) == -kInf);
    CHECK(std::isnan(math::log(-1.0f)));
    CHECK(math::log(1.0f) == 0.0f);
    CHECK(math::log(kInf) == kInf);
    CHECK(math::tanh(-kInf) == -1.0f);
    CHECK(std::signbit(math::tanh(-0.0f)));
    CHECK(math::erf(5.0f) == 1.0f);
    CHECK(math::sigmoid(-kInf) == 0.0f);
    CHECK(math::sigmoid(0.0f) == 0.5f);
    CHECK(math::softplus(kInf) == kInf);
}

TEST_CASE("math: double functions are good to a few units of 1e-16") {
    for (int i = -70000; i <= 70000; ++i) {
        const double x = i * 0.01003;
        CHECK(std::fabs(math::exp(x) / std::exp(static_cast<long double>(x)) - 1) < 3e-16L);
        const double y = i * 0.0137;
        CHECK(std::fabs(math::exp2(y) / std::exp2(static_cast<long double>(y)) - 1) < 3e-16L);
        const double z = std::ldexp(1.0 + std::fabs(i) / 70001.0, i % 900);
        const long double log_z = std::log(static_cast<long double>(z));
        CHECK(std::fabs(math::log(z) - log_z) <= 3.3e-16L * std::fabs(log_z));
        const double angle = i * 30677.773 + 0.25;  // up to 2^31
        const math::SinCos turn = math::sin_cos(angle);
        CHECK(std::fabs(turn.sin - std::sin(static_cast<long double>(angle))) < 2e-16L);
        CHECK(std::fabs(turn.cos - std::cos(static_cast<long double>(angle))) < 2e-16L);
    }
    for (int i = -20; i <= 20; ++i) CHECK(math::exp2(i) == std::ldexp(1.0, i));
    CHECK(math::exp(-800.0) == 0.0);
    CHECK(math::exp(710.0) == std::numeric_limits<double>::infinity());
    CHECK(math::exp2(1024.0) == std::numeric_limits<double>::infinity());
    CHECK(math::log(1.0) == 0.0);
    CHECK(math::pow(10000.0, 0.0) == 1.0);
    CHECK(std::fabs(math::pow(1e6, -0.73) / std::pow(1e6L, -0.73L) - 1) < 3e-15L);
}

TEST_CASE("math: ALiBi slopes are the published powers") {
    CHECK(math::alibi_slope(8.0f, 0, 8) == 0.5f);  // arXiv:2108.12409: 1/2, 1/4, … 1/256 for 8 heads
    CHECK(math::alibi_slope(8.0f, 7, 8) == 1.0f / 256);
    CHECK(math::alibi_slope(8.0f, 15, 16) == 1.0f / 256);
    CHECK(math::alibi_slope(8.0f, 0, 16) == doctest::Approx(std::sqrt(0.5)));
    CHECK(math::alibi_slope(8.0f, 8, 12) == doctest::Approx(std::sqrt(0.5)));  // m1^1, m1 = 2^(-8/16)
    CHECK(math::alibi_slope(8.0f, 9, 12) == doctest::Approx(std::pow(2.0, -1.5)));
}

TEST_CASE("math: buckets of relative positions are those of the formula in extended precision, at every distance") {
    constexpr int kFarthest = 128;
    for (int n_bucket = 4; n_bucket < 256; ++n_bucket)
        for (const bool both : {false, true}) {
            const int n = both ? n_bucket / 2 : n_bucket, e = n / 2;
            int wrong = 0, last = 0;
            for (int distance = -300; distance <= 300; ++distance) {
                const int d = both ? std::abs(distance) : std::max(-distance, 0), base = both && distance > 0 ? n : 0;
                int bucket = d;
                if (d >=
                    e) {  // a hair above the rounding of four operations: boundaries that are integers count as reached
                    const long double steps = std::log(static_cast<long double>(d) / e) /
                                              std::log(static_cast<long double>(kFarthest) / e) * (n - e);
                    bucket = std::min(n - 1, e + static_cast<int>(std::floor(steps + 1e-15L)));
                }
                wrong += math::relative_bucket(distance, n_bucket, kFarthest, both) != base + bucket;
                last = std::max(last, base + bucket);
            }
            CAPTURE(n_bucket);
            CAPTURE(both);
            CHECK(wrong == 0);
            CHECK(last == (both ? 2 * n - 1 : n - 1));
        }
    for (const auto& [distance, bucket] : {std::pair{0, 0},
                                           {-7, 7},
                                           {-8, 8},
                                           {-16, 10},
                                           {-32, 12},
                                           {-64, 14},
                                           {-91, 15},
                                           {-90, 14},
                                           {-5000, 15},
                                           {1, 17},
                                           {16, 26}})
        CHECK(math::relative_bucket(distance, 32, kFarthest, true) ==
              bucket);  // of 16: 8 · 2^(j/2) begins bucket 8 + j
}

TEST_CASE("reduce: sums follow the 16-lane order") {
    std::vector<float> x(37), p(37);
    std::uint32_t state = 1;
    for (float& value : x) {
        state = state * 1664525u + 1013904223u;
        value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-29f;
    }
    for (const std::size_t n : {0u, 1u, 15u, 16u, 17u, 37u}) {
        float lanes[16] = {}, squares[16] = {};
        for (std::size_t l = 0; l < 16; ++l)
            for (std::size_t i = l; i < n; i += 16) {
                lanes[l] += x[i];
                squares[l] = std::fma(x[i], x[i], squares[l]);
            }
        const auto reduce = [](const float* s) {
            float t[8];
            for (int l = 0; l < 8; ++l) t[l] = s[l] + s[l + 8];
            return ((t[0] + t[4]) + (t[2] + t[6])) + ((t[1] + t[5]) + (t[3] + t[7]));
        };
        const auto count = static_cast<std::int64_t>(n);
        CHECK(tinfer::sum16(x.data(), count) == reduce(lanes));
        CHECK(tinfer::dot16(x.data(), x.data(), count) == reduce(squares));
        const float max = tinfer::max_of({x.data(), n});
        const float sum = tinfer::exp_sum16({x.data(), n}, max, p.data());
        CHECK(sum == tinfer::sum16(p.data(), count));
        CHECK(sum == tinfer::exp_sum16({x.data(), n}, max, nullptr));
        if (n > 0) CHECK(*std::max_element(p.begin(), p.begin() + count) == 1.0f);
    }
    CHECK(tinfer::max_of({}) == -kInf);
    const float with_nan[] = {1.0f, kNaN, 2.0f};
    CHECK(tinfer::max_of(with_nan) == 2.0f);
}
