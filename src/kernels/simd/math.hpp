// SPDX-License-Identifier: MIT
// exp, sigmoid, softplus, SiLU, GELU and tanh on sixteen lanes: the one sequence of operations of base/math_lanes.hpp,
// run on registers.
#pragma once

#include "base/math_lanes.hpp"
#include "kernels/simd/vec.hpp"

namespace tinfer::kernels {

/// The lanes type of base/math_lanes.hpp for one register.
template <class Arch>
struct VectorLanes {
    using F = f32v<Arch>;
    using I = i32v<Arch>;
    static constexpr bool kScales = Arch::kLanes == 16;
    static TINFER_INLINE F set(float x) noexcept { return F(x); }
    static TINFER_INLINE F add(F a, F b) noexcept { return a + b; }
    static TINFER_INLINE F sub(F a, F b) noexcept { return a - b; }
    static TINFER_INLINE F mul(F a, F b) noexcept { return a * b; }
    static TINFER_INLINE F div(F a, F b) noexcept { return divide(a, b, Arch{}); }
    static TINFER_INLINE F fma(F a, F b, F c) noexcept { return kernels::fma(a, b, c, Arch{}); }
    static TINFER_INLINE F select_lt(F a, F b, F yes, F no) noexcept { return xsimd::select(a < b, yes, no); }
    static TINFER_INLINE F larger(F a, F b) noexcept { return kernels::larger(a, b, Arch{}); }
    static TINFER_INLINE F smaller(F a, F b) noexcept { return kernels::smaller(a, b, Arch{}); }
    static TINFER_INLINE F scale(F a, F n) noexcept { return scale_by_power(a, n, Arch{}); }
    static TINFER_INLINE F abs(F x) noexcept { return from_bits(bits(x) & I(0x7FFFFFFF)); }
    static TINFER_INLINE F copy_sign(F magnitude, F sign) noexcept {
        constexpr auto kSign = static_cast<std::int32_t>(0x80000000u);
        return from_bits((bits(magnitude) & I(0x7FFFFFFF)) | (bits(sign) & I(kSign)));
    }
    static TINFER_INLINE I bits(F x) noexcept { return kernels::bits(x, Arch{}); }
    static TINFER_INLINE F from_bits(I i) noexcept { return kernels::from_bits(i, Arch{}); }
    static TINFER_INLINE I sub_i(I a, I b) noexcept { return a - b; }
    static TINFER_INLINE I add_i(I a, std::int32_t b) noexcept { return a + I(b); }
    static TINFER_INLINE I half_i(I a) noexcept { return shift_right_1(a, Arch{}); }
    static TINFER_INLINE I exponent_i(I a) noexcept { return shift_left_23(a, Arch{}); }
};

template <class Arch>
TINFER_INLINE f32x16<Arch> exp(const f32x16<Arch>& x) noexcept {
    return f32x16<Arch>::each([&](int i) { return math::exp<VectorLanes<Arch>>(x.part[i]); });
}
/// exp where x ≤ 0 or NaN: the same bits.
template <class Arch>
TINFER_INLINE f32x16<Arch> exp_below(const f32x16<Arch>& x) noexcept {
    return f32x16<Arch>::each([&](int i) { return math::exp_below<VectorLanes<Arch>>(x.part[i]); });
}
template <class Arch>
TINFER_INLINE f32x16<Arch> sigmoid(const f32x16<Arch>& x) noexcept {
    return f32x16<Arch>::each([&](int i) { return math::sigmoid<VectorLanes<Arch>>(x.part[i]); });
}
template <class Arch>
TINFER_INLINE f32x16<Arch> softplus(const f32x16<Arch>& x) noexcept {
    return f32x16<Arch>::each([&](int i) { return math::softplus<VectorLanes<Arch>>(x.part[i]); });
}
template <class Arch>
TINFER_INLINE f32x16<Arch> silu(const f32x16<Arch>& x) noexcept {
    return f32x16<Arch>::each([&](int i) { return math::silu<VectorLanes<Arch>>(x.part[i]); });
}
template <class Arch>
TINFER_INLINE f32x16<Arch> gelu(const f32x16<Arch>& x) noexcept {
    return f32x16<Arch>::each([&](int i) { return math::gelu<VectorLanes<Arch>>(x.part[i]); });
}
template <class Arch>
TINFER_INLINE f32x16<Arch> tanh(const f32x16<Arch>& x) noexcept {
    return f32x16<Arch>::each([&](int i) { return math::tanh<VectorLanes<Arch>>(x.part[i]); });
}

}  // namespace tinfer::kernels
