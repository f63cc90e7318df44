// SPDX-License-Identifier: MIT
// All weight types with kernels, from the list of formats.
#pragma once

#include "kernels/quants/formats.hpp"

namespace tinfer::test {

#define TINFER_TYPE_OF(type, Format) DType::type,
inline constexpr DType kBlockTypes[] = {TINFER_BLOCK_FORMATS(TINFER_TYPE_OF)};
inline constexpr DType kWeightTypes[] = {DType::f32, DType::f16, DType::bf16, TINFER_BLOCK_FORMATS(TINFER_TYPE_OF)};
#undef TINFER_TYPE_OF

}  // namespace tinfer::test
