// SPDX-License-Identifier: MIT
// Our own exponentials, logarithms and trigonometry, because a result of the C library may differ between platforms and
// no such result may reach a logit (numerics rule 9). Only +, −, ·, /, fma, sqrt, rounding and bit operations are used,
// in the order the sources show, so every machine returns the same bits. Errors stated here are asserted by tests.
#pragma once

#include <cmath>
#include <cstdint>

namespace tinfer::math {

// ---- float32. NaN in, NaN out.
[[nodiscard]] float exp(float x) noexcept;       ///< < 1.1 ulp; 1 at 0; +inf above 88.7228; 0 from -104 down
[[nodiscard]] float log(float x) noexcept;       ///< < 1 ulp; -inf at ±0, NaN below, subnormals as they are
[[nodiscard]] float log1p(float x) noexcept;     ///< log(1 + x), ≤ 3 ulp
[[nodiscard]] float softplus(float x) noexcept;  ///< log(1 + exp(x)), ≤ 3 ulp
[[nodiscard]] float tanh(float x) noexcept;      ///< ≤ 2 ulp
[[nodiscard]] float erf(float x) noexcept;       ///< ≤ 2 ulp
[[nodiscard]] float sigmoid(float x) noexcept;   ///< 1 / (1 + exp(−x)), ≤ 2.5 ulp where normal
[[nodiscard]] float silu(float x) noexcept;      ///< x / (1 + exp(−x)), ≤ 2.5 ulp for x ≥ −87
[[nodiscard]] float gelu(float x) noexcept;      ///< its tanh form, absolute error ≤ 2e-7 · max(1, |x|)
[[nodiscard]] float sin(float x) noexcept;       ///< the double function, rounded: ≤ 0.51 ulp for |x| ≤ 2^20
[[nodiscard]] float cos(float x) noexcept;

// ---- float64, for angles and frequencies that are rounded to float32 in the end.
[[nodiscard]] double exp(double x) noexcept;   ///< relative error < 3e-16 where the result is normal; 0 below -745.2
[[nodiscard]] double exp2(double x) noexcept;  ///< the same; exact for integers
[[nodiscard]] double log(double x) noexcept;   ///< < 1.5 ulp; positive normal numbers, else as the float version
[[nodiscard]] double pow(double x,
                         double y) noexcept;  ///< exp(y · log x), x > 0: relative error ≈ 2e-16 · (1 + |y log x|)
/// Absolute error < 2e-16 for |x| ≤ 2^31, growing in proportion beyond; NaN for ±inf.
struct SinCos {
    double sin, cos;
};
[[nodiscard]] SinCos sin_cos(double x) noexcept;

/// ALiBi (arXiv:2108.12409): 2^(−max_bias·(h+1)/n2) for heads below n2 = 2^floor(log2 n_head), the odd powers of half
/// that exponent for the others.
[[nodiscard]] float alibi_slope(float max_bias, int head, int n_head) noexcept;

/// T5 (arXiv:1910.10683 §2.1, as released): of n buckets (half of all where both sides count; keys ahead have the
/// second half) the first e = n/2 are one distance each, the others grow logarithmically up to max_distance, e <
/// max_distance. `distance` is p_key − p_query; keys ahead are at 0 where one side counts. Exact at the boundaries, up
/// to 255 buckets.
[[nodiscard]] int relative_bucket(int distance, int n_bucket, int max_distance, bool both_sides) noexcept;

/// The two ends of YaRN's ramp in pair units (arXiv:2309.00071 §3.2): pair dimensions that make beta_fast and beta_slow
/// turns within the original context.
struct YarnRamp {
    double low, high;
};
[[nodiscard]] YarnRamp yarn_ramp(int n_rot, double freq_base, double n_ctx_orig, double beta_fast,
                                 double beta_slow) noexcept;

}  // namespace tinfer::math
