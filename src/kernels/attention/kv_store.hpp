// SPDX-License-Identifier: MIT
// Writing K and V into a cache, with or without rotation on the way, and how KV slots of each float type are stored and
// loaded. KV slots of codes: kernels/attention/kv_quantize.hpp.
#pragma once

#include "base/dtype.hpp"
#include "base/half.hpp"
#include "kernels/attention/kv_layout.hpp"
#include "kernels/attention/kv_quantize.hpp"
#include "kernels/elementwise/rope.hpp"

namespace tinfer::kernels {

/// What KV slots of floats have in common: 16 of a row of V, or the first n of them and zeros, nothing behind them
/// read.
template <class Arch, class KvSlot, class Element>
struct FloatKvSlot {
    using Stored = Element;
    static constexpr bool kScaled = false;
    static constexpr std::int64_t row_bytes(std::int64_t n) noexcept { return n * std::int64_t{sizeof(Stored)}; }
    static TINFER_INLINE f32x16<Arch> load_row(const std::byte* row, std::int64_t channel, std::int64_t) noexcept {
        return KvSlot::load(reinterpret_cast<const Stored*>(row) + channel);
    }
    /// 16·Pieces channels of a row, from one on.
    template <int Pieces>
    struct Row {
        TINFER_INLINE Row(const std::byte* row, std::int64_t channel, std::int64_t) noexcept
            : first(reinterpret_cast<const Stored*>(row) + channel) {}
        [[nodiscard]] TINFER_INLINE f32x16<Arch> load(int piece) const noexcept {
            return KvSlot::load(first + 16 * piece);
        }
        const Stored* first;
    };
    static TINFER_INLINE f32x16<Arch> load_row(const std::byte* row, std::int64_t channel, std::int64_t d,
                                               int n) noexcept {
        if (n == 16) return load_row(row, channel, d);
        Stored piece[16] = {};
        for (int l = 0; l < n; ++l) piece[l] = reinterpret_cast<const Stored*>(row)[channel + l];
        return KvSlot::load(piece);
    }
};

template <class Arch>
struct KvSlotF32 : FloatKvSlot<Arch, KvSlotF32<Arch>, float> {
    using Stored = float;
    static TINFER_INLINE void store(const f32x16<Arch>& x, Stored* p) noexcept { x.store(p); }
    static TINFER_INLINE f32x16<Arch> load(const Stored* p) noexcept { return f32x16<Arch>::load(p); }
};
/// Rounded to nearest even; finite values beyond ±65504 saturate, infinities and NaN stay what they are.
template <class Arch>
struct KvSlotF16 : FloatKvSlot<Arch, KvSlotF16<Arch>, std::uint16_t> {
    using Stored = std::uint16_t;
    static TINFER_INLINE void store(const f32x16<Arch>& x, Stored* p) noexcept {
        using Lanes = VectorLanes<Arch>;
        const auto saturated = f32x16<Arch>::each([&](int i) {
            const f32v<Arch> value = x.part[i], size = Lanes::abs(value), most(65504.0f);
            const f32v<Arch> inf(__builtin_inff());
            const f32v<Arch> finite = Lanes::select_lt(size, inf, Lanes::copy_sign(most, value), value);
            return Lanes::select_lt(most, size, finite, value);
        });
        saturated.store_f16(p);
    }
    static TINFER_INLINE f32x16<Arch> load(const Stored* p) noexcept { return f32x16<Arch>::load_f16(p); }
};
template <class Arch>
struct KvSlotBf16 : FloatKvSlot<Arch, KvSlotBf16<Arch>, std::uint16_t> {
    using Stored = std::uint16_t;
    static TINFER_INLINE void store(const f32x16<Arch>& x, Stored* p) noexcept {
        alignas(64) float lanes[16];
        x.store(lanes);
        for (int l = 0; l < 16; ++l) p[l] = f32_to_bf16<Arch>(lanes[l]);
    }
    static TINFER_INLINE f32x16<Arch> load(const Stored* p) noexcept { return f32x16<Arch>::load_bf16(p); }
};

/// Calls fn with the KV slot type of a cache's element type.
template <class Arch, class Fn>
TINFER_INLINE void with_kv_slot(DType type, Fn fn) noexcept {
    if (type == DType::f32) fn(KvSlotF32<Arch>{});
    if (type == DType::f16) fn(KvSlotF16<Arch>{});
    if (type == DType::bf16) fn(KvSlotBf16<Arch>{});
}

/// Head h of token t of rows {d, n_head_kv, T} or {d·n_head_kv, T}.
template <class Arch>
inline const float* head_row(const Operand& rows, std::int64_t token, std::int64_t head, std::int64_t n_head,
                             std::int64_t d) noexcept {
    const bool by_head = rows.ne[0] == d && rows.ne[1] == n_head;
    return by_head ? rows.template row<const float>(head, token) : rows.template row<const float>(token) + head * d;
}

/// Calls fn(token, x, d, put) for this thread's share of (token, head); put(channel, values, n) stores n ≤ 16 channels.
/// A negative KV slot number is skipped.
template <class Arch, class Fn>
TINFER_INLINE void write_kv_slots(const KernelCall& call, WorkSlice slice, Fn fn) noexcept {
    const Operand &cache = call[0], &kv_slots = call[2];
    const AttentionParams& p = call.params.attention;
    const bool is_v = call.params.is_v != 0;
    const std::int64_t n_head = p.n_head_kv, d = is_v ? p.head_dim_v : p.head_dim_k;
    const Range items = slice.share(kv_slots.ne[0] * n_head);
    if (is_coded<Arch>(cache.type)) {  // quantized when a row is complete
        const std::int64_t bytes = row_bytes(cache.type, d);
        auto* row = reinterpret_cast<float*>(call.scratch(slice.thread));
        for (std::int64_t i = items.begin; i < items.end; ++i) {
            const std::int64_t token = i / n_head, head = i % n_head;
            const std::int64_t kv_slot = kv_slots.template row<const std::int32_t>(0)[token];
            if (kv_slot < 0) continue;
            fn(token, head_row<Arch>(call[1], token, head, n_head, d), d,
               [&](std::int64_t c, const f32x16<Arch>& values, int n) { store_piece(values, row + c, n); });
            const std::int64_t offset =
                is_v ? v_row_offset(kv_slot, head, n_head, bytes) : k_group_offset(kv_slot, head, n_head, bytes);
            store_kv_slot<Arch>(cache.type, is_v, cache.data + offset, d, kv_slot % kGroup, row);
        }
        return;
    }
    with_kv_slot<Arch>(cache.type, [&](auto kind) {
        using KvSlot = decltype(kind);
        auto* elements = reinterpret_cast<typename KvSlot::Stored*>(cache.data);
        for (std::int64_t i = items.begin; i < items.end; ++i) {
            const std::int64_t token = i / n_head, head = i % n_head;
            const std::int64_t kv_slot = kv_slots.template row<const std::int32_t>(0)[token];
            if (kv_slot < 0) continue;
            auto* to = elements + (is_v ? v_index(kv_slot, head, n_head, d) : k_index(kv_slot, head, n_head, d));
            const std::int64_t step = is_v ? 1 : kGroup;
            fn(token, head_row<Arch>(call[1], token, head, n_head, d), d,
               [&](std::int64_t channel, const f32x16<Arch>& values, int n) {
                   if (step == 1 && n == 16) return KvSlot::store(values, to + channel);
                   typename KvSlot::Stored stored[16];
                   KvSlot::store(values, stored);
                   for (int l = 0; l < n; ++l) to[(channel + l) * step] = stored[l];
               });
        }
    });
}

template <class Arch>
void kv_write(const KernelCall& call, WorkSlice slice) noexcept {
    write_kv_slots<Arch>(call, slice, [](std::int64_t, const float* x, std::int64_t d, auto put) {
        each_piece<Arch>(d, [&](std::int64_t i, int n) { put(i, load_piece<Arch>(x + i, n), n); });
    });
}

/// rope, then kv_write: the same bits as the two.
template <class Arch>
void rope_kv_write(const KernelCall& call, WorkSlice slice) noexcept {
    write_kv_slots<Arch>(call, slice, [&](std::int64_t token, const float* x, std::int64_t d, auto put) {
        rotate_head<Arch>(x, call[3].template row<const float>(token), call.params.rope, d, put);
    });
}

}  // namespace tinfer::kernels
