// SPDX-License-Identifier: MIT
// One result per element: sums, products, quotients, activations and their fusions.
#pragma once

#include "kernels/elementwise/norm.hpp"

namespace tinfer::kernels {

/// out = fn(x) over this thread's rows.
template <class Arch, class Fn>
TINFER_INLINE void map_rows(const KernelCall& call, WorkSlice slice, Fn fn) noexcept {
    const Operand &out = call[0], &x = call[1];
    const Range rows = slice.share(x.n_rows());
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        const auto* in = x.template flat_row<const float>(i);
        auto* y = out.template flat_row<float>(i);
        each_piece<Arch>(x.ne[0],
                         [&](std::int64_t j, int n) { store_piece(fn(load_piece<Arch>(in + j, n)), y + j, n); });
    }
}

/// out = fn(a, b); every dimension of b is that of a or 1 (then repeated).
template <class Arch, class Fn>
TINFER_INLINE void zip_rows(const KernelCall& call, WorkSlice slice, Fn fn) noexcept {
    const Operand &out = call[0], &a = call[1], &b = call[2];
    const bool repeated = b.ne[0] == 1;
    const Range rows = slice.share(a.n_rows());
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        const std::int64_t i1 = i % a.ne[1], i2 = i / a.ne[1] % a.ne[2], i3 = i / (a.ne[1] * a.ne[2]);
        const auto* left = a.template row<const float>(i1, i2, i3);
        const auto* right = b.template row<const float>(i1 % b.ne[1], i2 % b.ne[2], i3 % b.ne[3]);
        auto* y = out.template row<float>(i1, i2, i3);
        each_piece<Arch>(a.ne[0], [&](std::int64_t j, int n) {
            const auto other = repeated ? f32x16<Arch>(*right) : load_piece<Arch>(right + j, n);
            store_piece(fn(load_piece<Arch>(left + j, n), other), y + j, n);
        });
    }
}

template <class Arch>
void add(const KernelCall& call, WorkSlice slice) noexcept {
    zip_rows<Arch>(call, slice, [](const f32x16<Arch>& a, const f32x16<Arch>& b) { return a + b; });
}
template <class Arch>
void mul(const KernelCall& call, WorkSlice slice) noexcept {
    zip_rows<Arch>(call, slice, [](const f32x16<Arch>& a, const f32x16<Arch>& b) { return a * b; });
}
template <class Arch>
void div(const KernelCall& call, WorkSlice slice) noexcept {
    zip_rows<Arch>(call, slice, [](const f32x16<Arch>& a, const f32x16<Arch>& b) { return a / b; });
}
template <class Arch>
void scale(const KernelCall& call, WorkSlice slice) noexcept {
    const f32x16<Arch> factor(call.params.scale);
    map_rows<Arch>(call, slice, [&](const f32x16<Arch>& x) { return x * factor; });
}
template <class Arch>
void silu(const KernelCall& call, WorkSlice slice) noexcept {
    map_rows<Arch>(call, slice, [](const f32x16<Arch>& x) { return silu(x); });
}
template <class Arch>
void gelu(const KernelCall& call, WorkSlice slice) noexcept {
    map_rows<Arch>(call, slice, [](const f32x16<Arch>& x) { return gelu(x); });
}
template <class Arch>
void relu(const KernelCall& call, WorkSlice slice) noexcept {
    const f32x16<Arch> zero(0.0f);
    map_rows<Arch>(call, slice, [&](const f32x16<Arch>& x) { return if_greater(zero, x, zero, x); });
}
template <class Arch>
void tanh(const KernelCall& call, WorkSlice slice) noexcept {
    map_rows<Arch>(call, slice, [](const f32x16<Arch>& x) { return tanh(x); });
}
template <class Arch>
void sigmoid(const KernelCall& call, WorkSlice slice) noexcept {
    map_rows<Arch>(call, slice, [](const f32x16<Arch>& x) { return sigmoid(x); });
}
template <class Arch>
void exp(const KernelCall& call, WorkSlice slice) noexcept {
    map_rows<Arch>(call, slice, [](const f32x16<Arch>& x) { return exp(x); });
}
template <class Arch>
void softplus(const KernelCall& call, WorkSlice slice) noexcept {
    map_rows<Arch>(call, slice, [](const f32x16<Arch>& x) { return softplus(x); });
}
template <class Arch>
void clamp(const KernelCall& call, WorkSlice slice) noexcept {
    const f32x16<Arch> low(call.params.low), high(call.params.high);
    map_rows<Arch>(call, slice, [&](const f32x16<Arch>& x) {
        const auto raised = if_greater(low, x, low, x);
        return if_greater(raised, high, high, raised);
    });
}
/// silu(gate) · up.
template <class Arch>
void silu_mul(const KernelCall& call, WorkSlice slice) noexcept {
    zip_rows<Arch>(call, slice, [](const f32x16<Arch>& gate, const f32x16<Arch>& up) { return silu(gate) * up; });
}

/// out = Σ_j w_j · y_j: from 0, one fma per expert in router order.
template <class Arch>
void moe_sum(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &y = call[1], &w = call[2];
    const Range rows = slice.share(out.ne[1]);
    for (std::int64_t t = rows.begin; t < rows.end; ++t) {
        const auto* weights = w.template row<const float>(t);
        auto* sum = out.template row<float>(t);
        each_piece<Arch>(out.ne[0], [&](std::int64_t i, int n) {
            f32x16<Arch> acc(0.0f);
            for (std::int64_t j = 0; j < y.ne[1]; ++j)
                acc = fma(f32x16<Arch>::broadcast(weights + j),
                          load_piece<Arch>(y.template row<const float>(j, t) + i, n), acc);
            store_piece(acc, sum + i, n);
        });
    }
}

/// silu_mul, then quantize: the same bits as the two. Threads share blocks, because one token has one row. Of a prompt,
/// both operands come from memory, which prefetches them early.
template <class Arch>
void silu_mul_quantize(const KernelCall& call, WorkSlice slice) noexcept {
    constexpr std::int64_t kTogether = 512, kPrefetchAhead = 1024;  // values
    const Operand &out = call[0], &gate = call[1], &up = call[2];
    auto* y = reinterpret_cast<float*>(call.scratch(slice.thread));
    const std::int64_t k = gate.ne[0], block = out.type == DType::x8_32 ? 32 : 256, n_blocks = k / block;
    const Range blocks = slice.share(n_blocks * gate.n_rows());
    for (std::int64_t b = blocks.begin, end; b < blocks.end; b = end) {
        const std::int64_t row = b / n_blocks, first = b - row * n_blocks;
        const std::int64_t n = std::min({kTogether / block, n_blocks - first, blocks.end - b});
        end = b + n;
        const float *g = gate.template flat_row<const float>(row) + first * block,
                    *u = up.template flat_row<const float>(row) + first * block;
        each_piece<Arch>(n * block, [&](std::int64_t j, int count) {
            __builtin_prefetch(g + j + kPrefetchAhead);
            __builtin_prefetch(u + j + kPrefetchAhead);
            store_piece(silu(load_piece<Arch>(g + j, count)) * load_piece<Arch>(u + j, count), y + first * block + j,
                        count);
        });
        quantize_blocks<Arch>(out.type, y, k, out.template flat_row<std::byte>(row), first, first + n);
    }
}

}  // namespace tinfer::kernels
