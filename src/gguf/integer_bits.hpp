// SPDX-License-Identifier: MIT
// Integers of metadata that are patterns of 64 bits and no numbers.
#pragma once

#include "gguf/file.hpp"

namespace tinfer::gguf {

/// Element i of an array of integers: those of u64 above 2^63−1, too. Throws as ArrayView::integer does.
[[nodiscard]] std::uint64_t integer_bits(const ArrayView& array, std::uint64_t i);

}  // namespace tinfer::gguf
