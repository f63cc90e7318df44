// SPDX-License-Identifier: MIT
// KV slots of a cache of each type: the one rounding at the store, the exact widening at the load, and the order of
// operations of a score.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/half.hpp"
#include "kernels/attention/kv_quantize.hpp"
#include "kernels/quants/format.hpp"
#include "tinfer/tensor.hpp"

namespace tinfer::kernels::ref {

struct KvSlotF32 {
    using Stored = float;
    static Stored store(float x) noexcept { return x; }
    static float load(Stored x) noexcept { return x; }
};

/// Nearest even; finite values beyond ±65504 saturate, infinities and NaN stay what they are.
struct KvSlotF16 {
    using Stored = std::uint16_t;
    static Stored store(float x) noexcept {
        const bool beyond = std::isfinite(x) && std::fabs(x) > 65504.0f;
        return f32_to_f16<reference>(beyond ? std::copysign(65504.0f, x) : x);
    }
    static float load(Stored x) noexcept { return f16_to_f32<reference>(x); }
};

struct KvSlotBf16 {
    using Stored = std::uint16_t;
    static Stored store(float x) noexcept { return f32_to_bf16<reference>(x); }
    static float load(Stored x) noexcept { return bf16_to_f32<reference>(x); }
};

/// A query's channels and, for coded keys, the same as codes.
struct Query {
    const float* x;
    CodedQuery codes;
};

/// KV slots of floats: s = fma(q[c], k[c], s), channels ascending.
template <class KvSlot>
struct FloatKvSlots {
    using Stored = typename KvSlot::Stored;
    static constexpr bool kCoded = false;
    static float dot(const Query& q, const std::byte* group, std::int64_t lane, std::int64_t d) noexcept {
        const auto* k = reinterpret_cast<const Stored*>(group) + lane;
        float s = 0.0f;
        for (std::int64_t c = 0; c < d; ++c) s = std::fma(q.x[c], KvSlot::load(k[c * kGroup]), s);
        return s;
    }
    static float value(const std::byte* row, std::int64_t c, std::int64_t) noexcept {
        return KvSlot::load(reinterpret_cast<const Stored*>(row)[c]);
    }
    static float key(const std::byte* group, std::int64_t lane, std::int64_t c, std::int64_t) noexcept {
        return KvSlot::load(reinterpret_cast<const Stored*>(group)[c * kGroup + lane]);
    }
};

/// KV slots of codes: per block of 32 channels, ascending, s = fma(d_k · d_q, float(Σ code_k · code_q), s); |Σ| ≤ 32 ·
/// 127². A value is d_v · code.
template <DType Type>
struct CodedKvSlots {
    static constexpr bool kCoded = true;
    static int code(const std::byte* from, CodePlace at) noexcept {
        const int byte = static_cast<int>(from[at.byte]);
        return Type == DType::q8_0 ? static_cast<std::int8_t>(byte) : (byte >> at.shift & 15) - 8;
    }
    static float scale(const std::byte* at) noexcept {
        std::uint16_t half;
        std::memcpy(&half, at, 2);
        return f16_to_f32<reference>(half);
    }
    static float dot(const Query& q, const std::byte* group, std::int64_t lane, std::int64_t d) noexcept {
        float s = 0.0f;
        for (std::int64_t b = 0; b < d / kKvBlock; ++b) {
            int sum = 0;
            for (std::int64_t c = b * kKvBlock; c < (b + 1) * kKvBlock; ++c)
                sum += code(group, k_code(Type, lane, c)) * q.codes.codes[c];
            s = std::fma(scale(group + k_scale(Type, d, lane, b)) * q.codes.d[b], static_cast<float>(sum), s);
        }
        return s;
    }
    static float key(const std::byte* group, std::int64_t lane, std::int64_t c, std::int64_t d) noexcept {
        return scale(group + k_scale(Type, d, lane, c / kKvBlock)) *
               static_cast<float>(code(group, k_code(Type, lane, c)));
    }
    static float value(const std::byte* row, std::int64_t c, std::int64_t d) noexcept {
        return scale(row + v_scale(Type, d, c / kKvBlock)) * static_cast<float>(code(row, v_code(Type, c)));
    }
};

/// Calls fn with the element type of a cache of floats.
template <class Fn>
void with_kv_slot(DType type, Fn fn) noexcept {
    if (type == DType::f32) fn(KvSlotF32{});
    if (type == DType::f16) fn(KvSlotF16{});
    if (type == DType::bf16) fn(KvSlotBf16{});
}
/// Calls fn with the KV slots of any cache.
template <class Fn>
void with_kv_slots(DType type, Fn fn) noexcept {
    with_kv_slot(type, [&]<class KvSlot>(KvSlot) { fn(FloatKvSlots<KvSlot>{}); });
    if (type == DType::q8_0) fn(CodedKvSlots<DType::q8_0>{});
    if (type == DType::q4_0) fn(CodedKvSlots<DType::q4_0>{});
}

}  // namespace tinfer::kernels::ref
