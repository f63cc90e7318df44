// SPDX-License-Identifier: MIT
// The reference kernels: plain loops that define, operation by operation, the bits every other table must return
// (numerics rule 1). The order of operations is written at each function, in norm.cpp, elementwise.cpp, mul_mat.cpp and
// their neighbours. Operands: tinfer/ops.def and kernels/ops.hpp.
#pragma once

#include <cstdint>

#include "kernels/kernel.hpp"

namespace tinfer::kernels::ref {

// One for every op that is computed.
#define TINFER_OP(name, rule, types, touches, macs, scratch, work, tables, operands) RunFn name;
#include "tinfer/ops.def"

/// Pair i of a head, x and the result being of head_dim floats: the one place that rotates (rope, rope_kv_write).
/// table = {magnitude·cos, magnitude·sin} of each pair.
struct Rotated {
    float a, c;
};
[[nodiscard]] Rotated rotate(float a, float c, const float* table, std::int64_t pair) noexcept;

/// y = H·x of a block of n = 2^k values, y may be x: the one place that does (hadamard, key_shift).
void hadamard_block(const float* x, std::int64_t n, float* y) noexcept;
/// The two elements that make up pair i of n_rot dimensions.
struct Pair {
    std::int64_t a, c;
};
[[nodiscard]] constexpr Pair pair_of(const RopeParams& rope, std::int64_t i) noexcept {
    return rope.neox != 0 ? Pair{i, i + rope.n_rot / 2} : Pair{2 * i, 2 * i + 1};
}

}  // namespace tinfer::kernels::ref
