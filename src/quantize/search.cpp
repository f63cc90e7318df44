// SPDX-License-Identifier: MIT
#include "quantize/search.hpp"

#include <algorithm>

namespace tinfer::quantize {

Positive search_positive(const float* values, const float* w, int n, int n_levels) noexcept {
    const auto top = static_cast<float>(n_levels);
    float largest = 0;
    for (int i = 0; i < n; ++i) largest = std::max(largest, values[i]);
    Positive out;
    if (largest < kTiny) return out;
    const auto error_of = [&](float f) {
        const float scale = 1.0f / f;
        float error = 0;
        for (int i = 0; i < n; ++i) {
            const float off = values[i] - scale * round_within(f * values[i], 0.0f, top);
            error += w[i] * off * off;
        }
        return error;
    };
    float f = top / largest, best = error_of(f);
    for (int t = -4; t <= 4; ++t) {
        if (t == 0) continue;
        const float candidate = (0.1f * static_cast<float>(t) + top) / largest, error = error_of(candidate);
        if (error < best) best = error, f = candidate;
    }
    float p = 0, q = 0;
    for (int i = 0; i < n; ++i) {
        const float l = out.codes[i] = round_within(f * values[i], 0.0f, top);
        p += w[i] * values[i] * l;
        q += w[i] * l * l;
    }
    for (int sweep = 0; sweep < 5; ++sweep) {
        bool changed = false;
        for (int i = 0; i < n; ++i) {
            const float v = values[i], l = out.codes[i];
            const float p_without = p - w[i] * v * l, q_without = q - w[i] * l * l;
            if (!(p_without > 0) || !(q_without > 0)) continue;
            const float c = round_within(v * q_without / p_without, 0.0f, top);
            const float p_with = p_without + w[i] * v * c, q_with = q_without + w[i] * c * c;
            if (c == l || !(p_with * p_with * q > p * p * q_with)) continue;
            out.codes[i] = c, p = p_with, q = q_with, changed = true;
        }
        if (!changed) break;
    }
    out.scale = q > 0 ? p / q : 0.0f;
    return out;
}

}  // namespace tinfer::quantize
