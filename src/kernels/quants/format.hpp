// SPDX-License-Identifier: MIT
// The two shapes into which every quantized format unpacks, so that products, panels and dequantization are written
// once. A format is one header in this folder: a struct with its sizes and one `unpack`, the format's own formula in
// integers. Codes are signed here whatever the file stores; sub-block scales are integers; what remains is one
// float.
//
//   super-blocks (256 values):  y[e] = (d · scale[e/16]) · q[e]  −  dmin · min[e/16]
//   blocks of 32 values:        y[e] = d[e/16] · q[e]  +  m
//
// Factors that are powers of two (the 1/8 of the codebook types) are folded into d, exactly. Products never round
// before the one float step that kernels.md §4.1 states:
//   super-blocks:  p = d·d_x;  acc = fma(p, float(S), acc), S = Σ_j scale_j Σ q·a;
//                  with mins:  n = dmin·d_x;  acc = fma(−n, float(N), acc), N = Σ_j min_j · sum16_j
//   blocks of 32:  p = d·d_x;  acc = fma(p, float(S), acc) (two such steps of 16 values where kScaleElems is 16);
//                  with m:     acc = fma(m, s_x, acc)
//
// Everything here is a template over the architecture tag, because units compiled for one instruction set include it.
#pragma once

#include <cstdint>

#include "tinfer/tensor.hpp"

namespace tinfer::kernels {

/// Tag of the table of plain loops. The others are in kernels/simd/x86.hpp and kernels/simd/neon.hpp.
struct reference {};

struct Codes256 {
    alignas(64) std::int8_t q[256];
    std::int16_t scale[16];  ///< types with one scale per 32 fill pairs alike
    std::int16_t min[16];    ///< only with kHasMin
    float d, dmin;           ///< dmin only with kHasMin
};

struct Codes32 {
    alignas(32) std::int8_t q[32];
    float d[2];  ///< alike unless kScaleElems is 16
    float m;     ///< only with kHasMin
};

// clang-format off
// A format:
//
//   struct Q4_K {
//       static constexpr DType kType = DType::q4_k;
//       static constexpr int kBlockElems = 256, kBlockBytes = 144;  // as in the file
//       static constexpr int kUnit = 256;        // 256: Codes256; 32: Codes32 (kBlockElems / 32 units)
//       static constexpr int kScaleElems = 32;   // values that share a scale: 16, 32 or 256 (no scales)
//       static constexpr bool kHasMin = true;
//       static constexpr int kMaxCode = 15;      // largest |q|: decides which integer routes are exact
//       template <class Arch> static void unpack(const std::uint8_t* block, int unit, Codes256& out) noexcept;
//   };
//
// `unit` counts the groups of 32 inside a larger block (nvfp4, q1_0, q2_0), and is 0 elsewhere. Fields are read with
// memcpy: blocks have no alignment.
// clang-format on

}  // namespace tinfer::kernels
