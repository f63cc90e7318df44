// SPDX-License-Identifier: MIT
// The floating-point environment that results are defined in: round to nearest even, subnormals kept, exceptions
// masked. A caller may run with another one; every thread of a plan holds this guard while it computes (numerics rule
// 2).
#pragma once

#include <cfenv>
#include <cstdint>

namespace tinfer {

/// Default environment from here to the end of the scope, then the caller's again (flags included). Per thread.
class FpEnvironment {
public:
    FpEnvironment() noexcept;
    ~FpEnvironment();
    FpEnvironment(const FpEnvironment&) = delete;
    FpEnvironment& operator=(const FpEnvironment&) = delete;

private:
#if defined(__SSE__) || defined(_M_X64)
    std::uint32_t saved_;  // MXCSR
#elif defined(__aarch64__)
    std::uint64_t saved_;  // FPCR
#else
    std::fenv_t saved_;
#endif
};

}  // namespace tinfer
