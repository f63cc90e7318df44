// SPDX-License-Identifier: MIT
// Keys of groups of tokens, compressed to one (DeepSeek V4) or averaged: lanes are channels. Orders of operations as in
// reference/compressed.cpp.
#pragma once

#include "kernels/recurrent/rows.hpp"

namespace tinfer::kernels {

/// Σ_i p_i·t_i / Σ_i p_i over the tokens of the group that ends in front of position `end`, p = exp(g − max), i
/// ascending from 0; without g the mean. `state`: a row of `row` floats for every position modulo `window`, with g
/// behind t; of the first half of a window the first half of t and g, where `overlap`.
template <class Arch>
TINFER_INLINE f32x16<Arch> compressed(const float* state, std::int64_t row, std::int64_t width, std::int64_t window,
                                      bool overlap, std::int64_t end, std::int64_t d, int n) noexcept {
    const std::int64_t half = overlap ? width / 2 : 0, missing = window - end;
    const auto at = [&](std::int64_t i) {
        return state + (end - window + i) % window * row + (overlap && i >= window / 2 ? half : 0) + d;
    };
    f32x16<Arch> sum(0.0f), total(0.0f);
    if (row == width) {
        for (std::int64_t i = 0; i < window; ++i) sum = sum + load_piece<Arch>(at(i), n);
        return sum / f32x16<Arch>(static_cast<float>(window));
    }
    const std::int64_t first = missing > 0 ? missing : 0;
    f32x16<Arch> largest(-__builtin_inff());
    for (std::int64_t i = first; i < window; ++i) largest = greater(load_piece<Arch>(at(i) + width, n), largest);
    for (std::int64_t i = first; i < window; ++i) {
        const auto p = exp(load_piece<Arch>(at(i) + width, n) - largest);
        sum = fma(p, load_piece<Arch>(at(i), n), sum);
        total = total + p;
    }
    return sum / total;
}

template <class Arch>
void compress_keys(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &t = call[1], &g = call[2], &added = call[3], &states = call[5];
    const std::int64_t width = t.ne[0], size = call.params.block, n_channels = out.ne[0];
    const bool overlap = call.params.overlap != 0;
    const std::int64_t row = g.present() ? 2 * width : width, window = overlap ? 2 * size : size;
    const Range channels = slice.share(n_channels);
    each_piece<Arch>(channels.end - channels.begin, [&](std::int64_t first, int n) {
        const std::int64_t d = channels.begin + first;
        for (std::int64_t token = 0; token < t.ne[1]; ++token) {
            const auto* rows = call[6].template row<const std::int32_t>(token);
            auto* state = states.template row<float>(rows[1]);
            if (rows[0] != rows[1]) {
                const float* from = rows[0] < 0 ? nullptr : states.template row<const float>(rows[0]);
                for (std::int64_t c = d; c < states.ne[0]; c += n_channels)
                    store_piece(from == nullptr ? f32x16<Arch>(0.0f) : load_piece<Arch>(from + c, n), state + c, n);
            }
            const std::int64_t position = call[4].template row<const std::int32_t>(0)[token], end = position + 1;
            float* own = state + position % window * row;
            for (std::int64_t c = d; c < width; c += n_channels) {
                store_piece(load_piece<Arch>(t.template row<const float>(token) + c, n), own + c, n);
                if (g.present())
                    store_piece(load_piece<Arch>(g.template row<const float>(token) + c, n) +
                                    load_piece<Arch>(added.template row<const float>(position % size) + c, n),
                                own + width + c, n);
            }
            const bool ends = end % size == 0;
            store_piece(ends ? compressed<Arch>(state, row, width, window, overlap, end, d, n) : f32x16<Arch>(0.0f),
                        out.template row<float>(token) + d, n);
        }
    });
}

}  // namespace tinfer::kernels
