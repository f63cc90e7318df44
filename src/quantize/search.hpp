// SPDX-License-Identifier: MIT
// Searches for the scale of a few values (docs/tools.md gives the formulas). L groups are searched at once, value e
// of group g at [e · L + g]: each group has the arithmetic of a loop of its own, in the same order, and the compiler
// has lanes to fill. So a file does not depend on the width of vectors. All of it is float32, each operation rounded
// (numerics rule 2).
#pragma once

#include <array>
#include <cmath>

#include "quantize/lanes.hpp"

namespace tinfer::quantize {

inline constexpr float kTiny = 1e-15f;  ///< magnitudes below are zero

inline constexpr float kRounding = 12582912.0f;  ///< 1.5 · 2^23: its last place is 1

/// To the nearest integer, ties to even; |x| ≤ 2^22.
[[nodiscard]] inline float round_even(float x) noexcept { return (x + kRounding) - kRounding; }

/// The nearest integer in [low, high], both integers. NaN gives low.
[[nodiscard]] inline float round_within(float x, float low, float high) noexcept {
    x = x > low ? x : low;
    return round_even(x < high ? x : high);
}

template <int L>
[[nodiscard, gnu::always_inline]] inline Registers<L> round_within(const Registers<L>& x, const Registers<L>& low,
                                                                   const Registers<L>& high) noexcept {
    const Registers<L> magic(kRounding);
    return (smaller(larger(x, low), high) + magic) - magic;
}

template <int L>
using Lanes = std::array<float, L>;

/// Codes −m … m−1 and one signed scale for n values with weights: y = scale · code.
template <int L>
struct Symmetric {
    Lanes<L> scale{};
    std::array<float, 256> codes{};  ///< {L, n}, 0 … 2m−1 as stored; a group of zeros has 0 everywhere
};

template <int L>
struct Extreme {
    Lanes<L> magnitude{}, value{};  ///< of the largest magnitude, the first where several are
};

template <int L>
[[nodiscard]] Extreme<L> extreme_of(const float* x, int n) noexcept {
    Extreme<L> e;
    for (int i = 0; i < n; ++i)
        for (int g = 0; g < L; ++g) {
            const float v = x[i * L + g], a = std::fabs(v);
            const bool larger = a > e.magnitude[g];
            e.magnitude[g] = larger ? a : e.magnitude[g];
            e.value[g] = larger ? v : e.value[g];
        }
    return e;
}

/// Σ (w·x)·l and Σ (w·l)·l for l = the codes that the inverse scales f give.
template <int L>
struct Fit {
    Lanes<L> p{}, q{};
};

template <int L>
[[nodiscard]] Fit<L> fit_symmetric(const float* x, const float* w, int n, float m, const Lanes<L>& f,
                                   float* codes) noexcept {
    const Registers<L> inverse(f.data()), low(-m), high(m - 1.0f);
    Registers<L> p(0.0f), q(0.0f);
    for (int i = 0; i < n; ++i) {
        const Registers<L> v(x + i * L), weight(w + i * L), l = round_within(inverse * v, low, high);
        l.store(codes + i * L);
        p += weight * v * l;
        q += weight * l * l;
    }
    Fit<L> fit;
    p.store(fit.p.data());
    q.store(fit.q.data());
    return fit;
}

/// Copies the codes of the groups whose mark is 1; others have 0. Codes are small integers, so nothing is rounded.
template <int L>
void keep_codes(const Lanes<L>& marks, const float* from, float* to, int n) noexcept {
    const Registers<L> mark(marks.data());
    for (int i = 0; i < n; ++i) {
        const Registers<L> old(to + i * L);
        (old + mark * (Registers<L>(from + i * L) - old)).store(to + i * L);
    }
}

template <int L>
[[nodiscard]] bool any(const Lanes<L>& marks) noexcept {
    float sum = 0;
    for (const float mark : marks) sum += mark;
    return sum != 0;
}

/// The inverse scale −m/M for the extreme M; ±m for a group of zeros, whose result is thrown away.
template <int L>
[[nodiscard]] Lanes<L> inverse_scales(const Extreme<L>& extreme, float m) noexcept {
    Lanes<L> f{};
    for (int g = 0; g < L; ++g) f[g] = -m / (extreme.magnitude[g] < kTiny ? 1.0f : extreme.value[g]);
    return f;
}

/// Best of nineteen scales around the one that maps the extreme to −m, each refitted by least squares. `steps` inverse
/// scales on either side, `width` apart in units of a code.
template <int L>
[[nodiscard]] Symmetric<L> search_symmetric(const float* x, const float* w, int n, int m, int steps = 9,
                                            float width = 0.1f) noexcept {
    const auto extreme = extreme_of<L>(x, n);
    const auto levels = static_cast<float>(m);
    Symmetric<L> out;
    std::array<float, 256> codes;
    Lanes<L> best{};
    const auto first = fit_symmetric<L>(x, w, n, levels, inverse_scales(extreme, levels), out.codes.data());
    for (int g = 0; g < L; ++g) {
        out.scale[g] = first.q[g] > 0 ? first.p[g] / first.q[g] : 0.0f;
        best[g] = out.scale[g] * first.p[g];
    }
    for (int t = -steps; t <= steps; ++t) {
        if (t == 0) continue;
        const auto f = inverse_scales(extreme, levels + width * static_cast<float>(t));
        const auto fit = fit_symmetric<L>(x, w, n, levels, f, codes.data());
        Lanes<L> better{};
        for (int g = 0; g < L; ++g) {
            const bool is = fit.q[g] > 0 && fit.p[g] * fit.p[g] > best[g] * fit.q[g];
            better[g] = is ? 1.0f : 0.0f;
            const float scale = fit.p[g] / (is ? fit.q[g] : 1.0f);
            out.scale[g] = is ? scale : out.scale[g];
            best[g] = is ? scale * fit.p[g] : best[g];
        }
        if (any<L>(better)) keep_codes<L>(better, codes.data(), out.codes.data(), n);
    }
    for (int i = 0; i < n; ++i)
        for (int g = 0; g < L; ++g)
            out.codes[i * L + g] = extreme.magnitude[g] < kTiny ? 0 : out.codes[i * L + g] + levels;
    for (int g = 0; g < L; ++g) out.scale[g] = extreme.magnitude[g] < kTiny ? 0 : out.scale[g];
    return out;
}

/// One scale, then codes one by one, each moved where that fits better: for few levels (q3_k). Weights are x².
template <int L>
[[nodiscard]] Symmetric<L> descend_symmetric(const float* x, const float* w, int n, int m) noexcept {
    const auto extreme = extreme_of<L>(x, n);
    const auto levels = static_cast<float>(m);
    Symmetric<L> out;
    auto [p, q] = fit_symmetric<L>(x, w, n, levels, inverse_scales(extreme, levels), out.codes.data());
    Lanes<L> active;
    active.fill(1.0f);
    for (int sweep = 0; sweep < 5 && any<L>(active); ++sweep) {
        Lanes<L> changed{};
        for (int i = 0; i < n; ++i)
            for (int g = 0; g < L; ++g) {
                const float v = x[i * L + g], weight = w[i * L + g], l = out.codes[i * L + g];
                const float p_without = p[g] - weight * v * l, q_without = q[g] - weight * l * l;
                const float c = round_within(v * q_without / p_without, -levels, levels - 1.0f);
                const float p_with = p_without + weight * v * c, q_with = q_without + weight * c * c;
                const bool is = active[g] != 0 && p_without > 0 && c != l && q_with > 0 &&
                                p_with * p_with * q[g] > p[g] * p[g] * q_with;
                out.codes[i * L + g] = is ? c : l;
                p[g] = is ? p_with : p[g];
                q[g] = is ? q_with : q[g];
                changed[g] = is ? 1.0f : changed[g];
            }
        active = changed;
    }
    for (int g = 0; g < L; ++g) out.scale[g] = extreme.magnitude[g] >= kTiny && q[g] > 0 ? p[g] / q[g] : 0.0f;
    for (int i = 0; i < n; ++i)
        for (int g = 0; g < L; ++g)
            out.codes[i * L + g] = extreme.magnitude[g] < kTiny ? 0 : out.codes[i * L + g] + levels;
    return out;
}

/// y = scale · code − min, codes 0 … N, min ≥ 0.
template <int L>
struct Asymmetric {
    Lanes<L> scale{}, min{};
    std::array<float, 256> codes{};
};

struct AsymmetricGrid {
    float first, step;  ///< inverse scales (first + step · k + N) / (high − low)
    int last;           ///< k = 0 … last
    bool squared;       ///< else magnitudes of errors count
};

namespace search_detail {

template <int L>
[[nodiscard]] Lanes<L> error_of(const float* x, const float* w, int n, const float* codes, const Lanes<L>& scale,
                                const Lanes<L>& low, bool squared) noexcept {
    const Registers<L> of_code(scale.data()), of_all(low.data()), zero(0.0f);
    Registers<L> sum(0.0f);
    for (int i = 0; i < n; ++i) {
        const Registers<L> off = of_code * Registers<L>(codes + i * L) + of_all - Registers<L>(x + i * L);
        if (squared) sum += Registers<L>(w + i * L) * (off * off);
        else sum += Registers<L>(w + i * L) * larger(off, zero - off);
    }
    Lanes<L> error;
    sum.store(error.data());
    return error;
}

}  // namespace search_detail

/// Best of several scales, each with its minimum refitted by least squares; later ones start from the best minimum.
template <int L>
[[nodiscard]] Asymmetric<L> search_asymmetric(const float* x, const float* w, int n, int n_levels,
                                              const AsymmetricGrid& grid) noexcept {
    const auto top = static_cast<float>(n_levels);
    Lanes<L> sum_w{}, sum_wx{}, low{}, high{}, flat{}, f{};
    for (int g = 0; g < L; ++g) low[g] = high[g] = x[g];
    for (int i = 0; i < n; ++i)
        for (int g = 0; g < L; ++g) {
            const float v = x[i * L + g], weight = w[i * L + g];
            low[g] = v < low[g] ? v : low[g];
            high[g] = v > high[g] ? v : high[g];
            sum_w[g] += weight;
            sum_wx[g] += weight * v;
        }
    for (int g = 0; g < L; ++g) {
        low[g] = low[g] > 0 ? 0.0f : low[g];
        flat[g] = high[g] <= low[g] ? 1.0f : 0.0f;
        high[g] = flat[g] != 0 ? low[g] + 1.0f : high[g];  // any range: the result is thrown away
    }
    const Lanes<L> flat_low = low;
    Asymmetric<L> out;
    std::array<float, 256> codes;
    const auto encode = [&](float* to) {
        const Registers<L> inverse(f.data()), least(low.data()), zero(0.0f), most(top);
        for (int i = 0; i < n; ++i)
            round_within(inverse * (Registers<L>(x + i * L) - least), zero, most).store(to + i * L);
    };
    for (int g = 0; g < L; ++g) {
        f[g] = top / (high[g] - low[g]);
        out.scale[g] = 1.0f / f[g];
    }
    encode(out.codes.data());
    auto best = search_detail::error_of<L>(x, w, n, out.codes.data(), out.scale, low, grid.squared);
    for (int k = 0; k <= grid.last; ++k) {
        for (int g = 0; g < L; ++g) f[g] = (grid.first + grid.step * static_cast<float>(k) + top) / (high[g] - low[g]);
        encode(codes.data());
        Registers<L> sum_wl(0.0f), sum_wll(0.0f), sum_wlx(0.0f);
        for (int i = 0; i < n; ++i) {
            const Registers<L> l(codes.data() + i * L), wl = Registers<L>(w + i * L) * l;
            sum_wl += wl;
            sum_wll += wl * l;
            sum_wlx += wl * Registers<L>(x + i * L);
        }
        Lanes<L> a, b, c, scale{}, offset{}, better{};
        sum_wl.store(a.data());
        sum_wll.store(b.data());
        sum_wlx.store(c.data());
        for (int g = 0; g < L; ++g) {
            const float d = sum_w[g] * b[g] - a[g] * a[g];
            better[g] = d > 0 ? 1.0f : 0.0f;
            const float divisor = d > 0 ? d : 1.0f;
            const float s = (sum_w[g] * c[g] - sum_wx[g] * a[g]) / divisor;
            const float o = (b[g] * sum_wx[g] - a[g] * c[g]) / divisor;
            offset[g] = o > 0 ? 0.0f : o;
            scale[g] = o > 0 ? c[g] / b[g] : s;
        }
        const auto error = search_detail::error_of<L>(x, w, n, codes.data(), scale, offset, grid.squared);
        for (int g = 0; g < L; ++g) {
            const bool is = better[g] != 0 && error[g] < best[g];
            better[g] = is ? 1.0f : 0.0f;
            best[g] = is ? error[g] : best[g];
            out.scale[g] = is ? scale[g] : out.scale[g];
            low[g] = is ? offset[g] : low[g];
        }
        if (any<L>(better)) keep_codes<L>(better, codes.data(), out.codes.data(), n);
    }
    for (int g = 0; g < L; ++g) {
        out.min[g] = -(flat[g] != 0 ? flat_low[g] : low[g]);
        out.scale[g] = flat[g] != 0 ? 0.0f : out.scale[g];
    }
    for (int i = 0; i < n; ++i)
        for (int g = 0; g < L; ++g) out.codes[i * L + g] = flat[g] != 0 ? 0.0f : out.codes[i * L + g];
    return out;
}

/// Codes 0 … N and one scale for up to sixteen values that are not negative: the scales or minimums of a super-block.
struct Positive {
    float scale = 0;
    std::array<float, 16> codes{};
};
[[nodiscard]] Positive search_positive(const float* values, const float* w, int n, int n_levels) noexcept;

}  // namespace tinfer::quantize
