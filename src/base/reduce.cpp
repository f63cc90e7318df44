// SPDX-License-Identifier: MIT
#include "base/reduce.hpp"

#include <cmath>
#include <limits>

#include "base/math.hpp"

namespace tinfer {

float reduce16(const float (&lanes)[kLanes]) noexcept {
    float sums[8];
    for (int l = 0; l < 8; ++l) sums[l] = lanes[l] + lanes[l + 8];
    for (int l = 0; l < 4; ++l) sums[l] += sums[l + 4];
    for (int l = 0; l < 2; ++l) sums[l] += sums[l + 2];
    return sums[0] + sums[1];
}

float sum16(const float* x, std::int64_t n) noexcept {
    float lanes[kLanes] = {};
    for (std::int64_t i = 0; i < n; ++i) lanes[i % kLanes] += x[i];
    return reduce16(lanes);
}

float dot16(const float* a, const float* b, std::int64_t n) noexcept {
    float lanes[kLanes] = {};
    for (std::int64_t i = 0; i < n; ++i) lanes[i % kLanes] = std::fma(a[i], b[i], lanes[i % kLanes]);
    return reduce16(lanes);
}

float max_of(std::span<const float> x) noexcept {
    float max = -std::numeric_limits<float>::infinity();
    for (const float value : x) max = max < value ? value : max;
    return max;
}

float exp_sum16(std::span<const float> x, float max, float* p_out) noexcept {
    float lanes[kLanes] = {};
    for (std::size_t i = 0; i < x.size(); ++i) {
        const float p = math::exp(x[i] - max);
        lanes[i % kLanes] += p;
        if (p_out != nullptr) p_out[i] = p;
    }
    return reduce16(lanes);
}

}  // namespace tinfer
