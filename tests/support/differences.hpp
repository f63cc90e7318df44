// SPDX-License-Identifier: MIT
// How far floats of the library lie from what they should be: rows of another engine, or a straight-line evaluation in
// double precision.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace tinfer::test {

template <class Numbers>
double largest_difference(std::span<const float> ours, const Numbers& exact) {
    REQUIRE(ours.size() == exact.size());
    double worst = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) worst = std::max(worst, std::abs(static_cast<double>(ours[i]) - exact[i]));
    return worst;
}

}  // namespace tinfer::test
