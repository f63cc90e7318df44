// SPDX-License-Identifier: MIT
// Keys that lie anywhere, brought together in groups of sixteen as a cache holds them, so that what multiplies a group
// of neighbours multiplies them too and no lane works for nothing.
#pragma once

#include "base/dtype.hpp"
#include "kernels/attention/q8_kv.hpp"

namespace tinfer::kernels {

/// n lanes of one group of K, from `lane` on, to a group's lanes from `to_lane` on, units of Unit bytes.
template <class Arch, int Unit>
TINFER_INLINE void copy_lanes(const std::byte* from, std::int64_t lane, std::byte* to, std::int64_t to_lane, int n,
                              std::int64_t n_units) noexcept {
    from += lane * Unit;
    to += to_lane * Unit;
    for (std::int64_t i = 0; i < n_units; ++i, from += kGroup * Unit, to += kGroup * Unit) {
        if (n == 1) std::memcpy(to, from, Unit);
        else
            for (int l = 0; l < n; ++l) std::memcpy(to + l * Unit, from + l * Unit, Unit);
    }
}

/// The keys of n ≤ 64 KV slots of a cache of one type, those of one KV head: four groups, the i-th key in lane i mod 16
/// of group i / 16. Slots that follow each other in a group are copied together.
template <class Arch>
void gather_keys(const Operand& cache, std::int64_t head, std::int64_t n_head, std::int64_t d,
                 const std::int32_t* kv_slots, int n, std::byte* to) noexcept {
    const std::int64_t bytes = row_bytes(cache.type, d);
    for (int i = 0; i < n;) {
        const std::int64_t kv_slot = kv_slots[i], lane = kv_slot % kGroup, to_lane = i % kGroup;
        const int most = static_cast<int>(kGroup - (lane > to_lane ? lane : to_lane));
        int run = 1;
        while (run < most && i + run < n && kv_slots[i + run] == kv_slot + run) ++run;
        const std::byte* from = cache.data + k_group_offset(kv_slot, head, n_head, bytes);
        std::byte* group = to + i / kGroup * kGroup * bytes;
        if (run == kGroup) {
            std::memcpy(group, from, static_cast<std::size_t>(kGroup * bytes));
        } else if (cache.type == DType::f32) {
            copy_lanes<Arch, 4>(from, lane, group, to_lane, run, d);
        } else if (is_coded<Arch>(cache.type)) {
            const std::int64_t codes = code_bytes(cache.type, d);
            copy_lanes<Arch, 4>(from, lane, group, to_lane, run, codes / 4);
            copy_lanes<Arch, 2>(from + kGroup * codes, lane, group + kGroup * codes, to_lane, run, d / kKvBlock);
        } else {
            copy_lanes<Arch, 2>(from, lane, group, to_lane, run, d);
        }
        i += run;
    }
}

/// A group of K as float32; of codes each scale · code.
template <class Arch>
void widen_group(DType type, const std::byte* group, std::int64_t d, float* to) noexcept {
    with_kv_slot<Arch>(type, [&](auto kind) {
        using KvSlot = decltype(kind);
        const auto* from = reinterpret_cast<const typename KvSlot::Stored*>(group);
        for (std::int64_t c = 0; c < d; ++c) KvSlot::load(from + c * kGroup).store(to + c * kGroup);
    });
    if (!is_coded<Arch>(type)) return;
    for (std::int64_t c = 0; c < d; ++c) {
        const auto* scales = reinterpret_cast<const std::uint16_t*>(group + k_scale(type, d, 0, c / kKvBlock));
        alignas(64) float codes[kGroup];
        for (std::int64_t lane = 0; lane < kGroup; ++lane) {
            const CodePlace at = k_code(type, lane, c);
            const int byte = static_cast<int>(group[at.byte]);
            codes[lane] =
                static_cast<float>(type == DType::q8_0 ? static_cast<std::int8_t>(byte) : (byte >> at.shift & 15) - 8);
        }
        (f32x16<Arch>::load_f16(scales) * f32x16<Arch>::load(codes)).store(to + c * kGroup);
    }
}

/// The same keys as rows, of which only n are wanted: row i has channel c of lane i mod 16 of group i / 16.
template <class Arch>
void rows_of_groups(const float* groups, int n, std::int64_t d, float* rows) noexcept {
    for (int i = 0; i < n; ++i) {
        const float* from = groups + i / kGroup * kGroup * d + i % kGroup;
        for (std::int64_t c = 0; c < d; ++c) rows[i * d + c] = from[c * kGroup];
    }
}

}  // namespace tinfer::kernels
