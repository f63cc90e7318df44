// SPDX-License-Identifier: MIT
// Reference: what normalizes whole rows.
#include <algorithm>
#include <cmath>

#include "base/math.hpp"
#include "base/reduce.hpp"
#include "kernels/quants/activation_q8.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/reference/ops.hpp"

namespace tinfer::kernels::ref {

namespace {

// factor = 1 / sqrt(Σ x² / n + eps), Σ by 16 lanes of fma, IEEE division and square root; y = (x · factor) · w.
void norm_row(const float* x, const float* weight, std::int64_t n, float eps, float* y) noexcept {
    const float mean = dot16(x, x, n) / static_cast<float>(n);
    const float factor = 1.0f / std::sqrt(mean + eps);
    for (std::int64_t i = 0; i < n; ++i) {
        const float scaled = x[i] * factor;
        y[i] = weight == nullptr ? scaled : scaled * weight[i];
    }
}

/// The weight row of row i: shared by all rows, or one per head where the weight is {n, n_head}.
const float* norm_weight(const Operand& weight, const Operand& x, std::int64_t i) noexcept {
    if (!weight.present()) return nullptr;
    return weight.row<const float>(weight.ne[1] == 1 ? 0 : i % x.ne[1]);
}

}  // namespace

/// y = w · x / sqrt(mean(x²) + eps), row by row, in the order of norm_row.
void rms_norm(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1], &weight = call[2];
    const Range rows = slice.share(x.n_rows());
    for (std::int64_t i = rows.begin; i < rows.end; ++i)
        norm_row(x.flat_row<const float>(i), norm_weight(weight, x, i), x.ne[0], call.params.eps,
                 out.flat_row<float>(i));
}

/// y = w · (x − mean) / sqrt(var + eps) + b, row by row: mean = Σ x / n by 16 lanes; c = x − mean; factor =
/// 1 / sqrt(Σ c² / n + eps), Σ by 16 lanes of fma; y = ((c · factor) · w) + b.
void layer_norm(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1];
    const std::int64_t n = x.ne[0];
    const Range rows = slice.share(x.n_rows());
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        const auto* in = x.flat_row<const float>(i);
        auto* y = out.flat_row<float>(i);
        const float *weight = norm_weight(call[2], x, i), *bias = norm_weight(call[3], x, i);
        const float mean = sum16(in, n) / static_cast<float>(n);
        for (std::int64_t j = 0; j < n; ++j) y[j] = in[j] - mean;
        const float factor = 1.0f / std::sqrt(dot16(y, y, n) / static_cast<float>(n) + call.params.eps);
        for (std::int64_t j = 0; j < n; ++j) {
            y[j] *= factor;
            if (weight != nullptr) y[j] *= weight[j];
            if (bias != nullptr) y[j] += bias[j];
        }
    }
}

/// y = x · factor, factor = 1 / sqrt(Σ x² + eps), or 1 / max(sqrt(Σ x²), eps); Σ by 16 lanes of fma.
void l2_norm(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1];
    const float eps = call.params.eps;
    const Range rows = slice.share(x.n_rows());
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        const auto* in = x.flat_row<const float>(i);
        auto* y = out.flat_row<float>(i);
        const float sum = dot16(in, in, x.ne[0]);
        const float norm = call.params.eps_is_floor == 0 ? std::sqrt(sum + eps)
                           : std::sqrt(sum) < eps        ? eps
                                                         : std::sqrt(sum);
        const float factor = 1.0f / norm;
        for (std::int64_t j = 0; j < x.ne[0]; ++j) y[j] = in[j] * factor;
    }
}

/// rms_norm, then quantize: the same bits as the two. Slot 3 takes the norm itself where somebody else reads it.
void rms_norm_quantize(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1], &weight = call[2], &norm = call[3];
    const Range rows = slice.share(x.n_rows());
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        auto* y = norm.present() ? norm.flat_row<float>(i) : reinterpret_cast<float*>(call.scratch(slice.thread));
        norm_row(x.flat_row<const float>(i), norm_weight(weight, x, i), x.ne[0], call.params.eps, y);
        quantize_activation<reference>(out.type, y, x.ne[0], out.flat_row<std::byte>(i));
    }
}

/// exp(x − max) of each row and its share of the row's sum, plus eps; then columns divided by their sums, and rows and
/// columns alternately, each sum plus eps. Sums run in ascending order from 0.
void sinkhorn(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1];
    const float eps = call.params.eps;
    std::int64_t n = 1;
    while (n * n < x.ne[0]) ++n;
    const Range tokens = slice.share(x.ne[1]);
    float m[16 * 16];
    const auto divide = [&](std::int64_t across, std::int64_t along) {  // strides between sums, and within one
        for (std::int64_t i = 0; i < n; ++i) {
            float sum = 0.0f;
            for (std::int64_t j = 0; j < n; ++j) sum += m[i * across + j * along];
            for (std::int64_t j = 0; j < n; ++j) m[i * across + j * along] /= sum + eps;
        }
    };
    for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
        const auto* in = x.row<const float>(t);
        for (std::int64_t i = 0; i < n; ++i) {
            const float* row = in + i * n;
            const float largest = *std::max_element(row, row + n);
            float sum = 0.0f;
            for (std::int64_t j = 0; j < n; ++j) sum += m[i * n + j] = math::exp(row[j] - largest);
            for (std::int64_t j = 0; j < n; ++j) m[i * n + j] = m[i * n + j] / sum + eps;
        }
        divide(1, n);
        for (std::int32_t round = 1; round < call.params.k; ++round) {
            divide(n, 1);
            divide(1, n);
        }
        auto* y = out.row<float>(t);
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t j = 0; j < n; ++j) y[j * n + i] = m[i * n + j];
    }
}

/// Σ x by 16 lanes.
void sum_rows(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1];
    const Range rows = slice.share(x.n_rows());
    for (std::int64_t i = rows.begin; i < rows.end; ++i)
        *out.flat_row<float>(i) = sum16(x.flat_row<const float>(i), x.ne[0]);
}

/// p = exp(x − max) · (1 / Σ exp(x − max)), Σ by 16 lanes. A NaN or +inf in a row makes the row NaN.
void softmax(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1];
    const Range rows = slice.share(x.n_rows());
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        const std::span row{x.flat_row<const float>(i), static_cast<std::size_t>(x.ne[0])};
        auto* p = out.flat_row<float>(i);
        const float inverse = 1.0f / exp_sum16(row, max_of(row), p);
        for (std::int64_t j = 0; j < x.ne[0]; ++j) p[j] *= inverse;
    }
}

}  // namespace tinfer::kernels::ref
