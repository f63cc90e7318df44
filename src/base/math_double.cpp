// SPDX-License-Identifier: MIT
// The float64 half of base/math.hpp: Taylor series on ranges so small that their remainders vanish below the last bit.
#include <array>
#include <bit>
#include <cstddef>
#include <limits>

#include "base/math.hpp"

namespace tinfer::math {

namespace {

constexpr double kLn2 = 0x1.62e42fefa39efp-1, kLn2Low = 0x1.abc9e3b39803fp-56;
constexpr double kPi = 0x1.921fb54442d18p+1;

/// 2^n as a double, −1022 ≤ n ≤ 1023.
double power_of_two(double n) noexcept {
    return std::bit_cast<double>(static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023) << 52);
}

/// Coefficients of a power series, rounded by the compiler: the same everywhere.
template <std::size_t N>
constexpr std::array<double, N> series(double (*term)(int)) {
    std::array<double, N> c{};
    for (std::size_t k = 0; k < N; ++k) c[k] = term(static_cast<int>(k));
    return c;
}
constexpr double inverse_factorial(int k) {
    double factorial = 1.0;  // exact up to 22!
    for (int i = 2; i <= k; ++i) factorial *= i;
    return 1.0 / factorial;
}
constexpr auto kExp = series<14>(inverse_factorial);                                                           // in r
constexpr auto kAtanh = series<14>([](int k) { return 1.0 / (2 * k + 3); });                                   // in s²
constexpr auto kSin = series<11>([](int k) { return (k % 2 == 0 ? 1 : -1) * inverse_factorial(2 * k + 1); });  // in r²
constexpr auto kCos = series<11>([](int k) { return (k % 2 == 0 ? 1 : -1) * inverse_factorial(2 * k); });

/// Horner from the end, every step fused.
template <std::size_t N>
double evaluate(const std::array<double, N>& c, double x) noexcept {
    double sum = c[N - 1];
    for (std::size_t k = N - 1; k-- > 0;) sum = std::fma(sum, x, c[k]);
    return sum;
}

/// exp(r)·2^n for |r| ≤ ln 2 / 2 and −1200 < n ≤ 1024. Σ r^k/k! to k = 13: remainder 5e-18.
double scaled_exp(double r, double n) noexcept {
    const double half = std::floor(n * 0.5);
    return evaluate(kExp, r) * power_of_two(half) * power_of_two(n - half);
}

}  // namespace

double exp(double x) noexcept {
    if (x != x) return x;
    if (x < -745.2) return 0.0;
    if (x > 709.8) return std::numeric_limits<double>::infinity();
    const double n = std::rint(x * 0x1.71547652b82fep+0);
    const double r = std::fma(-n, kLn2Low, std::fma(-n, kLn2, x));
    return scaled_exp(r, n);
}

double exp2(double x) noexcept {
    if (x != x) return x;
    if (x < -1075.0) return 0.0;
    if (x >= 1024.0) return std::numeric_limits<double>::infinity();
    const double n = std::rint(x);
    return scaled_exp((x - n) * kLn2, n);
}

// x = 2^e · m, m in [√½, √2); s = (m − 1)/(m + 1), |s| < 0.172; log m = 2·atanh(s) = 2s·(1 + s²/3 + s⁴/5 + …).
double log(double x) noexcept {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    if (!(x > 0.0)) return x == 0.0 ? -kInf : std::numeric_limits<double>::quiet_NaN();
    if (x == kInf) return x;
    constexpr std::int64_t kSqrtHalf = 0x3FE6A09E667F3BCD;
    const auto bits = std::bit_cast<std::int64_t>(x);
    const std::int64_t exponent = (bits - kSqrtHalf) >> 52;
    const auto e = static_cast<double>(exponent);
    const double f = std::bit_cast<double>(bits - exponent * (std::int64_t{1} << 52)) - 1.0;
    const double s = f / (2.0 + f), z = s * s;
    const double tail = z * evaluate(kAtanh, z);  // atanh(s)/s − 1: remainder 1e-23
    // 2s = f − s·f exactly in the reals: only the small parts carry rounding errors.
    const double low = std::fma(e, kLn2Low, std::fma(2.0 * s, tail, -(s * f)));
    return std::fma(e, kLn2, f + low);
}

double pow(double x, double y) noexcept { return exp(y * log(x)); }

// x = n·π/2 + r in three steps of fma (π/2 to 160 bits); the quadrant n mod 4 swaps and negates.
SinCos sin_cos(double x) noexcept {
    const double n = std::rint(x * 0x1.45f306dc9c883p-1);
    double r = std::fma(-n, 0x1.921fb54442d18p+0, x);
    r = std::fma(-n, 0x1.1a62633145c07p-54, r);
    r = std::fma(-n, -0x1.f1976b7ed8fbcp-110, r);
    const double z = r * r;
    const double s = r * evaluate(kSin, z), c = evaluate(kCos, z);
    const double quadrant = n - 4.0 * std::floor(n * 0.25);
    if (quadrant == 0.0) return {s, c};
    if (quadrant == 1.0) return {c, -s};
    if (quadrant == 2.0) return {-s, -c};
    if (quadrant == 3.0) return {-c, s};
    return {x - x, x - x};  // infinities and NaN have no quadrant
}

float alibi_slope(float max_bias, int head, int n_head) noexcept {
    int n2 = 1;
    while (2 * n2 <= n_head) n2 *= 2;
    const double bias = static_cast<double>(max_bias);
    const double exponent = head < n2 ? bias * (head + 1) / n2 : bias * (2 * (head - n2) + 1) / (2.0 * n2);
    return static_cast<float>(exp2(-exponent));
}

int relative_bucket(int distance, int n_bucket, int max_distance, bool both_sides) noexcept {
    const int n = both_sides ? n_bucket / 2 : n_bucket, e = n / 2;
    const int base = both_sides && distance > 0 ? n : 0;
    const int d = distance < 0 ? -distance : both_sides ? distance : 0;
    if (d < e) return base + d;
    if (d >= max_distance) return base + n - 1;
    // A boundary that is an integer may come out a rounding below it; no distance lies nearer than 1e-6 below another.
    const double steps = log(static_cast<double>(d) / e) / log(static_cast<double>(max_distance) / e) * (n - e);
    const int bucket = e + static_cast<int>(steps + 1e-9);
    return base + (bucket < n - 1 ? bucket : n - 1);
}

YarnRamp yarn_ramp(int n_rot, double freq_base, double n_ctx_orig, double beta_fast, double beta_slow) noexcept {
    const auto dimension = [&](double turns) {
        return n_rot * log(n_ctx_orig / (2.0 * kPi * turns)) / (2.0 * log(freq_base));
    };
    const double low = std::floor(dimension(beta_fast)), high = std::ceil(dimension(beta_slow));
    const double last = n_rot - 1.0;
    return {low < 0.0 ? 0.0 : low, high > last ? last : high};
}

}  // namespace tinfer::math
