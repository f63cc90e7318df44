// SPDX-License-Identifier: MIT
// Element types of tensors: those of GGUF files, and two of activations that exist in memory only.
//
//     std::cout << to_string(tinfer::DType::q4_k) << '\n';   // "q4_k"
#pragma once

#include <cstdint>
#include <string_view>

#include "tinfer/export.hpp"

namespace tinfer {

/// Element type of a tensor. Values below 0x1000 are the ids of the GGUF format; the others exist in memory only.
// clang-format off
enum class DType : std::uint32_t {
    f32 = 0, f16 = 1, q4_0 = 2, q4_1 = 3, q5_0 = 6, q5_1 = 7, q8_0 = 8, q8_1 = 9, q2_k = 10, q3_k = 11, q4_k = 12,
    q5_k = 13, q6_k = 14, q8_k = 15, iq2_xxs = 16, iq2_xs = 17, iq3_xxs = 18, iq1_s = 19, iq4_nl = 20, iq3_s = 21,
    iq2_s = 22, iq4_xs = 23, i8 = 24, i16 = 25, i32 = 26, i64 = 27, f64 = 28, iq1_m = 29, bf16 = 30, tq1_0 = 34,
    tq2_0 = 35, mxfp4 = 39, nvfp4 = 40, q1_0 = 41, q2_0 = 42,
    x8_32 = 0x1000,    ///< activations as int8 with one float scale per 32 values (partner of 32-value weights)
    x8_256 = 0x1001,   ///< activations as int8 with one float scale per 256 values (partner of 256-value weights)
    none = 0xFFFF,
};
// clang-format on

/// "q4_k" for DType::q4_k; "unknown" for ids that are not in the list.
[[nodiscard]] TINFER_API std::string_view to_string(DType type) noexcept;

}  // namespace tinfer
