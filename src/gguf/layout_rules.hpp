// SPDX-License-Identifier: MIT
// Limits and sizes of the format that reader and writer share (docs/gguf.md).
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "base/checked.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"

namespace tinfer::gguf {

inline constexpr std::uint64_t kMaxKeys = 65536;
inline constexpr std::uint64_t kMaxTensors = 1048576;
inline constexpr std::uint64_t kMaxKeyBytes = 65535;
inline constexpr std::uint64_t kMaxAlignment = 65536;
inline constexpr std::uint64_t kMaxDims = 4;
inline constexpr std::uint64_t kInt64Max = std::numeric_limits<std::int64_t>::max();

[[nodiscard]] constexpr bool is_alignment(std::uint64_t alignment) noexcept {
    return alignment >= 8 && alignment <= kMaxAlignment && (alignment & (alignment - 1)) == 0;
}

using Extents = std::array<std::int64_t, kMaxDims>;  ///< contiguous dimension first, 1 where there is none

/// Elements of a tensor (V20). Each extent is at least 1 (V19). `refuse(code, text)` throws.
template <class Refuse>
std::uint64_t count_elements(const Extents& ne, const Refuse& refuse) {
    std::uint64_t elements = 1;
    for (std::size_t d = 0; d < ne.size(); ++d) {
        if (ne[d] < 1)
            refuse(ErrorCode::bad_tensor_info, cat("dimension ", d, " is ", ne[d], ", allowed are 1 to ", kInt64Max));
        const auto product = checked_mul(elements, static_cast<std::uint64_t>(ne[d]));
        if (!product || *product > kInt64Max)
            refuse(ErrorCode::size_overflow,
                   cat(ne[0], " × ", ne[1], " × ", ne[2], " × ", ne[3], " elements exceed ", kInt64Max));
        elements = product.value_or(0);
    }
    return elements;
}

struct TensorLayout {
    std::uint64_t row_bytes, bytes;
};

/// Rows are whole blocks (V22), and their bytes, padded to `alignment`, can be counted (V23, V24).
template <class Refuse>
TensorLayout tensor_layout(const Extents& ne, std::uint64_t elements, const DTypeInfo& type, std::uint64_t alignment,
                           const Refuse& refuse) {
    const auto block = static_cast<std::uint64_t>(type.block_elems), width = static_cast<std::uint64_t>(ne[0]);
    if (width % block != 0)
        refuse(ErrorCode::bad_tensor_info,
               cat("rows of ", width, " elements are not whole blocks of ", block, " (", type.name, ")"));
    const auto row = checked_mul(width / block, static_cast<std::uint64_t>(type.block_bytes));
    const auto bytes = row ? checked_mul(*row, elements / width) : row;  // elements / width = ne1 · ne2 · ne3, exactly
    if (!bytes || *bytes > kInt64Max)
        refuse(ErrorCode::size_overflow, cat("bytes of ", ne[0], " × ", ne[1], " × ", ne[2], " × ", ne[3], " ",
                                             type.name, " elements exceed ", kInt64Max));
    if (!checked_round_up(*bytes, alignment)) refuse(ErrorCode::size_overflow, cat(*bytes, " bytes cannot be padded"));
    return {*row, *bytes};
}

}  // namespace tinfer::gguf
