// SPDX-License-Identifier: MIT
// Where K and V lie inside a cache: private to the kernels, so that it can be what they want. Observers see logical
// rows (row = page·64 + slot, all KV heads of one token); all layouts have the same total size, and a page is
// contiguous.
//
// A page holds, for one KV head after the other, 64 slots. V: a row per slot, because accumulation runs along head_dim.
// K: groups of 16 slots interleaved, so that vector lanes are positions and a score is one chain over the channels
// without horizontal sums. Inside a group of K or a row of V of d channels:
//
//   f32, f16, bf16   K [d][16]                                        V [d]
//   q8_0             K codes [d/4][16][4], then scales [d/32][16]     V codes [d], then scales [d/32]
//   q4_0             K codes [d/8][16][4], then scales [d/32][16]     V codes [d/32][16], then scales [d/32]
//
// Scales are f16. A byte of q4_0 holds two codes plus 8, the low half first: of K the channels 8w + j and 8w + 4 + j,
// of V the channels 32b + j and 32b + 16 + j.
#pragma once

#include <cstdint>

#include "tinfer/tensor.hpp"

namespace tinfer::kernels {

inline constexpr std::int64_t kGroup = 16;    ///< positions interleaved in K
inline constexpr std::int64_t kKvBlock = 32;  ///< channels that share a scale, where KV slots are quantized

/// Element index of K[kv_slot][head][0]; consecutive channels are kGroup elements apart.
constexpr std::int64_t k_index(std::int64_t kv_slot, std::int64_t head, std::int64_t n_head_kv,
                               std::int64_t head_dim) noexcept {
    const std::int64_t page = kv_slot / 64, slot = kv_slot % 64;
    return ((page * n_head_kv + head) * 64 + slot / kGroup * kGroup) * head_dim + slot % kGroup;
}

/// Element index of V[kv_slot][head][0]; channels are contiguous.
constexpr std::int64_t v_index(std::int64_t kv_slot, std::int64_t head, std::int64_t n_head_kv,
                               std::int64_t head_dim) noexcept {
    const std::int64_t page = kv_slot / 64, slot = kv_slot % 64;
    return ((page * n_head_kv + head) * 64 + slot) * head_dim;
}

/// Offset in bytes of the K group that holds a KV slot, and of the V row of a KV slot; head_bytes = row_bytes(type,
/// head_dim).
constexpr std::int64_t k_group_offset(std::int64_t kv_slot, std::int64_t head, std::int64_t n_head_kv,
                                      std::int64_t head_bytes) noexcept {
    return v_index(kv_slot / kGroup * kGroup, head, n_head_kv, head_bytes);
}
constexpr std::int64_t v_row_offset(std::int64_t kv_slot, std::int64_t head, std::int64_t n_head_kv,
                                    std::int64_t head_bytes) noexcept {
    return v_index(kv_slot, head, n_head_kv, head_bytes);
}

/// Where a code stands inside a K group (lane = KV slot mod 16) or a V row: its byte, and which half of it for q4_0.
struct CodePlace {
    std::int64_t byte;
    int shift;
};
constexpr CodePlace k_code(DType type, std::int64_t lane, std::int64_t channel) noexcept {
    if (type == DType::q8_0) return {channel / 4 * 64 + lane * 4 + channel % 4, 0};
    return {channel / 8 * 64 + lane * 4 + channel % 4, static_cast<int>(channel / 4 % 2 * 4)};
}
constexpr CodePlace v_code(DType type, std::int64_t channel) noexcept {
    if (type == DType::q8_0) return {channel, 0};
    return {channel / 32 * 16 + channel % 16, static_cast<int>(channel / 16 % 2 * 4)};
}

/// Bytes of the codes of d channels of one KV slot; the scales follow those of the whole group or row.
constexpr std::int64_t code_bytes(DType type, std::int64_t d) noexcept { return type == DType::q8_0 ? d : d / 2; }
constexpr std::int64_t k_scale(DType type, std::int64_t d, std::int64_t lane, std::int64_t block) noexcept {
    return kGroup * code_bytes(type, d) + (block * kGroup + lane) * 2;
}
constexpr std::int64_t v_scale(DType type, std::int64_t d, std::int64_t block) noexcept {
    return code_bytes(type, d) + block * 2;
}

}  // namespace tinfer::kernels
