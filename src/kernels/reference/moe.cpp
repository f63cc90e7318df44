// SPDX-License-Identifier: MIT
// Reference: routing to experts and the sum of what they return (numerics rule 11).
#include <cmath>
#include <limits>

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

/// floor(id / params.k); ids are not negative.
void divide_ids(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &ids = call[1];
    const Range rows = slice.share(ids.n_rows());
    for (std::int64_t t = rows.begin; t < rows.end; ++t) {
        const auto* from = ids.flat_row<const std::int32_t>(t);
        auto* to = out.flat_row<std::int32_t>(t);
        for (std::int64_t j = 0; j < ids.ne[0]; ++j) to[j] = from[j] / call.params.k;
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

namespace {

/// Sum of the two largest scores of a group, or its only one; NaN where one is.
float group_score(const float* x, std::int64_t n) noexcept {
    if (n == 1) return x[0];
    float first = -std::numeric_limits<float>::infinity(), second = first;
    for (std::int64_t i = 0; i < n; ++i) {
        if (std::isnan(x[i])) return x[i];
        if (x[i] > first) {
            second = first;
            first = x[i];
        } else if (x[i] > second) {
            second = x[i];
        }
    }
    return first + second;
}

}  // namespace

/// The X scores fall into params.n_group groups of neighbours. Those of the params.k best groups stay, the others
/// become −inf; the rank of a group is that of its score in the order of top_k (arXiv:2412.19437 §2.1.2).
void keep_groups(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1];
    const std::int64_t n_group = call.params.n_group, size = x.ne[0] / n_group;
    const Range rows = slice.share(x.n_rows());
    for (std::int64_t t = rows.begin; t < rows.end; ++t) {
        const auto* scores = x.flat_row<const float>(t);
        auto* kept = out.flat_row<float>(t);
        for (std::int64_t g = 0; g < n_group; ++g) {
            const float own = group_score(scores + g * size, size);
            std::int64_t better = 0;  // groups that rank before this one
            for (std::int64_t other = 0; other < n_group; ++other) {
                const float score = group_score(scores + other * size, size);
                const float pair[] = {other < g ? score : own, other < g ? own : score};
                if (other != g && ranks_before(pair, other < g ? 0 : 1, other < g ? 1 : 0)) ++better;
            }
            for (std::int64_t i = g * size; i < (g + 1) * size; ++i)
                kept[i] = better < call.params.k ? scores[i] : -std::numeric_limits<float>::infinity();
        }
    }
}

/// out[:,j,t] = x[:,j,t] + b[:, ids[j,t]].
void add_id(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1], &bias = call[2], &ids = call[3];
    const Range rows = slice.share(x.n_rows());
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
        const std::int64_t j = r % x.ne[1], t = r / x.ne[1];
        const auto* b = bias.row<const float>(ids.row<const std::int32_t>(t)[j]);
        const auto* in = x.row<const float>(j, t);
        auto* y = out.row<float>(j, t);
        for (std::int64_t i = 0; i < x.ne[0]; ++i) y[i] = in[i] + b[i];
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
