// SPDX-License-Identifier: MIT
#include "support/differences.hpp"

#include <vector>

namespace tinfer::test {

TEST_CASE("support: the largest difference is found wherever it stands, and what is no number differs without bound") {
    const std::vector<double> exact{1.0, -2.0, 3.0};
    const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
    for (std::size_t at = 0; at < exact.size(); ++at) {
        std::vector<float> ours{1.0f, -2.0f, 3.0f};
        CHECK(largest_difference(ours, exact) == 0.0);
        ours[at] += 0.5f;
        CHECK(largest_difference(ours, exact) == 0.5);
        ours[at] = static_cast<float>(nan);
        CHECK(largest_difference(ours, exact) == inf);
    }
}

}  // namespace tinfer::test
