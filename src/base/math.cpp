// SPDX-License-Identifier: MIT
#include "base/math.hpp"

#include <bit>
#include <limits>

#include "base/math_lanes.hpp"

namespace tinfer::math {

namespace {

/// One float as lanes: what the vectors of every table must agree with.
struct ScalarLanes {
    using F = float;
    using I = std::uint32_t;  // wraps; shifted as signed where it matters
    static constexpr bool kScales = false;
    static F set(float x) noexcept { return x; }
    static F add(F a, F b) noexcept { return a + b; }
    static F sub(F a, F b) noexcept { return a - b; }
    static F mul(F a, F b) noexcept { return a * b; }
    static F div(F a, F b) noexcept { return a / b; }
    static F fma(F a, F b, F c) noexcept { return std::fma(a, b, c); }
    static F select_lt(F a, F b, F yes, F no) noexcept { return a < b ? yes : no; }
    static F larger(F a, F b) noexcept { return a > b ? a : b; }
    static F smaller(F a, F b) noexcept { return a < b ? a : b; }
    static F abs(F x) noexcept { return std::fabs(x); }
    static F copy_sign(F magnitude, F sign) noexcept { return std::copysign(magnitude, sign); }
    static I bits(F x) noexcept { return std::bit_cast<I>(x); }
    static F from_bits(I i) noexcept { return std::bit_cast<F>(i); }
    static I sub_i(I a, I b) noexcept { return a - b; }
    static I add_i(I a, std::int32_t b) noexcept { return a + static_cast<I>(b); }
    static I half_i(I a) noexcept { return static_cast<I>(static_cast<std::int32_t>(a) >> 1); }
    static I exponent_i(I a) noexcept { return a << 23; }
};

/// c[0] + x·(c[1] + x·(c[2] + …)), Horner from the end.
template <class T, std::size_t N>
T polynomial(const T (&c)[N], T x) noexcept {
    T sum = c[N - 1];
    for (std::size_t i = N - 1; i-- > 0;) sum = std::fma(sum, x, c[i]);
    return sum;
}

}  // namespace

float exp(float x) noexcept { return exp<ScalarLanes>(x); }
float sigmoid(float x) noexcept { return sigmoid<ScalarLanes>(x); }
float silu(float x) noexcept { return silu<ScalarLanes>(x); }
float gelu(float x) noexcept { return gelu<ScalarLanes>(x); }
float tanh(float x) noexcept { return tanh<ScalarLanes>(x); }

// x = 2^e · m with m in [√½, √2); f = m − 1; log m = f − f²/2 + f³·P(f).
float log(float x) noexcept {
    constexpr float kP[] = {0x1.555554p-2f,  -0x1.fffffcp-3f, 0x1.999d5ap-3f,  -0x1.555b4ap-3f, 0x1.23d21ap-3f,
                            -0x1.fcf4c6p-4f, 0x1.dea282p-4f,  -0x1.d6358cp-4f, 0x1.1d8ea6p-4f};
    constexpr float kInf = std::numeric_limits<float>::infinity();
    if (!(x > 0.0f)) return x == 0.0f ? -kInf : std::numeric_limits<float>::quiet_NaN();
    if (x == kInf) return x;
    float e = 0.0f;
    if (x < std::numeric_limits<float>::min()) {
        x *= 0x1p23f;
        e = -23.0f;
    }
    constexpr std::int32_t kSqrtHalf = 0x3f3504f3;
    const auto bits = std::bit_cast<std::int32_t>(x);
    const std::int32_t exponent = (bits - kSqrtHalf) >> 23;
    e += static_cast<float>(exponent);
    const float f = std::bit_cast<float>(bits - exponent * (1 << 23)) - 1.0f;  // exact
    const float z = f * f;
    float low = polynomial(kP, f) * (f * z);
    low = std::fma(e, -0x1.05c61p-29f, low);
    low = std::fma(z, -0.5f, low);
    // f is added to the larger e·ln 2 first where there is one; what that addition loses is given back to `low`.
    const float high = std::fma(e, 0x1.62e43p-1f, f);
    const float lost = std::fma(e, 0x1.62e43p-1f, -high) + f;
    return high + (low + lost);
}

// u = fl(1 + x) is not 1 + x; log changes by (x − (u − 1)) / u between the two.
float log1p(float x) noexcept {
    const float u = 1.0f + x;
    if (u == 1.0f) return x;
    if (!(u > 0.0f) || u == std::numeric_limits<float>::infinity()) return log(u);
    const float lost = x > 1.0f ? 1.0f - (u - x) : x - (u - 1.0f);
    return log(u) + lost / u;
}

float softplus(float x) noexcept {
    const float tail = log1p(exp(-std::fabs(x)));
    return x > 0.0f ? x + tail : tail;
}

// |x| < 1: x + x·P(x²); else ±(1 − exp(x·Q(x))), Q interpolating log(erfc(x)) / x; ±1 from 3.92 on, where erfc < 2^-25.
float erf(float x) noexcept {
    constexpr float kP[] = {0x1.06eba8p-3f, -0x1.812746p-2f,  0x1.ce2f08p-4f, -0x1.b829c8p-6f,
                            0x1.562a6p-8f,  -0x1.bccf66p-11f, 0x1.d8875p-14f, -0x1.445f48p-17f};
    constexpr float kQ[] = {-0x1.20f7c4p+0f, -0x1.44f31ap-1f, -0x1.b60266p-4f, 0x1.8d4d1cp-6f, -0x1.f06d46p-9f,
                            0x1.49ac0ep-12f, 0x1.677fa4p-18f, -0x1.efdf1p-19f, 0x1.02073ap-22f};
    const float a = std::fabs(x);
    if (a < 1.0f) return std::fma(x, polynomial(kP, x * x), x);
    if (a >= 3.92f) return std::copysign(1.0f, x);
    const float large = 1.0f - exp(a * polynomial(kQ, a));
    return std::copysign(large, x);  // a NaN passes through exp
}

float sin(float x) noexcept { return static_cast<float>(sin_cos(static_cast<double>(x)).sin); }
float cos(float x) noexcept { return static_cast<float>(sin_cos(static_cast<double>(x)).cos); }

}  // namespace tinfer::math
