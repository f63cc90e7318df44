// SPDX-License-Identifier: MIT
// Looks through the blocks of a tensor for scales that are not finite: the damage that turns a whole model into NaN and
// is otherwise noticed only in the logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tinfer/tensor.hpp"

namespace tinfer {

/// Index of the first block (of the first element, for plain floats) whose scale, minimum or value is Inf or NaN.
/// Integers and nvfp4 have nothing to check. `bytes` is a whole number of blocks; a remainder is not looked at.
[[nodiscard]] std::optional<std::uint64_t> first_bad_block(DType type, std::span<const std::byte> bytes) noexcept;

}  // namespace tinfer
