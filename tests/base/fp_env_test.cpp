// SPDX-License-Identifier: MIT
#include "base/fp_env.hpp"

#include <doctest/doctest.h>

#include <cfenv>

#if defined(__SSE__)
#  include <xmmintrin.h>
#endif

namespace {

/// Opaque to the optimizer: computed when asked, in the environment of that moment.
float quotient(float a, float b) {
    volatile float dividend = a, divisor = b;
    volatile float result = dividend / divisor;
    return result;
}

}  // namespace

TEST_CASE("[N2] fp_env: inside the guard division rounds to nearest whatever the caller chose") {
    const float nearest = quotient(1.0f, 3.0f);
    REQUIRE(std::fesetround(FE_UPWARD) == 0);
    const float up = quotient(1.0f, 10.0f);
    {
        const tinfer::FpEnvironment guard;
        CHECK(quotient(1.0f, 3.0f) == nearest);
        CHECK(quotient(-1.0f, 3.0f) == -nearest);
    }
    CHECK(quotient(1.0f, 10.0f) == up);
    CHECK(std::fegetround() == FE_UPWARD);
    REQUIRE(std::fesetround(FE_DOWNWARD) == 0);
    const float down = quotient(2.0f, 3.0f);
    {
        const tinfer::FpEnvironment outer;
        const tinfer::FpEnvironment inner;
        CHECK(quotient(2.0f, 3.0f) > down);
    }
    CHECK(std::fegetround() == FE_DOWNWARD);
    std::fesetround(FE_TONEAREST);
}

#if defined(__SSE__)
TEST_CASE("[N2] fp_env: subnormals survive inside the guard, and the caller's flush modes come back") {
    const unsigned callers = _mm_getcsr();
    constexpr unsigned kFlush = 0x8000, kSubnormalsAreZero = 0x0040;
    _mm_setcsr(callers | kFlush | kSubnormalsAreZero);
    CHECK(quotient(0x1p-126f, 2.0f) == 0.0f);
    {
        const tinfer::FpEnvironment guard;
        CHECK(quotient(quotient(0x1p-126f, 2.0f), 0x1p-126f) == 0.5f);
    }
    CHECK((_mm_getcsr() & (kFlush | kSubnormalsAreZero)) == (kFlush | kSubnormalsAreZero));
    CHECK(quotient(0x1p-126f, 2.0f) == 0.0f);
    _mm_setcsr(callers);
}
#endif
