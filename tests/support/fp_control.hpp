// SPDX-License-Identifier: MIT
// The processor's floating-point control register, for tests with unusual settings of the caller. Nothing is defined on
// other processors.
#pragma once

#include <array>
#include <cstdint>

#if defined(__SSE__)
#    include <xmmintrin.h>
#endif

namespace tinfer::test {

#if defined(__SSE__)
#    define TINFER_FP_CONTROL 1
inline constexpr std::uint64_t kFlush = 0x8040;         ///< MXCSR: FTZ and DAZ
inline constexpr std::uint64_t kRoundingUnit = 0x2000;  ///< lowest of its two rounding bits
inline std::uint64_t fp_control() { return _mm_getcsr(); }
inline void set_fp_control(std::uint64_t bits) { _mm_setcsr(static_cast<unsigned>(bits)); }
#elif defined(__aarch64__)
#    define TINFER_FP_CONTROL 1
inline constexpr std::uint64_t kFlush = 1u << 24;         ///< FPCR.FZ
inline constexpr std::uint64_t kRoundingUnit = 1u << 22;  ///< FPCR.RMode
inline std::uint64_t fp_control() {
    std::uint64_t bits;
    asm volatile("mrs %0, fpcr" : "=r"(bits));
    return bits;
}
inline void set_fp_control(std::uint64_t bits) { asm volatile("msr fpcr, %0" : : "r"(bits)); }
#endif

#if defined(TINFER_FP_CONTROL)
inline constexpr std::uint64_t kFpModeBits = kFlush | 3 * kRoundingUnit;
/// Subnormals flushed, the three roundings that are not to nearest, and both at once.
inline constexpr std::array kOddFpModes{kFlush, kRoundingUnit, 2 * kRoundingUnit, 3 * kRoundingUnit, kFpModeBits};
#endif

}  // namespace tinfer::test
