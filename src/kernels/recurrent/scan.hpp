// SPDX-License-Identifier: MIT
// The selective scan of state spaces, the short convolution before it and the mixing with the token before. Orders of
// operations as in reference/recurrent.cpp.
#pragma once

#include "kernels/recurrent/rows.hpp"
#include "kernels/reference/ops.hpp"

namespace tinfer::kernels {

/// Each channel keeps N numbers: h ← h·exp(Δ·a) + (Δ·x)·B, y = D·x + ⟨h, C⟩. Channels [first, first + n) of a model;
/// OneRate: a has one value per head.
template <class Arch, bool OneRate>
TINFER_INLINE void scan_channels(const KernelCall& call, std::int64_t first, int n) noexcept {
    const Operand &out = call[0], &x = call[1], &delta = call[2], &a = call[3], &b = call[4], &c = call[5],
                  &skip = call[6];
    const std::int64_t per_head = x.ne[0], n_state = b.ne[0], heads_per_group = x.ne[1] / b.ne[1];
    RowSums<Arch> read;
    alignas(64) float now[16] = {}, dt[16] = {}, decay[16] = {}, d[16] = {}, dx[16];
    std::int64_t heads[16], places[16];
    for (int r = 0; r < n; ++r) {
        heads[r] = (first + r) / per_head;
        places[r] = (first + r) % per_head;
        d[r] = skip.template row<const float>(0)[heads[r]];
    }
    for (std::int64_t t = 0; t < x.ne[2]; ++t) {
        const StateStep state = state_step<Arch>(call[7], call[8], t, first * n_state, n * n_state);
        for (int r = 0; r < n; ++r) {
            now[r] = x.template row<const float>(heads[r], t)[places[r]];
            dt[r] = delta.template row<const float>(t)[heads[r]];
            if (OneRate) decay[r] = *a.template row<const float>(heads[r]);
        }
        const auto step = f32x16<Arch>::load(dt), value = f32x16<Arch>::load(now);
        (step * value).store(dx);
        if (OneRate) exp(step * f32x16<Arch>::load(decay)).store(decay);
        for (int r = 0; r < n; ++r) {
            const std::int64_t group = heads[r] / heads_per_group;
            const auto *in = b.template row<const float>(group, t), *reading = c.template row<const float>(group, t);
            const float* rates = OneRate ? nullptr : a.template row<const float>(heads[r]);
            const auto input = f32x16<Arch>::broadcast(dx + r), all = f32x16<Arch>::broadcast(decay + r),
                       own_step = f32x16<Arch>::broadcast(dt + r);
            f32x16<Arch> sum(0.0f);
            each_piece<Arch>(n_state, [&](std::int64_t s, int count) {
                const auto kept = OneRate ? all : exp(own_step * load_piece<Arch>(rates + s, count));
                const auto h = fma(load_piece<Arch>(state.from + r * n_state + s, count), kept,
                                   input * load_piece<Arch>(in + s, count));
                store_piece(h, state.to + r * n_state + s, count);
                sum = fma(trimmed(h, count), load_piece<Arch>(reading + s, count), sum);
            });
            sum.store(read.lanes[r]);
        }
        alignas(64) float y[16];
        fma(f32x16<Arch>::load(d), value, read.reduce(n)).store(y);
        for (int r = 0; r < n; ++r) out.template row<float>(heads[r], t)[places[r]] = y[r];
    }
}

template <class Arch>
void selective_scan(const KernelCall& call, WorkSlice slice) noexcept {
    const bool one_rate = call[3].ne[0] == 1;
    const Range channels = slice.share(call[1].ne[0] * call[1].ne[1]);
    for (std::int64_t first = channels.begin; first < channels.end; first += kStateBlock) {
        const std::int64_t left = channels.end - first;
        const int n = left < kStateBlock ? static_cast<int>(left) : kStateBlock;
        one_rate ? scan_channels<Arch, true>(call, first, n) : scan_channels<Arch, false>(call, first, n);
    }
}

inline constexpr std::int64_t kMostTaps = 16;  ///< of a convolution that vectors do; longer ones have no use for them

/// y_t[c] = Σ_j K[j,c]·x_{t−(n−1−j)·d}[c] (+ b[c]); lanes are channels.
template <class Arch>
void causal_conv(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1], &weight = call[2], &bias = call[3];
    const std::int64_t n = weight.ne[0], n_channels = x.ne[0], d = call.params.dilation, n_before = (n - 1) * d;
    if (n > kMostTaps) return ref::causal_conv(call, slice);
    const Range channels = slice.share(n_channels);
    for (std::int64_t first = channels.begin; first < channels.end; first += 16) {
        const int count = channels.end - first < 16 ? static_cast<int>(channels.end - first) : 16;
        alignas(64) float taps[kMostTaps][16] = {};
        for (int c = 0; c < count; ++c)
            for (std::int64_t j = 0; j < n; ++j) taps[j][c] = weight.template row<const float>(first + c)[j];
        const auto added =
            bias.present() ? load_piece<Arch>(bias.template row<const float>(0) + first, count) : f32x16<Arch>(0.0f);
        for (std::int64_t t = 0; t < x.ne[1]; ++t) {
            const auto* row = call[5].template row<const std::int32_t>(t);
            const float* from = row[0] < 0 ? nullptr : call[4].template row<const float>(row[0]) + first;
            float* to = call[4].template row<float>(row[1]) + first;
            const auto now = load_piece<Arch>(x.template row<const float>(t) + first, count);
            f32x16<Arch> sum(0.0f);
            for (std::int64_t j = 0; j < n_before; ++j) {
                const auto before =
                    from == nullptr ? f32x16<Arch>(0.0f) : load_piece<Arch>(from + j * n_channels, count);
                if (d == 1 || j % d == 0) sum = fma(f32x16<Arch>::load(taps[j / d]), before, sum);
                if (j > 0) store_piece(before, to + (j - 1) * n_channels, count);
            }
            store_piece(now, to + (n_before - 1) * n_channels, count);
            sum = fma(f32x16<Arch>::load(taps[n - 1]), now, sum);
            store_piece(bias.present() ? sum + added : sum, out.template row<float>(t) + first, count);
        }
    }
}

/// y_t = x_{t−1} − x_t.
template <class Arch>
void token_shift(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1];
    const Range channels = slice.share(x.ne[0]);
    for (std::int64_t t = 0; t < x.ne[1]; ++t) {
        const auto* row = call[3].template row<const std::int32_t>(t);
        const float* from = row[0] < 0 ? nullptr : call[2].template row<const float>(row[0]) + channels.begin;
        float* to = call[2].template row<float>(row[1]) + channels.begin;
        const auto* now = x.template row<const float>(t) + channels.begin;
        auto* y = out.template row<float>(t) + channels.begin;
        each_piece<Arch>(channels.end - channels.begin, [&](std::int64_t c, int n) {
            const auto own = load_piece<Arch>(now + c, n);
            const auto before = from == nullptr ? f32x16<Arch>(0.0f) : load_piece<Arch>(from + c, n);
            store_piece(before - own, y + c, n);
            store_piece(own, to + c, n);
        });
    }
}

}  // namespace tinfer::kernels
