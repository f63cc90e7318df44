// SPDX-License-Identifier: MIT
// Deviations of the library's floats from reference values: rows of another engine, or a direct evaluation in double
// precision.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace tinfer::test {

/// The largest |ours − exact|; infinite if one of them is NaN, which a maximum would ignore.
template <class Numbers>
double largest_difference(std::span<const float> ours, const Numbers& exact) {
    REQUIRE(ours.size() == exact.size());
    double worst = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
        const double difference = std::abs(static_cast<double>(ours[i]) - exact[i]);
        worst = std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(worst, difference);
    }
    return worst;
}

}  // namespace tinfer::test
