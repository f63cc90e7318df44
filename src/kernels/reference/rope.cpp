// SPDX-License-Identifier: MIT
// Reference: rotary position embedding (arXiv:2104.09864) with frequency factors, linear scaling and YaRN
// (arXiv:2309.00071).
#include <algorithm>
#include <cmath>

#include "base/math.hpp"
#include "kernels/reference/ops.hpp"

namespace tinfer::kernels::ref {

namespace {

/// Radians per position of one pair, before the division by a frequency factor: (1 − r)·s·w + r·w, w =
/// base^(−2i/n_rot), r = ext · (1 − clamp((i − low)/(high − low))) the part of YaRN that extrapolates.
struct RopeFrequencies {
    explicit RopeFrequencies(const RopeParams& params) noexcept
        : rope(params), log_base(math::log(static_cast<double>(params.freq_base))) {
        if (params.ext_factor != 0.0f)
            ramp = math::yarn_ramp(params.n_rot, static_cast<double>(params.freq_base), params.n_ctx_orig,
                                   static_cast<double>(params.beta_fast), static_cast<double>(params.beta_slow));
    }
    /// How much of the extrapolated angle enters.
    [[nodiscard]] double extrapolation(std::int64_t i) const noexcept {
        if (rope.ext_factor == 0.0f) return 0.0;
        const double t = (static_cast<double>(i) - ramp.low) / std::max(0.001, ramp.high - ramp.low);
        return static_cast<double>(rope.ext_factor) * (1.0 - std::clamp(t, 0.0, 1.0));
    }
    [[nodiscard]] double power(std::int64_t i) const noexcept {
        return math::exp(-2.0 * static_cast<double>(i) / rope.n_rot * log_base);
    }
    /// Pairs of the fourth section do not rotate with a text's positions.
    [[nodiscard]] bool stands_still(std::int64_t i) const noexcept {
        const auto [t, h, w, rest] = rope.sections;
        const std::int64_t all = std::int64_t{t} + h + w + rest;
        if (all == 0) return false;
        if (rope.interleaved == 0) return i % all >= std::int64_t{t} + h + w;
        return i >= 3 * std::int64_t{i % 3 == 0 ? t : i % 3 == 1 ? h : w};
    }
    const RopeParams& rope;
    double log_base;
    math::YarnRamp ramp{};
};

}  // namespace

/// te = (p + offset)·w_i/ff_i, ti = s·te, angle = ti·(1 − r_i) + te·r_i; all in double. Elements 2i and 2i+1 of a row
/// are magnitude times cosine and sine, rounded once to float.
void rope_table(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &positions = call[1], &factors = call[2];
    const RopeParams& rope = call.params.rope;
    const RopeFrequencies frequencies(rope);
    const double direction = rope.backward != 0 ? -1.0 : 1.0;
    const auto s = static_cast<double>(rope.freq_scale), magnitude = static_cast<double>(rope.magnitude);
    const Range tokens = slice.share(positions.ne[0]);
    for (std::int64_t i = 0; i < rope.n_rot / 2; ++i) {
        const double factor = factors.present() ? static_cast<double>(factors.row<const float>(0)[i]) : 1.0;
        const double w = frequencies.power(i), r = frequencies.extrapolation(i);
        for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
            const double extrapolated =
                (std::int64_t{positions.row<const std::int32_t>(0)[t]} + rope.offset) * w / factor;
            const double interpolated = s * extrapolated;
            const double angle = rope.ext_factor == 0.0f ? interpolated : interpolated * (1.0 - r) + extrapolated * r;
            const math::SinCos rotation = math::sin_cos(frequencies.stands_still(i) ? 0.0 : angle);
            auto* row = out.row<float>(t);
            row[2 * i] = static_cast<float>(magnitude * rotation.cos);
            row[2 * i + 1] = static_cast<float>(direction * magnitude * rotation.sin);
        }
    }
}

/// a' = fma(a, cos, −(c·sin)), c' = fma(a, sin, c·cos).
Rotated rotate(float a, float c, const float* table, std::int64_t pair) noexcept {
    const float cos = table[2 * pair], sin = table[2 * pair + 1];
    return {std::fma(a, cos, -(c * sin)), std::fma(a, sin, c * cos)};
}

/// Rotates the first n_rot elements of every head, copies the rest. In place is allowed.
void rope(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &x = call[1], &table = call[2];
    const RopeParams& params = call.params.rope;
    const Range heads = slice.share(x.n_rows());
    for (std::int64_t i = heads.begin; i < heads.end; ++i) {
        const auto* in = x.flat_row<const float>(i);
        auto* y = out.flat_row<float>(i);
        const auto* angles = table.row<const float>(i / x.ne[1]);
        for (std::int64_t p = 0; p < params.n_rot / 2; ++p) {
            const Pair at = pair_of(params, p);
            const Rotated rotated = rotate(in[at.a], in[at.c], angles, p);
            y[at.a] = rotated.a;
            y[at.c] = rotated.c;
        }
        for (std::int64_t j = params.n_rot; j < x.ne[0]; ++j) y[j] = in[j];
    }
}

/// t = 1 + params.scale · ln(1 + floor((p + params.first) / params.k)), the logarithm in double and rounded to float.
void log_temperature(const KernelCall& call, WorkSlice slice) noexcept {
    const Operand &out = call[0], &positions = call[1];
    const Range tokens = slice.share(positions.ne[0]);
    for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
        const std::int64_t steps =
            (std::int64_t{positions.row<const std::int32_t>(0)[t]} + call.params.first) / call.params.k;
        const auto log = static_cast<float>(math::log(static_cast<double>(1 + steps)));
        out.row<float>(t)[0] = std::fma(call.params.scale, log, 1.0f);
    }
}

}  // namespace tinfer::kernels::ref
