// SPDX-License-Identifier: MIT
// Scales as blocks store them: f16 and bf16 (base/half.hpp), E8M0 of MXFP4, UE4M3 of NVFP4, and reading fields from
// bytes that have no alignment. Templates over the architecture tag, because units compiled for one instruction set use
// them.
#pragma once

#include <cstdint>

#include "base/half.hpp"

namespace tinfer::kernels {

template <class Arch>
[[nodiscard]] constexpr std::uint16_t load_u16(const std::uint8_t* p) noexcept {
    return static_cast<std::uint16_t>(p[0] | p[1] << 8);
}

template <class Arch>
[[nodiscard]] constexpr std::uint32_t load_u32(const std::uint8_t* p) noexcept {
    return p[0] | static_cast<std::uint32_t>(p[1]) << 8 | static_cast<std::uint32_t>(p[2]) << 16 |
           static_cast<std::uint32_t>(p[3]) << 24;
}

/// The f16 at p, widened.
template <class Arch>
[[nodiscard]] constexpr float load_f16(const std::uint8_t* p) noexcept {
    return f16_to_f32<Arch>(load_u16<Arch>(p));
}

/// Half of the E8M0 scale 2^(e-127), because the FP4 codes are stored doubled: 2^(e-128). e < 2 gives subnormals;
/// e = 255, a NaN in the OCP standard, is taken as 2^127.
template <class Arch>
[[nodiscard]] constexpr float e8m0_half(std::uint8_t e) noexcept {
    const std::uint32_t bits = e < 2 ? 0x00200000u << e : (e - 1u) << 23;
    return __builtin_bit_cast(float, bits);
}

/// Half of the UE4M3 scale, for the same reason: exponent bias 7; 0x00 and 0x7F mean zero, bit 7 is ignored elsewhere.
template <class Arch>
[[nodiscard]] constexpr float ue4m3_half(std::uint8_t u) noexcept {
    const int exponent = u >> 3 & 15, mantissa = u & 7;
    const int significand = u == 0x7F ? 0 : exponent == 0 ? mantissa : 8 + mantissa;
    const auto power =
        __builtin_bit_cast(float, static_cast<std::uint32_t>((exponent == 0 ? 1 : exponent) - 11 + 127) << 23);
    return static_cast<float>(significand) * power;
}

}  // namespace tinfer::kernels
