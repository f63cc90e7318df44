// SPDX-License-Identifier: MIT
// Reference: what turns rows of several sequences into one row each.
#include <cstring>

#include "kernels/reference/ops.hpp"

namespace tinfer::kernels::ref {

/// out[:,s] = sums[:,s] + Σ x[:,t] over the rows t of segment s: one addition per row, in ascending order, so that
/// neither neighbours nor the cut of a sequence into several runs change a bit. Rows of segment -1 take no part.
/// Threads share columns.
void segment_sum(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1], &segments = call[2], &sums = call[3];
    const Range elements = slice.share(out.ne[0]);
    for (std::int64_t s = 0; s < out.ne[1]; ++s)
        for (std::int64_t i = elements.begin; i < elements.end; ++i) out.row<float>(s)[i] = sums.row<const float>(s)[i];
    for (std::int64_t t = 0; t < x.ne[1]; ++t) {
        const std::int32_t segment = segments.row<const std::int32_t>(0)[t];
        if (segment < 0) continue;
        const auto* row = x.row<const float>(t);
        auto* sum = out.row<float>(segment);
        for (std::int64_t i = elements.begin; i < elements.end; ++i) sum[i] += row[i];
    }
}

}  // namespace tinfer::kernels::ref
