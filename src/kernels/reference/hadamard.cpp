// SPDX-License-Identifier: MIT
// Reference: the Walsh-Hadamard transform of blocks, normalized, by butterflies.
#include "kernels/hadamard_scale.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/reference/ops.hpp"

namespace tinfer::kernels::ref {

/// For strides h = 1, 2, 4 … n/2: elements i and i + h become a + b and a − b. Then each is multiplied by 1/sqrt(n)
/// once.
void hadamard_block(const float* x, std::int64_t n, float* y) noexcept {
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i];
    for (std::int64_t h = 1; h < n; h *= 2)
        for (std::int64_t first = 0; first < n; first += 2 * h)
            for (std::int64_t i = first; i < first + h; ++i) {
                const float a = y[i], b = y[i + h];
                y[i] = a + b;
                y[i + h] = a - b;
            }
    const float scale = hadamard_scale<reference>(n);
    for (std::int64_t i = 0; i < n; ++i) y[i] *= scale;
}

/// Threads share blocks, not rows, because one token may have one row.
void hadamard(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1];
    const std::int64_t block = call.params.block, n_blocks = x.ne[0] / block;
    const Range share = slice.share(n_blocks * x.n_rows());
    for (std::int64_t i = share.begin; i < share.end; ++i) {
        const std::int64_t row = i / n_blocks, first = i % n_blocks * block;
        hadamard_block(x.flat_row<const float>(row) + first, block, out.flat_row<float>(row) + first);
    }
}

}  // namespace tinfer::kernels::ref
