// SPDX-License-Identifier: MIT
#include "base/row_ops.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/reduce.hpp"

namespace tinfer {

namespace {

bool block_max(const float* x, std::size_t n, float* maxima) noexcept {
    bool has_nan = false;
    for (std::size_t begin = 0; begin < n; begin += kRowBlock) {
        const std::span block(x + begin, std::min(kRowBlock, n - begin));
        for (const float value : block) has_nan |= std::isnan(value);
        *maxima++ = max_of(block);
    }
    return has_nan;
}

float exp_sum(const float* x, std::size_t n, float max, float* p) noexcept { return exp_sum16({x, n}, max, p); }

}  // namespace

constinit const RowOps reference_row_ops{block_max, exp_sum};

}  // namespace tinfer
