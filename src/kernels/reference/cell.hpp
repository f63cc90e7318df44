// SPDX-License-Identifier: MIT
// Elements of a cache of each float type: the one rounding at the store, the exact widening at the load.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/half.hpp"
#include "kernels/quants/format.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::kernels::ref {

struct CellF32 {
    using Stored = float;
    static Stored store(float x) noexcept { return x; }
    static float load(Stored x) noexcept { return x; }
};

/// Nearest even; finite values beyond ±65504 saturate, infinities and NaN stay what they are.
struct CellF16 {
    using Stored = std::uint16_t;
    static Stored store(float x) noexcept {
        const bool beyond = std::isfinite(x) && std::fabs(x) > 65504.0f;
        return f32_to_f16<reference>(beyond ? std::copysign(65504.0f, x) : x);
    }
    static float load(Stored x) noexcept { return f16_to_f32<reference>(x); }
};

struct CellBf16 {
    using Stored = std::uint16_t;
    static Stored store(float x) noexcept { return f32_to_bf16<reference>(x); }
    static float load(Stored x) noexcept { return bf16_to_f32<reference>(x); }
};

/// Calls fn with the cell type of a cache's element type.
template <class Fn>
void visit_cell(DType type, Fn fn) noexcept {
    if (type == DType::f32) fn(CellF32{});
    if (type == DType::f16) fn(CellF16{});
    if (type == DType::bf16) fn(CellBf16{});
}

}  // namespace tinfer::kernels::ref
