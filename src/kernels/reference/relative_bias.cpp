// SPDX-License-Identifier: MIT
// Reference: biases of attention scores that depend on how far a key lies from the query (T5, arXiv:1910.10683 §2.1).
#include "base/math.hpp"
#include "kernels/reference/ops.hpp"

namespace tinfer::kernels::ref {

/// out[D + d, h] = table[h, bucket(d)] for every distance d = p_k − p_q from −D to D. Attention looks it up: what is
/// farther is in the bucket of the end.
void relative_bias(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &table = call[1];
    const std::int32_t farthest = call.params.max_distance;
    const Range distances = slice.share(out.ne[0]);
    for (std::int64_t i = distances.begin; i < distances.end; ++i) {
        const int bucket = math::relative_bucket(static_cast<int>(i) - farthest, static_cast<int>(table.ne[1]),
                                                 farthest, call.params.both_sides != 0);
        for (std::int64_t h = 0; h < out.ne[1]; ++h) out.row<float>(h)[i] = table.row<const float>(bucket)[h];
    }
}

}  // namespace tinfer::kernels::ref
