// SPDX-License-Identifier: MIT
// Sums of floats in the one order that every table keeps (numerics rule 3): lane l of 16 takes elements l, l+16, l+32,
// … in ascending order, a short tail counting as zeros; then lanes l and l+8 are added, l and l+4, +2, +1.
#pragma once

#include <cstdint>
#include <span>

namespace tinfer {

inline constexpr std::int64_t kLanes = 16;

/// Σ of 16 lanes by that tree.
[[nodiscard]] float reduce16(const float (&lanes)[kLanes]) noexcept;
/// Σ x[i].
[[nodiscard]] float sum16(const float* x, std::int64_t n) noexcept;
/// Σ a[i]·b[i], each product fused into its lane.
[[nodiscard]] float dot16(const float* a, const float* b, std::int64_t n) noexcept;
/// The largest element, NaN ignored; −inf where there is none.
[[nodiscard]] float max_of(std::span<const float> x) noexcept;
/// p_out[i] = exp(x[i] − max) and the sum of them; p_out may be null or x itself.
float exp_sum16(std::span<const float> x, float max, float* p_out) noexcept;

}  // namespace tinfer
