// SPDX-License-Identifier: MIT
// Unsigned 64-bit arithmetic on sizes that come from files: an overflow is an empty result, never a wrap.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace tinfer {

[[nodiscard]] constexpr std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) noexcept {
    if (b > std::numeric_limits<std::uint64_t>::max() - a) return std::nullopt;
    return a + b;
}

[[nodiscard]] constexpr std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) noexcept {
    if (a != 0 && b > std::numeric_limits<std::uint64_t>::max() / a) return std::nullopt;
    return a * b;
}

/// The next multiple of `alignment`, a power of two.
[[nodiscard]] constexpr std::optional<std::uint64_t> checked_round_up(std::uint64_t x,
                                                                      std::uint64_t alignment) noexcept {
    const auto sum = checked_add(x, alignment - 1);
    if (!sum) return std::nullopt;
    return *sum & ~(alignment - 1);
}

}  // namespace tinfer
