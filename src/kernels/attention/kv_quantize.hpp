// SPDX-License-Identifier: MIT
// KV slots as 8-bit or 4-bit codes with one f16 scale per 32 channels: quantization, and where the codes go
// (kernels/attention/kv_layout.hpp). One template for the reference and every instruction set, so there is one
// definition.
//
//   q8_0   numerics rule 6: d = max|x| / 127, code = x/d rounded half to even
//   q4_0   M = the value of the largest magnitude, the first on ties; d = M / −8; code = min(15, trunc(x · (1/d)
//   + 8.5)) − 8
//
// Codes are made with d in float32, which is then rounded to f16; a finite d beyond 65504 saturates. Where |d| is below
// the smallest normal float all codes are 0; a value that is not finite makes d NaN and all codes 0.
#pragma once

#include <cstring>

#include "base/half.hpp"
#include "kernels/attention/kv_layout.hpp"
#include "kernels/quants/activation_q8.hpp"

namespace tinfer::kernels {

/// The q4_0 codes of 32 values; returns d.
template <class Arch>
float quantize_4bit(const float* x, std::int8_t* q) noexcept {
    std::uint32_t most = 0;
    float value = 0.0f;
    for (int i = 0; i < 32; ++i) {
        const std::uint32_t magnitude = __builtin_bit_cast(std::uint32_t, x[i]) & 0x7FFFFFFFu;
        if (magnitude > most) most = magnitude, value = x[i];
    }
    const bool finite = most < 0x7F800000u;
    const float d = finite ? value / -8.0f : __builtin_bit_cast(float, 0x7FC00000u);
    const float inverse = d >= 0x1p-126f || d <= -0x1p-126f ? 1.0f / d : 0.0f;  // NaN compares false
    for (int i = 0; i < 32; ++i) {
        const int code = static_cast<int>((finite ? x[i] * inverse : 0.0f) + 8.5f);  // x / d ∈ [−8, 8], so 0 … 16
        q[i] = static_cast<std::int8_t>((code < 15 ? code : 15) - 8);
    }
    return d;
}

/// 32 values as codes −127 … 127 or −8 … 7; returns the scale as f16.
template <class Arch>
std::uint16_t quantize_kv_slot(DType type, const float* x, std::int8_t* q) noexcept {
    float d = type == DType::q8_0 ? quantize_block<Arch>(x, 32, q) : quantize_4bit<Arch>(x, q);
    if (d > 65504.0f && d < __builtin_inff()) d = 65504.0f;
    if (d < -65504.0f && d > -__builtin_inff()) d = -65504.0f;
    return f32_to_f16<Arch>(d);
}

/// Codes and scale of channels 32·block … of a KV slot into its K group, lane = KV slot mod 16.
template <class Arch>
void store_k_codes(DType type, std::byte* group, std::int64_t d, std::int64_t lane, std::int64_t block,
                   const std::int8_t* q, std::uint16_t scale) noexcept {
    for (int w = 0; w < (type == DType::q8_0 ? 8 : 4); ++w) {
        std::uint8_t word[4];
        for (int j = 0; j < 4; ++j)
            word[j] = type == DType::q8_0 ? static_cast<std::uint8_t>(q[4 * w + j])
                                          : static_cast<std::uint8_t>((q[8 * w + j] + 8) | (q[8 * w + 4 + j] + 8) << 4);
        std::memcpy(group + code_bytes(type, 32) * kGroup * block + 64 * w + 4 * lane, word, 4);
    }
    std::memcpy(group + k_scale(type, d, lane, block), &scale, 2);
}

/// The same into its V row.
template <class Arch>
void store_v_codes(DType type, std::byte* row, std::int64_t d, std::int64_t block, const std::int8_t* q,
                   std::uint16_t scale) noexcept {
    std::byte* to = row + code_bytes(type, 32) * block;
    if (type == DType::q8_0) {
        std::memcpy(to, q, 32);
    } else {
        for (int j = 0; j < 16; ++j) to[j] = static_cast<std::byte>((q[j] + 8) | (q[16 + j] + 8) << 4);
    }
    std::memcpy(row + v_scale(type, d, block), &scale, 2);
}

/// A head's channels, a whole number of blocks, into its place in a cache.
template <class Arch>
void store_kv_slot(DType type, bool is_v, std::byte* place, std::int64_t d, std::int64_t lane,
                   const float* x) noexcept {
    std::int8_t q[32];
    for (std::int64_t b = 0; b < d / kKvBlock; ++b) {
        const std::uint16_t scale = quantize_kv_slot<Arch>(type, x + b * kKvBlock, q);
        if (is_v) store_v_codes<Arch>(type, place, d, b, q, scale);
        else store_k_codes<Arch>(type, place, d, lane, b, q, scale);
    }
}

/// A query as factor of coded keys: codes, and per 32 channels their scale and sum times −bias.
struct CodedQuery {
    std::int8_t* codes;
    float* d;
    std::int32_t* acc_init;
    static constexpr std::int64_t floats(std::int64_t d) noexcept {
        return (d / 4 + 2 * (d / kKvBlock) + 15) / 16 * 16;
    }
};
template <class Arch>
CodedQuery coded_query(float* memory, std::int64_t d) noexcept {
    return {reinterpret_cast<std::int8_t*>(memory), memory + d / 4,
            reinterpret_cast<std::int32_t*>(memory + d / 4 + d / kKvBlock)};
}
/// numerics rule 6. Dots of codes that stand `bias` too high begin at `acc_init`.
template <class Arch>
void quantize_query(const float* q, std::int64_t d, int bias, const CodedQuery& out) noexcept {
    for (std::int64_t b = 0; b < d / kKvBlock; ++b) {
        out.d[b] = quantize_block<Arch>(q + b * kKvBlock, 32, out.codes + b * kKvBlock);
        out.acc_init[b] = -bias * sum_codes<Arch>(out.codes + b * kKvBlock, 32);
    }
}

/// Whether KV slots of this type are codes.
template <class Arch>
constexpr bool is_coded(DType type) noexcept {
    return type == DType::q8_0 || type == DType::q4_0;
}

}  // namespace tinfer::kernels
