// SPDX-License-Identifier: MIT
#include "base/fp_env.hpp"

#include <doctest/doctest.h>

#include <cfenv>

#include "support/fp_control.hpp"

namespace {

/// Opaque to the optimizer: computed when asked, in the environment of that moment.
float quotient(float a, float b) {
    volatile float dividend = a, divisor = b;
    volatile float result = dividend / divisor;
    return result;
}

}  // namespace

TEST_CASE("fp_env: inside the guard division rounds to nearest whatever the caller chose") {
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

#if defined(TINFER_FP_CONTROL)
TEST_CASE("fp_env: subnormals survive inside the guard, and the caller's flush modes come back") {
    using namespace tinfer::test;
    const std::uint64_t callers = fp_control();
    set_fp_control(callers | kFlush);
    CHECK(quotient(0x1p-126f, 2.0f) == 0.0f);
    {
        const tinfer::FpEnvironment guard;
        CHECK(quotient(quotient(0x1p-126f, 2.0f), 0x1p-126f) == 0.5f);
    }
    CHECK((fp_control() & kFlush) == kFlush);
    CHECK(quotient(0x1p-126f, 2.0f) == 0.0f);
    set_fp_control(callers);
}
#endif
