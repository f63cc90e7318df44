// SPDX-License-Identifier: MIT
// One block of each type from float32 values. The layouts are those that kernels/quants/ reads; the searches stand in
// search.hpp. docs/tools.md has the formulas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.hpp"
#include "tinfer/tensor.hpp"

namespace tinfer::quantize {

/// What a block is encoded with beside its values.
struct BlockContext {
    const float* importance = nullptr;  ///< of the block's columns, or null
    float row_mean_square = 0;          ///< Σ x² / n of the whole row; for importance alone
    QuantizeSearch search = QuantizeSearch::standard;
};

using BlockEncoder = void (*)(const float* x, const BlockContext& context, std::byte* out) noexcept;

/// Null where a type cannot be written.
[[nodiscard]] BlockEncoder encoder_of(DType type) noexcept;

// ---- one function per type
void encode_q4_0(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_q4_1(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_q5_0(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_q5_1(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_q8_0(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_q2_k(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_q3_k(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_q4_k(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_q5_k(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_q6_k(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_iq4_nl(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_iq4_xs(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_iq1_s(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_iq1_m(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_iq2_xxs(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_iq2_xs(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_iq2_s(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_iq3_xxs(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_iq3_s(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_mxfp4(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_nvfp4(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_q1_0(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_q2_0(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_tq1_0(const float* x, const BlockContext& context, std::byte* out) noexcept;
void encode_tq2_0(const float* x, const BlockContext& context, std::byte* out) noexcept;

// ---- for the encoders

inline void put_half(std::byte* out, float value) noexcept {
    const std::uint16_t half = f32_to_f16(value);
    std::memcpy(out, &half, sizeof half);
}
/// The value that readers will see.
[[nodiscard]] inline float as_half(float value) noexcept { return f16_to_f32(f32_to_f16(value)); }
inline void put_byte(std::byte* out, int value) noexcept { *out = static_cast<std::byte>(value); }
/// 1/d, or 0 where that is not finite: scales too small to divide by.
[[nodiscard]] inline float inverse(float d) noexcept {
    const float magnitude = d < 0 ? -d : d;
    return magnitude < 2.9387359e-39f ? 0.0f : 1.0f / d;
}

}  // namespace tinfer::quantize
