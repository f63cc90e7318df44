// SPDX-License-Identifier: MIT
// The two passes over a row as long as the vocabulary that sampling cannot avoid. They are worth vector code, which
// lives in kernels/; sampling does not depend on that folder and is handed these functions. Every set gives the same
// bits (numerics rules 3 and 9).
#pragma once

#include <cstddef>

namespace tinfer {

/// Elements of a row whose maximum is remembered: small enough that looking through one costs nothing, large enough
/// that 256k logits make a list of a thousand maxima.
inline constexpr std::size_t kRowBlock = 256;

struct RowOps {
    /// The largest element of each block of kRowBlock, the last one being what is left; NaN never is the largest, a
    /// block of nothing else has -infinity. True where a NaN was met.
    bool (*block_max)(const float* x, std::size_t n, float* maxima) noexcept;
    /// p[i] = exp(x[i] − max), and their sum in 16 lanes; p may be x.
    float (*exp_sum16)(const float* x, std::size_t n, float max, float* p) noexcept;
};

/// Plain loops: what every other set must agree with.
extern const RowOps reference_row_ops;

}  // namespace tinfer
