// SPDX-License-Identifier: MIT
// Rows of any type as float32. For block formats this is the formula of kernels/quants/format.hpp over the same codes
// that products use, so a product and a lookup can never disagree about a weight.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tinfer/tensor.hpp"

namespace tinfer::kernels {

/// Whether dequantize_row knows the type: all of the GGUF format, with q8_1 and q8_k, but not the activation rows.
[[nodiscard]] bool can_dequantize(DType type) noexcept;

/// Writes n floats, a whole number of blocks; types that can_dequantize refuses leave `out` as it is. Exact (formats
/// with a minimum round once), so the result is the same on every machine; `row` needs no alignment.
void dequantize_row(DType type, const std::byte* row, std::int64_t n, float* out) noexcept;

}  // namespace tinfer::kernels
