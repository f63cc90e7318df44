// SPDX-License-Identifier: MIT
#include "base/fp_env.hpp"

#if defined(__SSE__) || defined(_M_X64)
#    include <xmmintrin.h>
#endif

namespace tinfer {

#if defined(__SSE__) || defined(_M_X64)

// 0x1F80: all exceptions masked, round to nearest, neither FTZ nor DAZ.
FpEnvironment::FpEnvironment() noexcept : saved_(_mm_getcsr()) { _mm_setcsr(0x1F80); }
FpEnvironment::~FpEnvironment() { _mm_setcsr(saved_); }

#elif defined(__aarch64__)

FpEnvironment::FpEnvironment() noexcept {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}));
}
FpEnvironment::~FpEnvironment() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }

#else

FpEnvironment::FpEnvironment() noexcept {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
}
FpEnvironment::~FpEnvironment() { std::fesetenv(&saved_); }

#endif

}  // namespace tinfer
