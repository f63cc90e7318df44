// SPDX-License-Identifier: MIT
// Half floats: IEEE binary16 and bfloat16 to and from float32, rounding to nearest, ties to even. Written once as
// templates over a tag: units compiled for one instruction set must pass theirs, so that the linker can never hand
// their copy to another machine; everybody else calls the plain functions.
#pragma once

#include <cstdint>

namespace tinfer {

[[nodiscard]] float f16_to_f32(std::uint16_t half) noexcept;
[[nodiscard]] std::uint16_t f32_to_f16(float value) noexcept;
[[nodiscard]] float bf16_to_f32(std::uint16_t half) noexcept;
[[nodiscard]] std::uint16_t f32_to_bf16(float value) noexcept;

/// Exact for every value; NaN stays NaN with its payload.
template <class Tag>
[[nodiscard]] constexpr float f16_to_f32(std::uint16_t half) noexcept {
    const std::uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7FFFu;
    std::uint32_t bits = 0;
    if (magnitude < 0x0400) {  // subnormal: a multiple of 2^-24, which float32 holds as a normal number
        bits = __builtin_bit_cast(std::uint32_t, static_cast<float>(magnitude) * 0x1p-24f);
    } else {
        const std::uint32_t rebias = magnitude < 0x7C00 ? 127 - 15 : 255 - 31;
        bits = (magnitude << 13) + (rebias << 23);
    }
    return __builtin_bit_cast(float, sign | bits);
}

/// From 65520 on infinity; at or below 2^-25 zero of the same sign; NaN becomes the quiet NaN of its sign.
template <class Tag>
[[nodiscard]] constexpr std::uint16_t f32_to_f16(float value) noexcept {
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
    std::uint32_t half = 0;
    if (magnitude > 0x7F800000u) {
        half = 0x7E00;
    } else if (magnitude >= 0x477FF000u) {  // 65520
        half = 0x7C00;
    } else if (magnitude < 0x38800000u) {  // below 2^-14: the last place of 0.5f is 2^-24, so adding it rounds
        const float rounded = __builtin_bit_cast(float, magnitude) + 0.5f;
        half = __builtin_bit_cast(std::uint32_t, rounded) - 0x3F000000u;
    } else {
        half = (magnitude - (112u << 23) + 0x0FFFu + (magnitude >> 13 & 1u)) >> 13;
    }
    return static_cast<std::uint16_t>(sign | half);
}

template <class Tag>
[[nodiscard]] constexpr float bf16_to_f32(std::uint16_t half) noexcept {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(half) << 16);
}

/// Subnormals are kept; NaN keeps its upper payload and turns quiet.
template <class Tag>
[[nodiscard]] constexpr std::uint16_t f32_to_bf16(float value) noexcept {
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x0040u);
    return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace tinfer
