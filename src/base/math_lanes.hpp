// SPDX-License-Identifier: MIT
// exp, sigmoid, softplus, SiLU, GELU and tanh of float32, written once over "lanes": one float in the reference, a
// vector in the tables of instruction sets. The same operations in the same order on every lane give the same bits
// everywhere (numerics rule 9).
//
// A lanes type V is a struct of static functions over V::F (floats) and V::I (32-bit integers, wrapping):
//   F set(float)   F add/sub/mul/div(F, F)   F fma(F a, F b, F c) = a·b + c, rounded once
//   F select_lt(F a, F b, F yes, F no) = a < b ? yes : no, false where a or b is NaN
//   F larger(F a, F b) = a > b ? a : b   F smaller(F a, F b) = a < b ? a : b, both b where either is NaN
//   F abs(F)   F copy_sign(F magnitude, F sign)   I bits(F)   F from_bits(I)   I sub_i(I, I)   I add_i(I, std::int32_t)
//   I half_i(I) = arithmetic shift right by one   I exponent_i(I) = shift left by 23
//   where kScales:   F scale(F a, F n) = a · 2^n, rounded once
//
// Units compiled for one instruction set instantiate these with a type of their own, so no symbol is shared. They are
// always inlined: a call would spill every register that holds lanes, and load every constant again.
#pragma once

#include <cstdint>

namespace tinfer::math {

/// 2^n in every lane, n + 127 being a valid exponent.
template <class V>
[[gnu::always_inline]] inline typename V::F power_of_two(typename V::I n) noexcept {
    return V::from_bits(V::exponent_i(V::add_i(n, 127)));
}

/// exp(x) where -104 ≤ x ≤ 89 or NaN: 2^n · exp(r), n = round(x / ln 2), |r| ≤ ln 2 / 2; exp(r) = 1 + (r + r²·q(r)), q
/// of degree 4 interpolated at Chebyshev nodes (relative error of the sum 1e-8).
template <class V>
[[gnu::always_inline]] inline typename V::F exp_between(typename V::F x) noexcept {
    using F = typename V::F;
    // Adding 1.5·2^23 rounds to an integer, which then stands in the low bits; a NaN only makes n meaningless.
    const F magic = V::set(0x1.8p23f);
    const F shifted = V::fma(x, V::set(0x1.715476p+0f), magic);
    const F n = V::sub(shifted, magic);
    F r = V::fma(n, V::set(-0x1.62e43p-1f), x);  // exact
    r = V::fma(n, V::set(0x1.05c61p-29f), r);    // ln 2 = 0x1.62e43p-1 − 0x1.05c61p-29
    F q = V::set(0x1.6d117cp-10f);
    q = V::fma(q, r, V::set(0x1.120be2p-7f));
    q = V::fma(q, r, V::set(0x1.555518p-5f));
    q = V::fma(q, r, V::set(0x1.5554dcp-3f));
    q = V::fma(q, r, V::set(0.5f));
    const F p = V::add(V::set(1.0f), V::fma(V::mul(r, r), q, r));
    if constexpr (V::kScales) {
        return V::scale(p, n);
    } else {
        // 2^n in two factors, so that n = 128 and subnormal results need no special case: only the last product rounds.
        const auto whole = V::sub_i(V::bits(shifted), V::bits(magic));
        const auto half = V::half_i(whole);
        return V::mul(V::mul(p, power_of_two<V>(half)), power_of_two<V>(V::sub_i(whole, half)));
    }
}
/// exp(x) where x ≤ 0 or NaN.
template <class V>
[[gnu::always_inline]] inline typename V::F exp_below(typename V::F x) noexcept {
    return exp_between<V>(V::larger(V::set(-104.0f), x));
}
/// Below 1.1 ulp for every float; exactly 1 at ±0; subnormal results are kept, 0 from -104 down; +inf from 88.722847
/// up; NaN stays NaN.
template <class V>
[[gnu::always_inline]] inline typename V::F exp(typename V::F x) noexcept {
    return exp_below<V>(V::smaller(V::set(89.0f), x));
}

/// 1 / (1 + exp(−x)).
template <class V>
[[gnu::always_inline]] inline typename V::F sigmoid(typename V::F x) noexcept {
    const auto one = V::set(1.0f);
    return V::div(one, V::add(one, exp<V>(V::sub(V::set(0.0f), x))));
}

/// x / (1 + exp(−x)). Below −88.7 the divisor is +inf and the result −0.
template <class V>
[[gnu::always_inline]] inline typename V::F silu(typename V::F x) noexcept {
    return V::div(x, V::add(V::set(1.0f), exp<V>(V::sub(V::set(0.0f), x))));
}

/// log(1 + exp(x)) = max(x, 0) + log(1 + t), t = exp(−|x|): the logarithm of base/math.cpp where its argument u = 1 + t
/// lies in [1, 2], and what u lost of t, divided by u. At most 3 ulp.
template <class V>
[[gnu::always_inline]] inline typename V::F softplus(typename V::F x) noexcept {
    using F = typename V::F;
    const F zero = V::set(0.0f), one = V::set(1.0f), t = exp_below<V>(V::sub(zero, V::abs(x))), u = V::add(one, t);
    const F lost = V::sub(t, V::sub(u, one));
    // u = 2^e · (1 + f) with 1 + f in [√½, √2); e is 0 or 1
    const F root_two = V::set(0x1.6a09e6p+0f);
    const F f = V::sub(V::select_lt(u, root_two, u, V::mul(u, V::set(0.5f))), one);
    const F e = V::select_lt(u, root_two, zero, one), z = V::mul(f, f);
    F p = V::set(0x1.1d8ea6p-4f);
    p = V::fma(p, f, V::set(-0x1.d6358cp-4f));
    p = V::fma(p, f, V::set(0x1.dea282p-4f));
    p = V::fma(p, f, V::set(-0x1.fcf4c6p-4f));
    p = V::fma(p, f, V::set(0x1.23d21ap-3f));
    p = V::fma(p, f, V::set(-0x1.555b4ap-3f));
    p = V::fma(p, f, V::set(0x1.999d5ap-3f));
    p = V::fma(p, f, V::set(-0x1.fffffcp-3f));
    p = V::fma(p, f, V::set(0x1.555554p-2f));
    F low = V::mul(p, V::mul(f, z));
    low = V::fma(e, V::set(-0x1.05c61p-29f), low);
    low = V::fma(z, V::set(-0.5f), low);
    const F high = V::fma(e, V::set(0x1.62e43p-1f), f);
    const F given_back = V::add(V::fma(e, V::set(0x1.62e43p-1f), V::sub(zero, high)), f);
    const F log_u = V::add(high, V::add(low, given_back));
    const F tail = V::select_lt(one, u, V::add(log_u, V::div(lost, u)), t);
    return V::select_lt(zero, x, V::add(x, tail), tail);
}

/// GELU in its tanh form, ½x·(1 + tanh(a)) with a = √(2/π)·(x + 0.044715·x³) (arXiv:1606.08415 §2), as x / (1 +
/// exp(−2a)). NaN at −inf, the limit 0 at every finite number far enough below 0.
template <class V>
[[gnu::always_inline]] inline typename V::F gelu(typename V::F x) noexcept {
    using F = typename V::F;
    const F cube = V::mul(V::mul(x, x), x);
    const F a = V::mul(V::fma(cube, V::set(0.044715f), x), V::set(-1.5957691f));  // −2√(2/π)
    return V::div(x, V::add(V::set(1.0f), exp<V>(a)));
}

/// |x| < 0.625: x + x³·P(x²); else ±(1 − 2 / (exp(2|x|) + 1)). At most 2 ulp.
template <class V>
[[gnu::always_inline]] inline typename V::F tanh(typename V::F x) noexcept {
    using F = typename V::F;
    const F a = V::abs(x), one = V::set(1.0f), z = V::mul(x, x);
    F p = V::set(-0x1.8f86fp-8f);
    p = V::fma(p, z, V::set(0x1.58035cp-6f));
    p = V::fma(p, z, V::set(-0x1.b9256ap-5f));
    p = V::fma(p, z, V::set(0x1.110e1cp-3f));
    p = V::fma(p, z, V::set(-0x1.555552p-2f));
    const F small = V::fma(V::mul(z, a), p, a);
    const F large = V::sub(one, V::div(V::set(2.0f), V::add(exp<V>(V::add(a, a)), one)));
    return V::copy_sign(V::select_lt(a, V::set(0.625f), small, large), x);
}

}  // namespace tinfer::math
