// SPDX-License-Identifier: MIT
// Reference: layers that carry a state from token to token. Tokens are processed in order, each going on from the row
// of the state that state_rows names and leaving it in another (or the same); threads share channels, heads and rows of
// a head's matrix, never tokens. So one call with n tokens gives the bits of n calls with one.
#include <cmath>

#include "base/math.hpp"
#include "base/reduce.hpp"
#include "kernels/reference/ops.hpp"

namespace tinfer::kernels::ref {

namespace {

/// The rows of a state that a token reads (null: all zeros) and writes.
struct StateStep {
    const float* from;
    float* to;
};

/// `first`: of the part of a row that the caller works on.
StateStep step_of(const Operand& state, const Operand& rows, std::int64_t token, std::int64_t first) noexcept {
    const auto* row = rows.row<const std::int32_t>(token);
    return {row[0] < 0 ? nullptr : state.row<const float>(row[0]) + first, state.row<float>(row[1]) + first};
}

float element(const float* from, std::int64_t i) noexcept { return from == nullptr ? 0.0f : from[i]; }

}  // namespace

/// y_t[c] = Σ_j K[j,c] · x_{t−(n−1−j)·d}[c] (+ b[c]), j ascending, each product by one fma onto the sum, which begins
/// at 0. The state holds the last (n − 1)·d tokens, oldest first, of which every d-th is seen (d: dilation).
void causal_conv(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1], &weight = call[2], &bias = call[3];
    const std::int64_t n = weight.ne[0], n_channels = x.ne[0], d = call.params.dilation, n_before = (n - 1) * d;
    const Range channels = slice.share(n_channels);
    for (std::int64_t t = 0; t < x.ne[1]; ++t) {
        const StateStep state = step_of(call[4], call[5], t, 0);
        for (std::int64_t c = channels.begin; c < channels.end; ++c) {
            const auto* taps = weight.row<const float>(c);
            const float now = x.row<const float>(t)[c];
            float sum = 0.0f;
            for (std::int64_t j = 0; j < n_before; ++j) {
                const float before = element(state.from, j * n_channels + c);
                if (j % d == 0) sum = std::fma(taps[j / d], before, sum);
                if (j > 0) state.to[(j - 1) * n_channels + c] = before;
            }
            state.to[(n_before - 1) * n_channels + c] = now;
            sum = std::fma(taps[n - 1], now, sum);
            out.row<float>(t)[c] = bias.present() ? sum + bias.row<const float>(0)[c] : sum;
        }
    }
}

/// y_t = x_{t−1} − x_t; the state holds the last x.
void token_shift(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1];
    const Range channels = slice.share(x.ne[0]);
    for (std::int64_t t = 0; t < x.ne[1]; ++t) {
        const StateStep state = step_of(call[2], call[3], t, 0);
        for (std::int64_t c = channels.begin; c < channels.end; ++c) {
            const float now = x.row<const float>(t)[c];
            out.row<float>(t)[c] = element(state.from, c) - now;
            state.to[c] = now;
        }
    }
}

/// arXiv:2312.00752, arXiv:2405.21060. Channel p of head h keeps N numbers: h[s] ← fma(h[s], exp(Δ·a[s]), (Δ·x)·B[s]);
/// then y = fma(D, x, ⟨h, C⟩), the product by 16 lanes of fma. Where a has one value per head, its decay serves all s.
void selective_scan(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1], &delta = call[2], &a = call[3], &b = call[4], &c = call[5],
                  &skip = call[6];
    const std::int64_t n_channels = x.ne[0], n_head = x.ne[1], n = b.ne[0], heads_per_group = n_head / b.ne[1];
    const Range channels = slice.share(n_channels * n_head);
    for (std::int64_t t = 0; t < x.ne[2]; ++t)
        for (std::int64_t i = channels.begin; i < channels.end; ++i) {
            const std::int64_t head = i / n_channels;
            const StateStep state = step_of(call[7], call[8], t, i * n);
            const auto *in = b.row<const float>(head / heads_per_group, t),
                       *read = c.row<const float>(head / heads_per_group, t);
            const auto* rates = a.row<const float>(head);
            const float now = x.row<const float>(head, t)[i % n_channels], dt = delta.row<const float>(t)[head],
                        dx = dt * now;
            const bool one_rate = a.ne[0] == 1;
            const float head_decay = one_rate ? math::exp(dt * rates[0]) : 0.0f;
            for (std::int64_t s = 0; s < n; ++s) {
                const float decay = one_rate ? head_decay : math::exp(dt * rates[s]);
                state.to[s] = std::fma(element(state.from, s), decay, dx * in[s]);
            }
            out.row<float>(head, t)[i % n_channels] =
                std::fma(skip.row<const float>(0)[head], now, dot16(state.to, read, n));
        }
}

/// arXiv:2404.05892 §4.2. Per head a matrix S, rows by key i, columns by value j: with kv = k_i·v_j, ascending in i,
/// y_j ← fma(r_i, fma(first_i, kv, S_ij), y_j) and S_ij ← fma(w_i, S_ij, kv).
void wkv6(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &r = call[1], &k = call[2], &v = call[3], &w = call[4], &first = call[5];
    const std::int64_t size = r.ne[0], n_head = r.ne[1];
    const Range columns = slice.share(size * n_head);
    for (std::int64_t t = 0; t < r.ne[2]; ++t)
        for (std::int64_t column = columns.begin; column < columns.end; ++column) {
            const std::int64_t head = column / size, j = column % size;
            const StateStep state = step_of(call[6], call[7], t, head * size * size);
            const auto *r_row = r.row<const float>(head, t), *k_row = k.row<const float>(head, t);
            const auto *w_row = w.row<const float>(head, t), *bonus = first.row<const float>(head);
            const float value = v.row<const float>(head, t)[j];
            float y = 0.0f;
            for (std::int64_t i = 0; i < size; ++i) {
                const float s = element(state.from, i * size + j), kv = k_row[i] * value;
                y = std::fma(r_row[i], std::fma(bonus[i], kv, s), y);
                state.to[i * size + j] = std::fma(w_row[i], s, kv);
            }
            out.row<float>(head, t)[j] = y;
        }
}

/// arXiv:2503.14456 §4. Per head a matrix S, rows by value i, columns by key j: q = −⟨S_i, κ⟩,
/// S_ij ← fma(q, κ_j·a_j, fma(v_i, k_j, w_j·S_ij)), y_i = ⟨S_i, r⟩; products by 16 lanes of fma.
void wkv7(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &r = call[1], &w = call[2], &k = call[3], &v = call[4], &kappa = call[5],
                  &a = call[6];
    const std::int64_t size = r.ne[0], n_head = r.ne[1];
    const Range rows = slice.share(size * n_head);
    for (std::int64_t t = 0; t < r.ne[2]; ++t)
        for (std::int64_t row = rows.begin; row < rows.end; ++row) {
            const std::int64_t head = row / size, i = row % size;
            const StateStep state = step_of(call[7], call[8], t, row * size);
            const auto *w_row = w.row<const float>(head, t), *k_row = k.row<const float>(head, t);
            const auto *removal = kappa.row<const float>(head, t), *rate = a.row<const float>(head, t);
            const float value = v.row<const float>(head, t)[i];
            const float q = state.from == nullptr ? 0.0f : -dot16(state.from, removal, size);
            for (std::int64_t j = 0; j < size; ++j)
                state.to[j] =
                    std::fma(q, removal[j] * rate[j], std::fma(value, k_row[j], w_row[j] * element(state.from, j)));
            out.row<float>(head, t)[i] = dot16(state.to, r.row<const float>(head, t), size);
        }
}

/// arXiv:2412.06464. Per head a matrix S, rows by value i, columns by key j: S_ij ← γ·S_ij, δ = β·(v_i − ⟨S_i, k⟩),
/// S_ij ← fma(k_j, δ, S_ij), y_i = ⟨S_i, q⟩ · params.scale; products by 16 lanes of fma. γ is one number per head, or
/// γ_j, one for each key (arXiv:2510.26692). Value heads share key heads: consecutive ones, or,
/// interleaved, every Hk-th.
void delta_rule(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &q = call[1], &k = call[2], &v = call[3], &gamma = call[4], &beta = call[5];
    const std::int64_t size = v.ne[0], n_head = v.ne[1], n_key_head = k.ne[1], values_per_key = n_head / n_key_head;
    const bool by_key = gamma.ne[2] == v.ne[2] && gamma.ne[1] == n_head && gamma.ne[0] == size;
    const Range rows = slice.share(size * n_head);
    for (std::int64_t t = 0; t < v.ne[2]; ++t)
        for (std::int64_t row = rows.begin; row < rows.end; ++row) {
            const std::int64_t head = row / size, i = row % size;
            const std::int64_t key_head = call.params.modulo_heads != 0 ? head % n_key_head : head / values_per_key;
            const StateStep state = step_of(call[6], call[7], t, row * size);
            const auto *q_row = q.row<const float>(key_head, t), *k_row = k.row<const float>(key_head, t);
            if (by_key) {
                const auto* decays = gamma.row<const float>(head, t);
                for (std::int64_t j = 0; j < size; ++j) state.to[j] = element(state.from, j) * decays[j];
            } else {
                const float decay = gamma.row<const float>(t)[head];
                for (std::int64_t j = 0; j < size; ++j) state.to[j] = element(state.from, j) * decay;
            }
            const float delta =
                beta.row<const float>(t)[head] * (v.row<const float>(head, t)[i] - dot16(state.to, k_row, size));
            for (std::int64_t j = 0; j < size; ++j) state.to[j] = std::fma(k_row[j], delta, state.to[j]);
            out.row<float>(head, t)[i] = dot16(state.to, q_row, size) * call.params.scale;
        }
}

/// arXiv:2405.17381. Per head a matrix S, rows by value i, columns by key j: S_ij ← fma(k_j, v_i, λ·S_ij),
/// y_i = ⟨S_i, q⟩, the product by 16 lanes of fma. λ = exp(−σ·params.scale), σ the head's slope of ALiBi with a bias of
/// 8, in double and rounded once.
void decay_rule(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &q = call[1], &k = call[2], &v = call[3];
    const std::int64_t size = v.ne[0], n_head = v.ne[1];
    const Range rows = slice.share(size * n_head);
    for (std::int64_t t = 0; t < v.ne[2]; ++t)
        for (std::int64_t row = rows.begin; row < rows.end; ++row) {
            const std::int64_t head = row / size, i = row % size;
            const StateStep state = step_of(call[4], call[5], t, row * size);
            const double power = -8.0 * static_cast<double>(head + 1) / static_cast<double>(n_head);
            const auto decay =
                static_cast<float>(math::exp(-math::exp2(power) * static_cast<double>(call.params.scale)));
            const auto* k_row = k.row<const float>(head, t);
            const float value = v.row<const float>(head, t)[i];
            for (std::int64_t j = 0; j < size; ++j)
                state.to[j] = std::fma(k_row[j], value, decay * element(state.from, j));
            out.row<float>(head, t)[i] = dot16(state.to, q.row<const float>(head, t), size);
        }
}

}  // namespace tinfer::kernels::ref
