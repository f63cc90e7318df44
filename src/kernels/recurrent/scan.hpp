// SPDX-License-Identifier: MIT
// The selective scan of state spaces, the short convolution before it and the mixing with the token before. Orders of
// operations as in reference/recurrent.cpp.
#pragma once

#include "kernels/recurrent/rows.hpp"
#include "kernels/reference/ops.hpp"

namespace tinfer::kernels {

/// Sixteen channels of a scan, or fewer: where each stands among heads and groups.
struct ScanBlock {
    std::int64_t first;
    int n;
    std::int64_t heads[kStateBlock], groups[kStateBlock], places[kStateBlock];
    alignas(64) float skip[kStateBlock];
};

inline constexpr int kScanBlocks = 4;                      ///< as many channels as a prompt's rows fill four lines with
inline constexpr std::int64_t kScanStateBytes = 16 << 10;  ///< their numbers lie in L1 with the rates

/// One token of a block: h ← h·exp(Δ·a) + (Δ·x)·B, y = D·x + ⟨h, C⟩. N is the number of states, 0 where it is known at
/// run time only.
template <class Arch, bool OneRate, int N>
TINFER_INLINE void scan_token(const KernelCall& call, const ScanBlock& block, std::int64_t t,
                              RowSums<Arch>& read) noexcept {
    const Operand &out = call[0], &x = call[1], &delta = call[2], &a = call[3], &b = call[4], &c = call[5];
    const std::int64_t n_state = N > 0 ? N : b.ne[0];
    const int n = block.n;
    const StateStep state = state_step<Arch>(call[7], call[8], t, block.first * n_state, n * n_state);
    alignas(64) float now[kStateBlock] = {}, dt[kStateBlock] = {}, decay[kStateBlock] = {}, dx[kStateBlock];
    const auto* steps = delta.template row<const float>(t);
    for (int r = 0; r < n; ++r) {
        now[r] = x.template row<const float>(block.heads[r], t)[block.places[r]];
        dt[r] = steps[block.heads[r]];
        if (OneRate) decay[r] = *a.template row<const float>(block.heads[r]);
    }
    const auto step = f32x16<Arch>::load(dt), value = f32x16<Arch>::load(now);
    (step * value).store(dx);
    if (OneRate) exp(step * f32x16<Arch>::load(decay)).store(decay);
    for (int r = 0; r < n; ++r) {
        const auto *in = b.template row<const float>(block.groups[r], t),
                   *reading = c.template row<const float>(block.groups[r], t);
        const float* rates = OneRate ? nullptr : a.template row<const float>(block.heads[r]);
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
    alignas(64) float y[kStateBlock];
    fma(f32x16<Arch>::load(block.skip), value, read.reduce(n)).store(y);
    for (int r = 0; r < n; ++r) out.template row<float>(block.heads[r], t)[block.places[r]] = y[r];
}

/// All tokens pass over a few blocks, whose states stay in L1. What the next token reads and writes is prefetched: its
/// row lies in another page.
template <class Arch, bool OneRate, int N>
void scan_blocks(const KernelCall& call, const ScanBlock* blocks, int n_blocks) noexcept {
    RowSums<Arch> read;
    const std::int64_t n_tokens = call[1].ne[2];
    for (std::int64_t t = 0; t < n_tokens; ++t) {
        const std::int64_t next = t + 1 < n_tokens ? t + 1 : t;
        for (int i = 0; i < n_blocks; ++i) {
            const ScanBlock& block = blocks[i];
            __builtin_prefetch(call[1].template row<const float>(block.heads[0], next) + block.places[0]);
            __builtin_prefetch(call[2].template row<const float>(next) + block.heads[0]);
            __builtin_prefetch(call[0].template row<float>(block.heads[0], next) + block.places[0], 1);
            scan_token<Arch, OneRate, N>(call, block, t, read);
        }
    }
}

template <class Arch>
void selective_scan(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &x = call[1], &b = call[4], &skip = call[6];
    const std::int64_t per_head = x.ne[0], n_state = b.ne[0], heads_per_group = x.ne[1] / b.ne[1];
    const bool one_rate = call[3].ne[0] == 1;
    const std::int64_t fitting = kScanStateBytes / (kStateBlock * n_state * static_cast<std::int64_t>(sizeof(float)));
    const int most = fitting < 1 ? 1 : fitting < kScanBlocks ? static_cast<int>(fitting) : kScanBlocks;
    const Range channels = slice.share(per_head * x.ne[1]);
    std::int64_t head = channels.begin / per_head, place = channels.begin % per_head;
    std::int64_t group = head / heads_per_group, in_group = head % heads_per_group;
    for (std::int64_t first = channels.begin; first < channels.end;) {
        ScanBlock blocks[kScanBlocks];
        int n_blocks = 0;
        for (; n_blocks < most && first < channels.end; ++n_blocks) {
            ScanBlock& block = blocks[n_blocks];
            const std::int64_t left = channels.end - first;
            block.first = first;
            block.n = left < kStateBlock ? static_cast<int>(left) : kStateBlock;
            for (int r = 0; r < kStateBlock; ++r) block.skip[r] = 0.0f;
            for (int r = 0; r < block.n; ++r) {
                block.heads[r] = head;
                block.places[r] = place;
                block.groups[r] = group;
                block.skip[r] = skip.template row<const float>(0)[head];
                if (++place < per_head) continue;
                place = 0;
                ++head;
                if (++in_group < heads_per_group) continue;
                in_group = 0;
                ++group;
            }
            first += block.n;
        }
        if (one_rate && n_state == kUsualWidth) scan_blocks<Arch, true, kUsualWidth>(call, blocks, n_blocks);
        else if (one_rate) scan_blocks<Arch, true, 0>(call, blocks, n_blocks);
        else if (n_state == 16) scan_blocks<Arch, false, 16>(call, blocks, n_blocks);
        else scan_blocks<Arch, false, 0>(call, blocks, n_blocks);
    }
}

inline constexpr std::int64_t kMaxTaps = 16;  ///< of a convolution that vectors do; longer ones have no use for them
inline constexpr std::int64_t kConvChannels = 256;  ///< that all tokens pass over at a time: taps and state stay in L1

/// y_t[c] = Σ_j K[j,c]·x_{t−(n−1−j)·d}[c] (+ b[c]); lanes are channels.
template <class Arch>
void causal_conv(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1], &weight = call[2], &bias = call[3];
    const std::int64_t n = weight.ne[0], n_channels = x.ne[0], d = call.params.dilation, n_before = (n - 1) * d;
    if (n > kMaxTaps) return ref::causal_conv(call, slice);
    const Range share = slice.share(n_channels);
    alignas(64) float taps[kMaxTaps][kConvChannels];
    for (std::int64_t first = share.begin; first < share.end; first += kConvChannels) {
        const std::int64_t width = share.end - first < kConvChannels ? share.end - first : kConvChannels;
        for (std::int64_t c = 0; c < width; ++c)
            for (std::int64_t j = 0; j < n; ++j) taps[j][c] = weight.template row<const float>(first + c)[j];
        const float* added = bias.present() ? bias.template row<const float>(0) + first : nullptr;
        for (std::int64_t t = 0; t < x.ne[1]; ++t) {
            const auto* row = call[5].template row<const std::int32_t>(t);
            const float* from = row[0] < 0 ? nullptr : call[4].template row<const float>(row[0]) + first;
            float* to = call[4].template row<float>(row[1]) + first;
            const auto* in = x.template row<const float>(t) + first;
            const auto* next = x.template row<const float>(t + 1 < x.ne[1] ? t + 1 : t) + first;
            auto* y = out.template row<float>(t) + first;
            each_piece<Arch>(width, [&](std::int64_t c, int count) {
                __builtin_prefetch(next + c);
                const auto now = load_piece<Arch>(in + c, count);
                f32x16<Arch> sum(0.0f);
                for (std::int64_t j = 0; j < n_before; ++j) {
                    const auto before =
                        from == nullptr ? f32x16<Arch>(0.0f) : load_piece<Arch>(from + j * n_channels + c, count);
                    if (d == 1 || j % d == 0) sum = fma(load_piece<Arch>(taps[j / d] + c, count), before, sum);
                    if (j > 0) store_piece(before, to + (j - 1) * n_channels + c, count);
                }
                store_piece(now, to + (n_before - 1) * n_channels + c, count);
                sum = fma(load_piece<Arch>(taps[n - 1] + c, count), now, sum);
                store_piece(added != nullptr ? sum + load_piece<Arch>(added + c, count) : sum, y + c, count);
            });
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
