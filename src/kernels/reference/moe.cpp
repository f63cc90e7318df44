// SPDX-License-Identifier: MIT
// Reference: routing to experts and the sum of what they return (numerics rule 11).
#include <cmath>

#include "kernels/reference/ops.hpp"

namespace tinfer::kernels::ref {

namespace {

/// Strict order of candidates: larger value first, ties by lower index, NaN last.
bool ranks_before(const float* x, std::int64_t i, std::int64_t j) noexcept {
    if (std::isnan(x[i]) || std::isnan(x[j])) return std::isnan(x[i]) == std::isnan(x[j]) ? i < j : std::isnan(x[j]);
    return x[i] != x[j] ? x[i] > x[j] : i < j;
}

}  // namespace

/// Each next id is the best of those that rank behind the one before: k passes, no memory.
void top_k(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1];
    const Range rows = slice.share(x.n_rows());
    for (std::int64_t t = rows.begin; t < rows.end; ++t) {
        const auto* values = x.flat_row<const float>(t);
        auto* ids = out.flat_row<std::int32_t>(t);
        for (std::int64_t j = 0; j < out.ne[0]; ++j) {
            std::int64_t best = -1;
            for (std::int64_t i = 0; i < x.ne[0]; ++i)
                if ((j == 0 || ranks_before(values, ids[j - 1], i)) && (best < 0 || ranks_before(values, i, best)))
                    best = i;
            ids[j] = static_cast<std::int32_t>(best);
        }
    }
}

/// w_j = probs[ids_j]; with params.normalize divided by max(Σ w, 6.1e-5), Σ in router order; then · params.scale unless
/// that is 0 or 1.
void moe_weights(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &probs = call[1], &ids = call[2];
    const float factor = call.params.scale;
    const Range rows = slice.share(ids.n_rows());
    for (std::int64_t t = rows.begin; t < rows.end; ++t) {
        const auto* p = probs.flat_row<const float>(t);
        const auto* chosen = ids.flat_row<const std::int32_t>(t);
        auto* w = out.flat_row<float>(t);
        float sum = 0.0f;
        for (std::int64_t j = 0; j < ids.ne[0]; ++j) {
            w[j] = p[chosen[j]];
            sum += w[j];
        }
        const float divisor = sum < 6.1e-5f ? 6.1e-5f : sum;
        for (std::int64_t j = 0; j < ids.ne[0]; ++j) {
            if (call.params.normalize != 0) w[j] /= divisor;
            if (factor != 0.0f && factor != 1.0f) w[j] *= factor;
        }
    }
}

/// out = Σ_j w_j · y_j: from 0, one fma per expert in router order.
void moe_sum(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &y = call[1], &w = call[2];
    const Range rows = slice.share(out.ne[1]);
    for (std::int64_t t = rows.begin; t < rows.end; ++t) {
        const auto* weights = w.row<const float>(t);
        auto* sum = out.row<float>(t);
        for (std::int64_t i = 0; i < out.ne[0]; ++i) {
            float acc = 0.0f;
            for (std::int64_t j = 0; j < y.ne[1]; ++j) acc = std::fma(weights[j], y.row<const float>(j, t)[i], acc);
            sum[i] = acc;
        }
    }
}

}  // namespace tinfer::kernels::ref
