// SPDX-License-Identifier: MIT
// The reference products, the quantization of activations and the row lookup: what every other table must equal bit for
// bit. Operand slots: kernels/ops.hpp.
#pragma once

#include "kernels/kernel.hpp"

namespace tinfer::kernels::ref {

RunFn mul_mat;      ///< out[n, t] = ⟨W[n], x[t]⟩
RunFn mul_mat_add;  ///< out[n, t] = ⟨W[n], x[t]⟩ + addend[n, t or none]
RunFn mul_mat_id;   ///< out[n, i, t] = ⟨W[n, ids[i, t]], x[i or 0, t]⟩; without ids row i meets matrix i
RunFn quantize;     ///< rows of f32 → rows of x8_32 or x8_256
RunFn get_rows;     ///< out[t] = matrix[ids[t]], dequantized

}  // namespace tinfer::kernels::ref
