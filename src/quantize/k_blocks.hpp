// SPDX-License-Identifier: MIT
// The thorough search of super-blocks: with codes, scales and halves as the file will hold them, each sub-block tries
// the scales (and minimums) next to its own, then the half floats are refitted by least squares, until nothing gets
// better. Errors are those of the reader, so the result is never worse than what it starts from.
#pragma once

#include <algorithm>
#include <array>
#include <limits>

#include "quantize/encoders.hpp"
#include "quantize/search.hpp"

namespace tinfer::quantize {

inline constexpr int kSuperBlock = 256, kRefineRounds = 4, kRefineReach = 2;

/// Σ w · (d · code − m − x)² of n values with the codes low … high that suit them best.
inline double error_with(const float* x, const float* w, int n, float d, float m, float low, float high) noexcept {
    const float f = inverse(d);
    double error = 0;
    for (int i = 0; i < n; ++i) {
        const float off = d * round_within((x[i] + m) * f, low, high) - m - x[i];
        error += double{w[i]} * double{off} * double{off};
    }
    return error;
}

template <int L>
void refine_asymmetric(const float* x, const float* w, int n_levels, int scale_levels, float& d, float& dmin,
                       std::array<int, L>& scale, std::array<int, L>& min,
                       std::array<int, kSuperBlock>& codes) noexcept {
    constexpr int n = kSuperBlock / L;
    const auto top = static_cast<float>(n_levels);
    const auto error_of = [&](int g, float of_d, float of_min, int s, int m) {
        return error_with(x + g * n, w + g * n, n, of_d * static_cast<float>(s), of_min * static_cast<float>(m), 0,
                          top);
    };
    const auto code_of = [&](int e, float of_d, float of_min, int s, int m) {
        return round_within((x[e] + of_min * static_cast<float>(m)) * inverse(of_d * static_cast<float>(s)), 0, top);
    };
    const auto total = [&](float of_d, float of_min) {
        double sum = 0;
        for (int g = 0; g < L; ++g) sum += error_of(g, of_d, of_min, scale[g], min[g]);
        return sum;
    };
    for (int round = 0; round < kRefineRounds; ++round) {
        for (int g = 0; g < L; ++g) {
            const int s0 = scale[g], m0 = min[g];
            double best = error_of(g, d, dmin, s0, m0);
            for (int s = std::max(0, s0 - kRefineReach); s <= std::min(scale_levels, s0 + kRefineReach); ++s)
                for (int m = std::max(0, m0 - kRefineReach); m <= std::min(scale_levels, m0 + kRefineReach); ++m)
                    if (const double error = error_of(g, d, dmin, s, m); error < best)
                        best = error, scale[g] = s, min[g] = m;
        }
        // d and dmin that fit Σ w (d · a − dmin · b − x)², a = scale · code, b = min.
        double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
        for (int e = 0; e < kSuperBlock; ++e) {
            const int g = e / n;
            const double a = double{code_of(e, d, dmin, scale[g], min[g])} * scale[g], b = min[g], weight = w[e];
            aa += weight * a * a, ab += weight * a * b, bb += weight * b * b;
            ax += weight * a * double{x[e]}, bx += weight * b * double{x[e]};
        }
        const double determinant = aa * bb - ab * ab;
        if (!(aa > 0)) break;
        const bool both = determinant > 1e-12 * aa * bb;
        const float new_d =
            as_half(static_cast<float>(both ? (ax * bb - bx * ab) / determinant : (ax + ab * double{dmin}) / aa));
        const float new_dmin = both ? as_half(static_cast<float>((ax * ab - bx * aa) / determinant)) : dmin;
        if (!(new_d > 0) || !(new_dmin >= 0) || !(total(new_d, new_dmin) < total(d, dmin))) break;
        d = new_d, dmin = new_dmin;
    }
    for (int e = 0; e < kSuperBlock; ++e) {
        const int g = e / n;
        if (d * static_cast<float>(scale[g]) != 0) codes[e] = static_cast<int>(code_of(e, d, dmin, scale[g], min[g]));
    }
}

inline void refine_symmetric(const float* x, const float* w, int m, int scale_levels, float& d,
                             std::array<int, 16>& scale, std::array<int, kSuperBlock>& codes) noexcept {
    constexpr int n = 16;
    const float low = static_cast<float>(-m), high = static_cast<float>(m - 1);
    const auto error_of = [&](int g, float of_d, int s) {
        return error_with(x + g * n, w + g * n, n, of_d * static_cast<float>(s), 0, low, high);
    };
    const auto total = [&](float of_d) {
        double sum = 0;
        for (int g = 0; g < 16; ++g) sum += error_of(g, of_d, scale[g]);
        return sum;
    };
    const int reach = 2 * kRefineReach;
    for (int round = 0; round < kRefineRounds; ++round) {
        for (int g = 0; g < 16; ++g) {
            const int s0 = scale[g];
            double best = error_of(g, d, s0);
            const auto attempt = [&](int s) {
                if (s < -scale_levels || s >= scale_levels) return;
                if (const double error = error_of(g, d, s); error < best) best = error, scale[g] = s;
            };
            for (int s = s0 - reach; s <= s0 + reach; ++s) attempt(s), attempt(-s);  // codes −m and m−1 are no mirror
        }
        double aa = 0, ax = 0;
        for (int e = 0; e < kSuperBlock; ++e) {
            const auto s = static_cast<float>(scale[e / n]);
            const double a = double{round_within(x[e] * inverse(d * s), low, high)} * double{s}, weight = w[e];
            aa += weight * a * a, ax += weight * a * double{x[e]};
        }
        if (!(aa > 0)) break;
        const float new_d = as_half(static_cast<float>(ax / aa));
        if (new_d == 0 || !(total(new_d) < total(d))) break;
        d = new_d;
    }
    for (int e = 0; e < kSuperBlock; ++e)
        if (const float s = d * static_cast<float>(scale[e / n]); s != 0)
            codes[e] = static_cast<int>(round_within(x[e] * inverse(s), low, high)) + m;
}

}  // namespace tinfer::quantize
