// SPDX-License-Identifier: MIT
// Where an element of K or V lies inside a cache: private to the kernels, so that it can be what they want. Observers see
// logical rows (row = page·64 + slot, all KV heads of one token); both layouts have the same total size.
// V: a row per position, because accumulation runs along head_dim. K: groups of 16 positions interleaved, [d][16], so that
// vector lanes are positions and a score is one fma chain over d without horizontal sums.
#pragma once

#include <cstdint>

namespace tinfer::kernels {

inline constexpr std::int64_t kGroup = 16;   ///< positions interleaved in K

/// Element index of K[cell][head][0]; consecutive channels are kGroup elements apart.
constexpr std::int64_t k_index(std::int64_t cell, std::int64_t head, std::int64_t n_head_kv, std::int64_t head_dim) noexcept {
    const std::int64_t page = cell / 64, slot = cell % 64;
    return ((page * n_head_kv + head) * 64 + slot / kGroup * kGroup) * head_dim + slot % kGroup;
}

/// Element index of V[cell][head][0]; channels are contiguous.
constexpr std::int64_t v_index(std::int64_t cell, std::int64_t head, std::int64_t n_head_kv, std::int64_t head_dim) noexcept {
    const std::int64_t page = cell / 64, slot = cell % 64;
    return ((page * n_head_kv + head) * 64 + slot) * head_dim;
}

}  // namespace tinfer::kernels
