// SPDX-License-Identifier: MIT
// SHA-256, with which results are compared and files are named.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tinfer/export.hpp"

namespace tinfer {

/// SHA-256 of bytes (FIPS 180-4): for comparing logits of two runs or naming a file.
[[nodiscard]] TINFER_API std::array<std::uint8_t, 32> sha256(std::span<const std::byte> bytes) noexcept;

}  // namespace tinfer
