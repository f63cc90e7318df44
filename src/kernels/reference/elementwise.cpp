// SPDX-License-Identifier: MIT
// Reference: one result per element. Each is one or two roundings, so there is no order to fix.
#include <cstring>

#include "base/dtype.hpp"
#include "base/math.hpp"
#include "kernels/dequantize/dequantize.hpp"
#include "kernels/quants/activation_q8.hpp"
#include "kernels/quants/format.hpp"
#include "kernels/reference/ops.hpp"

namespace tinfer::kernels::ref {

namespace {

/// out = f(x) over this thread's rows.
template <class F>
void map_rows(const KernelCall& call, WorkSlice slice, F f) noexcept {
    const Operand &out = call[0], &x = call[1];
    const Range rows = slice.share(x.n_rows());
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        const auto* in = x.flat_row<const float>(i);
        auto* y = out.flat_row<float>(i);
        for (std::int64_t j = 0; j < x.ne[0]; ++j) y[j] = f(in[j]);
    }
}

/// out = f(a, b); every dimension of b is that of a or 1 (then repeated).
template <class F>
void zip_rows(const KernelCall& call, WorkSlice slice, F f) noexcept {
    const Operand &out = call[0], &a = call[1], &b = call[2];
    const std::int64_t step = b.ne[0] == 1 ? 0 : 1;
    const Range rows = slice.share(a.n_rows());
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        const std::int64_t i1 = i % a.ne[1], i2 = i / a.ne[1] % a.ne[2], i3 = i / (a.ne[1] * a.ne[2]);
        const auto* left = a.row<const float>(i1, i2, i3);
        const auto* right = b.row<const float>(i1 % b.ne[1], i2 % b.ne[2], i3 % b.ne[3]);
        auto* y = out.row<float>(i1, i2, i3);
        for (std::int64_t j = 0; j < a.ne[0]; ++j) y[j] = f(left[j], right[j * step]);
    }
}

/// arXiv:2411.13010: ap·z² + b·z above 0, else an·(exp(min(z, eps)) − 1 − z) + b·z; in double, rounded once.
float xielu_of(float z, const OpParams& p) noexcept {
    const auto x = static_cast<double>(z), above = static_cast<double>(p.scale), below = static_cast<double>(p.low),
               beta = static_cast<double>(p.high), eps = static_cast<double>(p.eps);
    if (x > 0.0) return static_cast<float>(above * x * x + beta * x);
    return static_cast<float>(below * (math::exp(x < eps ? x : eps) - 1.0 - x) + beta * x);
}

float gated(float gate, float up) noexcept { return math::silu(gate) * up; }

}  // namespace

void add(const KernelCall& call, WorkSlice slice) noexcept {
    zip_rows(call, slice, [](float a, float b) { return a + b; });
}

void mul(const KernelCall& call, WorkSlice slice) noexcept {
    zip_rows(call, slice, [](float a, float b) { return a * b; });
}

void div(const KernelCall& call, WorkSlice slice) noexcept {
    zip_rows(call, slice, [](float a, float b) { return a / b; });
}

void xielu(const KernelCall& call, WorkSlice slice) noexcept {
    map_rows(call, slice, [&](float z) { return xielu_of(z, call.params); });
}

/// y = sign(x) · sqrt(max(|x|, params.low)), the sign of 0 being 0.
void signed_sqrt(const KernelCall& call, WorkSlice slice) noexcept {
    map_rows(call, slice, [low = call.params.low](float x) {
        if (x == 0.0f) return 0.0f;
        const float size = std::fabs(x);
        return std::copysign(std::sqrt(size < low ? low : size), x);
    });
}

/// y = x · params.scale.
void scale(const KernelCall& call, WorkSlice slice) noexcept {
    map_rows(call, slice, [factor = call.params.scale](float x) { return x * factor; });
}

/// y = x / (1 + exp(−x)).
void silu(const KernelCall& call, WorkSlice slice) noexcept {
    map_rows(call, slice, [](float x) { return math::silu(x); });
}

/// y = ½x · (1 + tanh(√(2/π)·(x + 0.044715·x³))), in the form of math_lanes.hpp.
void gelu(const KernelCall& call, WorkSlice slice) noexcept {
    map_rows(call, slice, [](float x) { return math::gelu(x); });
}

/// y = max(x, 0); a NaN stays one.
void relu(const KernelCall& call, WorkSlice slice) noexcept {
    map_rows(call, slice, [](float x) { return x < 0.0f ? 0.0f : x; });
}

void tanh(const KernelCall& call, WorkSlice slice) noexcept {
    map_rows(call, slice, [](float x) { return math::tanh(x); });
}

/// y = x within [params.low, params.high]; a NaN stays one.
void clamp(const KernelCall& call, WorkSlice slice) noexcept {
    map_rows(call, slice, [low = call.params.low, high = call.params.high](float x) {
        const float raised = x < low ? low : x;
        return raised > high ? high : raised;
    });
}

/// y = 1 / (1 + exp(−x)).
void sigmoid(const KernelCall& call, WorkSlice slice) noexcept {
    map_rows(call, slice, [](float x) { return math::sigmoid(x); });
}

void exp(const KernelCall& call, WorkSlice slice) noexcept {
    map_rows(call, slice, [](float x) { return math::exp(x); });
}

/// y = log(1 + exp(x)).
void softplus(const KernelCall& call, WorkSlice slice) noexcept {
    map_rows(call, slice, [](float x) { return math::softplus(x); });
}

/// Rows, packed; half precision is widened to f32, exactly.
void copy(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1];
    const Range rows = slice.share(x.n_rows());
    for (std::int64_t i = rows.begin; i < rows.end; ++i)
        dequantize_row(x.type, x.flat_row<const std::byte>(i), x.ne[0], out.flat_row<float>(i));
}

/// Rows of a, each followed by the row of b in the same place, or by the one that all heads of a token share.
void concat(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &a = call[1], &b = call[2];
    const Range rows = slice.share(out.n_rows());
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        const std::int64_t h = i % out.ne[1], t = i / out.ne[1];
        auto* y = out.row<float>(h, t);
        std::memcpy(y, a.row<const float>(h, t), static_cast<std::size_t>(4 * a.ne[0]));
        std::memcpy(y + a.ne[0], b.row<const float>(b.ne[1] == 1 ? 0 : h, t), static_cast<std::size_t>(4 * b.ne[0]));
    }
}

/// silu(gate) · up, one multiplication after silu.
void silu_mul(const KernelCall& call, WorkSlice slice) noexcept { zip_rows(call, slice, gated); }

/// silu_mul, then quantize: the same bits as the two.
void silu_mul_quantize(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &gate = call[1], &up = call[2];
    auto* y = reinterpret_cast<float*>(call.scratch(slice.thread));
    const Range rows = slice.share(gate.n_rows());
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        const auto *g = gate.flat_row<const float>(i), *u = up.flat_row<const float>(i);
        for (std::int64_t j = 0; j < gate.ne[0]; ++j) y[j] = gated(g[j], u[j]);
        quantize_activation<reference>(out.type, y, gate.ne[0], out.flat_row<std::byte>(i));
    }
}

}  // namespace tinfer::kernels::ref
