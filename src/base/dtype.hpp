// SPDX-License-Identifier: MIT
// Sizes and names of element types (the table of quant formats), and the layout of quantized activation rows.
#pragma once

#include <cstdint>
#include <string_view>

#include "tinfer/tensor.hpp"

namespace tinfer {

struct DTypeInfo {
    DType type;
    std::string_view name;     ///< "q4_k"
    std::int32_t block_elems;  ///< B: elements per block; rows are whole numbers of blocks
    std::int32_t block_bytes;  ///< S
    DType activation;          ///< partner in a product: x8_32, x8_256, f32 for float weights, none where unusable
};

/// The row of the table for a GGUF type id or internal type, or null when the id is unknown or removed.
[[nodiscard]] const DTypeInfo* find_dtype(std::uint32_t id) noexcept;
[[nodiscard]] inline const DTypeInfo* find_dtype(DType type) noexcept {
    return find_dtype(static_cast<std::uint32_t>(type));
}
[[nodiscard]] bool is_float(DType type) noexcept;       ///< f32, f16, bf16
[[nodiscard]] bool is_activation(DType type) noexcept;  ///< x8_32, x8_256

/// A quantized activation row of K values is a structure of arrays, each part 64-byte aligned inside the row:
/// int8 q[K]; float d[K/B]; then
///   x8_32:  float s[K/32] (d · sum of q), int32 sum[K/32];
///   x8_256: uint16 max_partial_sum[K/256][2], int16 sum32[K/32], int16 sum16[K/16] (sums of 32 and 16 q).
/// max_partial_sum bounds partial products of a super-block, so that kernels know when sixteen bits hold them: [0] is
/// the largest sum of positive, or of negated negative, q of any 32; [1] the largest sum of magnitudes of any 16.
struct ActivationLayout {
    std::int64_t d_offset, s_offset, sum_offset;  ///< s_offset is -1 for x8_256, where sum_offset is of sum16
    std::int64_t max_partial_sum_offset, sum32_offset, row_bytes;  ///< -1 for x8_32
};
[[nodiscard]] constexpr ActivationLayout activation_layout(DType type, std::int64_t k) noexcept {
    const auto align = [](std::int64_t bytes) { return (bytes + 63) / 64 * 64; };
    const std::int64_t d = align(k);
    if (type == DType::x8_32) {
        const std::int64_t part = align(k / 32 * 4);
        return {d, d + part, d + 2 * part, -1, -1, d + 3 * part};
    }
    const std::int64_t max_sum = d + align(k / 256 * 4), sum32 = max_sum + align(k / 256 * 4);
    const std::int64_t sum16 = sum32 + align(k / 32 * 2);
    return {d, -1, sum16, max_sum, sum32, sum16 + align(k / 16 * 2)};
}

/// Bytes of one row of n elements of any type; n must be a whole number of blocks.
[[nodiscard]] std::int64_t row_bytes(DType type, std::int64_t n) noexcept;

}  // namespace tinfer
