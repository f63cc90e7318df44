// SPDX-License-Identifier: MIT
// What changes scaled scores before the softmax, where a model has it: a soft cap, ALiBi, biases by distance.
#pragma once

#include "kernels/attention/online_softmax.hpp"

namespace tinfer::kernels {

/// Scores of one row and tile, 64 in four vectors: c · tanh(s / c), then fma(−slope, |distance|, s), then s +
/// bias[distance]; each where the call has it.
template <class Arch>
[[gnu::noinline]] void apply_score_mods(const KernelCall& call, const AttentionTile<Arch>& tile,
                                        const AttentionRow<Arch>& row, f32x16<Arch> (&x)[4]) noexcept {
    const float softcap = call.params.attention.softcap;
    const f32x16<Arch> cap(softcap);
    const std::int64_t farthest = call[9].ne[0] / 2;
    for (int i = 0; i < 4; ++i) {
        if (softcap != 0.0f) x[i] = cap * tanh(x[i] / cap);
        if (row.slope == 0.0f && row.bias == nullptr) continue;
        alignas(64) float distance[16] = {}, bias[16] = {};
        for (int l = 0; l < 16; ++l) {
            if ((tile.live >> (16 * i + l) & 1) == 0) continue;
            const std::int64_t d = call[8].template row<const std::int32_t>(0)[tile.kv_slot(16 * i + l)] - row.position;
            distance[l] = static_cast<float>(d < 0 ? -d : d);
            if (row.bias != nullptr) bias[l] = row.bias[d < -farthest ? -farthest : d > farthest ? farthest : d];
        }
        if (row.slope != 0.0f) x[i] = fma(f32x16<Arch>(-row.slope), f32x16<Arch>::load(distance), x[i]);
        if (row.bias != nullptr) x[i] = x[i] + f32x16<Arch>::load(bias);
    }
}

}  // namespace tinfer::kernels
